"""Small files share a window, unless that could change what is found in them."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kit.capture_rewriting import Packet, build, pcap

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.tcp.frame_numbers import file_no, frame_no
from rtmp_spark.ingest.decode import packet_windows
from rtmp_spark.ingest.decode.decode_plan import FilePlan, Piece, SplitPlan
from rtmp_spark.ingest.decode.packet_windows import windows

Found = list[list[tuple[int, int, int]]]  # of each window: file, packet and source port of each segment


def packets(file: int, port: int | None = None, count: int = 4) -> list[tuple[int, bytes]]:
    payload = bytes([65 + file]) * 2000
    first = Packet(file * 10**9, "10.0.0.1", port or 5000 + file, "10.0.0.2", 1935, 1, 1, 16, payload=payload)
    return list(build([replace(first, seq=1 + 2000 * n) for n in range(count)]))


def in_windows(files: Sequence[Sequence[tuple[int, bytes]]], secrets: Sequence[tuple[int, int]] = ()) -> Found:
    contents = {number: pcap(frames) for number, frames in enumerate(files)}
    pieces = [
        Piece(SplitPlan(FilePlan(number, "", "", len(content), 0), 0, 0, "", False))
        for number, content in contents.items()
    ]
    found = []
    for block, segments, last in windows(
        pieces, lambda piece: open_capture(io.BytesIO(contents[piece.split.file.number])), secrets
    ):
        frames = segments.frame.tolist()
        assert file_no(int(block.frame[-1])) == last.split.file.number
        found.append([(file_no(n), frame_no(n), port) for n, port in zip(frames, segments.sport.tolist())])
        for row, frame in enumerate(frames):
            payload = segments.data[int(segments.start[row]) :][: int(segments.length[row])]
            assert payload == bytes([65 + file_no(frame)]) * 2000
    return found


def each(files: range) -> list[tuple[int, int, int]]:
    return [(file, n, 5000 + file) for file in files for n in range(1, 5)]


def test_small_files_share_a_window() -> None:
    assert in_windows([packets(file) for file in range(6)]) == [each(range(6))]


def test_a_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(pcap(packets(0)))
    monkeypatch.setattr(packet_windows, "SHARED_BYTES", 2 * size)
    assert in_windows([packets(file) for file in range(5)]) == [each(range(2)), each(range(2, 4)), each(range(4, 5))]
    monkeypatch.setattr(packet_windows, "SMALL_BYTES", size - 1)
    assert len(in_windows([packets(file) for file in range(5)])) == 5


def test_files_with_a_connection_in_common() -> None:
    files = [packets(0), packets(1, port=5000), packets(2)]
    found = in_windows(files)
    assert [{file for file, _, _ in window} for window in found] == [{0}, {1}, {2}]
    assert [port for window in found for _, _, port in window] == [5000] * 8 + [5002] * 4


def test_fragments_of_two_files_make_no_packet() -> None:
    (ts_ns, whole), *_ = packets(0)
    body = whole[34:]

    def fragment(offset: int, more: bool) -> bytes:
        part = body[offset : offset + 1480]
        header = bytearray(whole[14:34])
        header[2:8] = struct.pack(">HHH", 20 + len(part), 7, offset // 8 | more * 0x2000)
        return whole[:14] + header + part

    halves = [(ts_ns, fragment(0, True)), (ts_ns, fragment(1480, False))]
    assert len(in_windows([halves])[0]) == 1
    assert [len(window) for window in in_windows([halves[:1], halves[1:]])] == [0, 0]


def test_secrets_begin_a_window() -> None:
    """Those of a file that is in another bucket, too."""
    files = [packets(file) for file in range(4)]
    assert in_windows(files, [(2, 0)]) == [each(range(2)), each(range(2, 4))]
