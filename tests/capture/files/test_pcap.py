"""Classic pcap files: every layout, compression, damage, and byte ranges. tests/kit/capture_rewriting.py makes them."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit import capture_rewriting

from rtmp_spark.capture.files import pcap
from rtmp_spark.capture.files.byte_range import PcapRange
from rtmp_spark.capture.files.open_capture import Capture, open_capture, sort_by_first_packet
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import DEFAULT_LIMITS

START_NS = 1_700_000_000_123_456_000


def frames(count: int, seed: int = 1) -> list[tuple[int, bytes]]:
    dice = random.Random(seed)
    return [(START_NS + n * 1_000_000, dice.randbytes(dice.randint(1, 200))) for n in range(count)]


def contents(capture: Capture) -> list[tuple[int, int, bytes]]:
    """(frame, time, bytes) of every packet."""
    return [(int(block.frame[n]), int(block.ts_ns[n]), block.packet(n)) for block in capture for n in range(len(block))]


def expected(packets: list[tuple[int, bytes]]) -> list[tuple[int, int, bytes]]:
    return [(n, ts_ns, data) for n, (ts_ns, data) in enumerate(packets, 1)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("window_bytes", [50, 333, 1 << 20])
def test_the_four_magics(order: str, nano: bool, window_bytes: int) -> None:
    packets = frames(60)
    capture = open_capture(
        io.BytesIO(capture_rewriting.pcap(packets, 113, order=order, nano=nano)), window_bytes=window_bytes
    )
    assert contents(capture) == expected(packets)
    assert (capture.facts.format, capture.facts.link_types, capture.facts.status, capture.facts.packets) == (
        "pcap",
        [113],
        "ok",
        60,
    )
    assert (capture.facts.ts_first_ns, capture.facts.ts_last_ns) == (packets[0][0], packets[-1][0])


def test_nanoseconds_are_kept() -> None:
    ((_, ts_ns, _),) = contents(
        open_capture(io.BytesIO(capture_rewriting.pcap([(1_234_567_890_123_456_789, b"x")], nano=True)))
    )
    assert ts_ns == 1_234_567_890_123_456_789


def test_kuznetzovs_modified_format() -> None:
    packets = frames(5)
    data = struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1)
    for ts_ns, packet in packets:
        seconds, rest = divmod(ts_ns, 1_000_000_000)
        data += struct.pack("<IIIIIHBB", seconds, rest // 1000, len(packet), len(packet), 2, 0x0800, 0, 0) + packet
    assert contents(open_capture(io.BytesIO(data))) == expected(packets)


def test_fcs_bits_do_not_change_the_link_type() -> None:
    data = bytearray(capture_rewriting.pcap(frames(1)))
    data[20:24] = struct.pack("<I", 0x5400_0001)
    assert open_capture(io.BytesIO(bytes(data))).facts.link_types == [1]


def test_our_writer_is_read_by_an_independent_reader(tmp_path: Path) -> None:
    packets = frames(20)
    for nano in (False, True):
        pcap.write(tmp_path / "a.pcap", packets, 113, nanosecond=nano)
        data = (tmp_path / "a.pcap").read_bytes()
        assert capture_rewriting.records(data) == packets
        assert struct.unpack_from("<I", data, 20)[0] == 113


def test_writer_cuts_at_the_snapshot_length() -> None:
    file = io.BytesIO()
    writer = pcap.Writer(file, snaplen=10)
    writer.write(START_NS, b"0123456789abcdef")
    writer.flush()
    capture = open_capture(io.BytesIO(file.getvalue()))
    (block,) = capture
    assert (int(block.caplen[0]), int(block.origlen[0])) == (10, 16)
    assert (capture.facts.truncated.count, capture.facts.missing_bytes, capture.facts.snaplen) == (1, 6, 10)
    assert [p.code for p in capture.facts.problems] == [ViolationCode.CAPTURE_SNAPLEN]


@pytest.mark.parametrize("missing", [1, 10, 100])
def test_truncated_last_record(missing: int) -> None:
    packets = [*frames(5), (START_NS + 10**10, bytes(150))]
    capture = open_capture(io.BytesIO(capture_rewriting.pcap(packets)[:-missing]))
    assert contents(capture) == expected(packets[:5])
    assert capture.facts.status == "partial"
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_TRUNCATED


def test_a_file_cut_anywhere_keeps_its_complete_packets() -> None:
    packets = frames(6)
    data = capture_rewriting.pcap(packets)
    sizes = list(itertools.accumulate((16 + len(p) for _, p in packets), initial=24))
    for cut in range(24, len(data)):
        whole = sum(size <= cut for size in sizes) - 1
        capture = open_capture(io.BytesIO(data[:cut]))
        assert len(contents(capture)) == whole
        assert capture.facts.status == ("ok" if cut in sizes else "partial" if whole else "failed")


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**32 - 1, DEFAULT_LIMITS.pcap_record_bytes + 1])
def test_impossible_record_length_stops_without_allocating(claimed: int) -> None:
    data = capture_rewriting.pcap(frames(3)) + struct.pack("<IIII", 1, 2, claimed, claimed) + bytes(400_000)
    capture = open_capture(io.BytesIO(data))
    assert len(contents(capture)) == 3
    assert capture.facts.status == "partial"
    assert capture.facts.error is not None
    assert (capture.facts.error.code, capture.facts.error.frame) == (ViolationCode.CAPTURE_BAD_RECORD, 4)


def test_a_packet_longer_than_the_snapshot_length_is_read_and_reported() -> None:
    data = bytearray(capture_rewriting.pcap([(START_NS, bytes(500))]))
    data[16:20] = struct.pack("<I", 96)
    capture = open_capture(io.BytesIO(bytes(data)))
    assert len(contents(capture)[0][2]) == 500
    assert [p.code for p in capture.facts.problems] == [ViolationCode.CAPTURE_SNAPLEN]
    assert capture.facts.status == "ok"


def test_original_length_below_captured_length() -> None:
    data = bytearray(capture_rewriting.pcap([(START_NS, bytes(50))]))
    data[36:40] = struct.pack("<I", 7)
    (block,) = open_capture(io.BytesIO(bytes(data)))
    assert int(block.origlen[0]) == int(block.caplen[0]) == 50


def test_zero_length_records_are_skipped_but_counted_as_frames() -> None:
    packets = [(START_NS, b"a"), (START_NS, b""), (START_NS, b"b")]
    capture = open_capture(io.BytesIO(capture_rewriting.pcap(packets)))
    assert [frame for frame, _, _ in contents(capture)] == [1, 3]
    assert (capture.facts.packets, capture.facts.zero_length) == (3, 1)


@pytest.mark.parametrize("window_bytes", [60, 1 << 20])
def test_timestamps_going_back_are_reported(window_bytes: int) -> None:
    packets = [(START_NS + at, b"x" * 20) for at in (0, 5_000_000, 3_000_000, 9_000_000, 8_000_000)]
    capture = open_capture(io.BytesIO(capture_rewriting.pcap(packets)), window_bytes=window_bytes)
    assert contents(capture) == expected(packets)
    (problem,) = capture.facts.problems
    assert (problem.code, problem.count, problem.frame) == (ViolationCode.CAPTURE_TIME_BACKWARDS, 2, 3)


# Compression


@pytest.mark.parametrize("members", [1, 4])
def test_gzip(members: int) -> None:
    packets = frames(200)
    capture = open_capture(
        io.BytesIO(capture_rewriting.gzipped(capture_rewriting.pcap(packets), members)), window_bytes=1000
    )
    assert contents(capture) == expected(packets)
    assert (capture.facts.compression, capture.facts.status) == ("gzip", "ok")


def test_zstd_frames() -> None:
    zstandard = pytest.importorskip("zstandard")
    packets = frames(200)
    data = capture_rewriting.pcap(packets)
    packed = b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:1000], data[1000:]))
    capture = open_capture(io.BytesIO(packed), window_bytes=1000)
    assert contents(capture) == expected(packets)
    assert (capture.facts.compression, capture.facts.status) == ("zstd", "ok")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_file_that_ends_early(kind: str) -> None:
    packets = frames(8000)
    data = capture_rewriting.pcap(packets)
    if kind == "gzip":
        packed = gzip.compress(data)
    else:
        packed = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    capture = open_capture(io.BytesIO(packed[: len(packed) // 2]))
    found = contents(capture)
    assert found == expected(packets[: len(found)])
    assert 1000 < len(found) < 8000
    assert capture.facts.status != "ok"
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_TRUNCATED
    assert "copy the file again" in capture.facts.error.hint


def test_damaged_gzip_keeps_the_packets_before_the_damage() -> None:
    packets = frames(2000)
    packed = bytearray(gzip.compress(capture_rewriting.pcap(packets)))
    packed[len(packed) // 2] ^= 0xFF
    capture = open_capture(io.BytesIO(bytes(packed)))
    found = contents(capture)
    assert len(found) > 100
    assert capture.facts.status == "partial"


def test_decompression_stops_at_the_size_limit() -> None:
    limits = replace(DEFAULT_LIMITS, decompress_bytes=1 << 20)
    header = capture_rewriting.pcap([(START_NS, bytes(1000))] * 5000)
    capture = open_capture(io.BytesIO(gzip.compress(header)), limits)
    found = contents(capture)
    assert 0 < len(found) < 5000
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_LIMIT
    assert capture.size_bytes <= 1 << 20


def test_decompression_stops_at_the_ratio_limit() -> None:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = squeezer.compress(capture_rewriting.pcap([]))
    record = capture_rewriting.pcap([(START_NS, bytes(250_000))])[24:]
    for _ in range(400):  # 100 MB out of 100 KB
        packed += squeezer.compress(record)
    packed += squeezer.flush()
    capture = open_capture(io.BytesIO(packed))
    assert sum(len(block) for block in capture) < 400
    assert capture.facts.error is not None and capture.facts.error.code is ViolationCode.CAPTURE_LIMIT


def test_on_bytes_gets_every_byte_once_and_in_order() -> None:
    data = capture_rewriting.pcap(frames(100))
    for source in (data, capture_rewriting.gzipped(data, 3), capture_rewriting.pcapng(frames(100))):
        seen: list[bytes] = []
        capture = open_capture(io.BytesIO(source), window_bytes=500, on_bytes=seen.append)
        contents(capture)
        plain = gzip.decompress(source) if capture.facts.compression else source
        assert b"".join(seen) == plain
        assert capture.size_bytes == len(plain)


# Files that are not captures


@pytest.mark.parametrize(
    "data", [b"", b"\x1f", b"hello world, this is text", b"\xd4\xc3\xb2\xa1\x02", gzip.compress(b"", mtime=0)]
)
def test_not_a_capture(data: bytes) -> None:
    with pytest.raises(CaptureError) as refused:
        open_capture(io.BytesIO(data))
    assert refused.value.detail and refused.value.hint


def test_a_file_with_only_a_header_is_an_empty_capture() -> None:
    capture = open_capture(io.BytesIO(capture_rewriting.pcap([])))
    assert contents(capture) == []
    assert (capture.facts.status, capture.facts.ts_first_ns) == ("ok", None)


def test_directory_and_missing_path_are_os_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.pcap"):
        with pytest.raises(OSError):
            open_capture(path)


def test_standard_input(tmp_path: Path) -> None:
    script = "from rtmp_spark.capture.files.open_capture import *; c = open_capture('-'); "
    script += "print(sum(map(len, c)), c.facts.status)"
    data = capture_rewriting.pcap(frames(7))
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True)
    assert done.stdout.split() == [b"7", b"ok"]


def test_first_ts_ns_does_not_consume_the_first_packet(tmp_path: Path) -> None:
    packets = frames(3)
    capture = open_capture(io.BytesIO(capture_rewriting.pcap(packets)))
    assert capture.first_ts_ns() == packets[0][0]
    assert contents(capture) == expected(packets)


def test_files_are_sorted_by_first_packet(tmp_path: Path) -> None:
    for name, start in (("b", 1), ("a", 3), ("c", 2)):
        pcap.write(tmp_path / name, [(START_NS + start, b"x")], nanosecond=True)
    (tmp_path / "0_broken").write_bytes(b"nothing")
    found = [path for path, _ in sort_by_first_packet([tmp_path / name for name in ("0_broken", "a", "b", "c")])]
    assert [Path(path).name for path in found] == ["b", "c", "a", "0_broken"]


# Byte ranges


@pytest.mark.parametrize("order,nano", [("<", False), (">", True)])
def test_any_cut_into_ranges_gives_every_record_once(order: str, nano: bool) -> None:
    packets = frames(400, seed=7)
    data = capture_rewriting.pcap(packets, order=order, nano=nano)
    header = pcap.parse_header(data[:24])
    dice = random.Random(3)
    for _ in range(150):
        cuts = sorted({0, len(data), *(dice.randrange(len(data)) for _ in range(dice.randint(1, 5)))})
        found: list[bytes] = []
        ended = 24
        for start, end in itertools.pairwise(cuts):
            part = PcapRange(io.BytesIO(data), start, end, header)
            numbers = []
            for block in part:
                numbers += block.frame.tolist()
                found += [block.packet(n) for n in range(len(block))]
            assert numbers == list(range(1, len(numbers) + 1))
            if part.began is not None:
                assert part.began == ended
                assert part.ended is not None
                ended = part.ended
        assert found == [packet for _, packet in packets]
        assert ended == len(data)


def test_ranges_of_a_real_capture(sample_pcaps: Path) -> None:
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    data = path.read_bytes()
    starts = {24}
    at = 24
    while at + 16 <= len(data):
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
        starts.add(at)
    header = pcap.parse_header(data[:24])
    dice = random.Random(5)
    for _ in range(300):
        start = dice.randrange(24, len(data))
        part = PcapRange(io.BytesIO(data), start, min(start + 5000, len(data)), header)
        assert part.began == min((s for s in starts if s >= start and s < min(start + 5000, len(data))), default=None)


def test_packet_columns_can_be_selected() -> None:
    (block,) = open_capture(io.BytesIO(capture_rewriting.pcap(frames(10))))
    odd = block.select(np.arange(10) % 2 == 1)
    assert odd.frame.tolist() == [2, 4, 6, 8, 10]
    assert odd.packet(0) == block.packet(1)
