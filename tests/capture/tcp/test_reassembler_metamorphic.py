"""Reassembly does not depend on how a connection was transported or captured, and agrees with a naive reassembly."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import capture_rewriting
from kit.capture_rewriting import ACK, FIN, LINKS, MASK, Packet, Talk, as_ip, as_ipv6
from kit.reassembled_streams import Result, by_ends, naive, reassemble, reassemble_bytes, reassemble_file

from rtmp_spark.capture.tcp import segment_batch
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.tcp_connection import Connection

pytestmark = pytest.mark.slow

WHOLE = [  # captures with nothing missing, over Ethernet
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "lossy_mtu1500_client_side.pcap",
    "lossy_mtu1500_server_side.pcap",
    "capture_gap_full.pcap",
    "ipv6_ffmpeg_publish.pcap",
    "denied_and_unknown_app.pcap",
    "republish_same_name.pcap",
]
SMALL = "capture_gap_full.pcap"


@pytest.mark.parametrize("name", WHOLE)
def test_naive_reassembly_agrees(sample_pcaps: Path, name: str) -> None:
    path = sample_pcaps / name
    assert {k: v for k, v in naive(capture_rewriting.read(path)).items() if v} == {
        k: v for k, v in by_ends(reassemble_file(path)).items() if v
    }


def facts(result: Result) -> list[tuple[object, ...]]:
    """Everything but the intervals."""
    return [
        (
            talk.connection.a, talk.connection.b, talk.bytes, talk.connection.close_kind, talk.connection.closed_by,
            talk.connection.ts_first_ns, talk.connection.frame_first, talk.connection.frame_last,
            [direction.holes for direction in talk.directions],
            [[(c.offset, c.crc_first, c.crc_second) for c in direction.conflicts] for direction in talk.directions],
            [direction.places for direction in talk.directions],
            [stream.state()[:-2] for stream in talk.connection.streams],  # all but the bytes that it holds
        )
        for talk in result.talks
    ]  # fmt: skip


def columns(result: Result) -> list[list[int]]:
    return [getattr(result.intervals, name).tolist() for name in result.intervals.__dataclass_fields__]


@pytest.mark.parametrize("name", [*WHOLE, "capture_gap_lost_packets.pcap", "midstream_publish_and_play.pcap",
                                  "snaplen96_ffmpeg_publish.pcap", "garbage_on_1935.pcap"])  # fmt: skip
def test_windows_of_any_size_and_both_paths(sample_pcaps: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sample_pcaps / name
    whole = reassemble_file(path)
    for window_bytes in (700, 20_000):
        cut = reassemble_file(path, window_bytes)
        assert facts(cut) == facts(whole)
        assert columns(cut) == columns(whole)
    monkeypatch.setattr(segment_batch.SegmentBatch, "_simple_rows", lambda self, rows: np.zeros(len(rows), bool))
    careful = reassemble_file(path, 5000)
    assert facts(careful) == facts(whole)
    assert columns(careful) == columns(whole)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", [SMALL, "ffmpeg_publish_h264_aac.pcap", "republish_same_name.pcap"])
def test_windows_of_reordered_packets(sample_pcaps: Path, name: str, seed: int) -> None:
    """An acknowledgement may be recorded before the data it acknowledges, even in an earlier window."""
    packets = capture_rewriting.read(sample_pcaps / name)
    data = capture_rewriting.pcap(
        capture_rewriting.build([*packets[:3], *capture_rewriting.shuffle(packets[3:], seed, reach=4)])
    )
    whole = reassemble_bytes([data])
    for window_bytes in (3000, 20_000):
        cut = reassemble_bytes([data], window_bytes)
        assert facts(cut) == facts(whole)
        assert columns(cut) == columns(whole)


RELATIONS: dict[str, Callable[[Sequence[Packet]], list[Packet]]] = {
    "segments of 100": lambda packets: capture_rewriting.resegment(packets, 100),
    "segments of 7": lambda packets: capture_rewriting.resegment(packets, 7),
    "doubled": capture_rewriting.duplicate,
    "shuffled nearby": lambda packets: capture_rewriting.shuffle(packets, 1, reach=30),
    "shuffled": lambda packets: capture_rewriting.shuffle(packets, 2),
    "doubled and shuffled": lambda packets: capture_rewriting.shuffle(capture_rewriting.duplicate(packets), 3),
    "wrapping at once": lambda packets: capture_rewriting.wrap_soon(packets, 0),
    "wrapping later": lambda packets: capture_rewriting.wrap_soon(packets, 60_000),
    "wrapping and shuffled": lambda packets: capture_rewriting.shuffle(capture_rewriting.wrap_soon(packets, 9_000), 4),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [SMALL, "denied_and_unknown_app.pcap"])
def test_other_ways_of_transport(sample_pcaps: Path, name: str, relation: str) -> None:
    packets = capture_rewriting.read(sample_pcaps / name)
    changed = RELATIONS[relation](packets)
    assert len(changed) >= len(packets)
    result = reassemble(changed, 30_000)
    assert by_ends(result) == by_ends(reassemble(packets))
    assert all(not direction.gaps and not direction.conflicts for talk in result.talks for direction in talk.directions)


@pytest.mark.parametrize("link", LINKS)
def test_other_links(sample_pcaps: Path, link: str) -> None:
    packets = capture_rewriting.read(sample_pcaps / SMALL)
    plain = by_ends(reassemble(packets))
    wrapped = reassemble_bytes([capture_rewriting.pcap(capture_rewriting.build(packets, link), LINKS[link][0])], 50_000)
    assert by_ends(wrapped) == plain


def test_other_ip_version(sample_pcaps: Path) -> None:
    packets = capture_rewriting.read(sample_pcaps / SMALL)
    plain, six = (
        reassemble(packets),
        reassemble_bytes([capture_rewriting.pcap(capture_rewriting.build(packets, ip=as_ipv6))]),
    )
    assert six.streams == plain.streams
    ends = [talk.connection.a for talk in plain.talks]
    assert [talk.connection.a for talk in six.talks] == [(f"fd00::{_hex(host)}", port) for host, port in ends]


def _hex(address: str) -> str:
    a, b, c, d = map(int, address.split("."))
    return f"{a << 8 | b:x}:{c << 8 | d:x}"


@pytest.mark.parametrize("form", ["pcapng", "gzip", "big endian nanoseconds"])
def test_other_file_formats(sample_pcaps: Path, form: str) -> None:
    packets = capture_rewriting.read(sample_pcaps / SMALL)
    frames = capture_rewriting.build(packets)
    changed = {
        "pcapng": lambda: capture_rewriting.pcapng(frames),
        "gzip": lambda: capture_rewriting.gzipped(capture_rewriting.pcap(frames), 3),
        "big endian nanoseconds": lambda: capture_rewriting.pcap(frames, order=">", nano=True),
    }[form]()
    plain, other = reassemble(packets, 9000), reassemble_bytes([changed], 9000)
    assert facts(other) == facts(plain)
    assert columns(other) == columns(plain)


@pytest.mark.parametrize("parts", [2, 7])
def test_split_into_files_and_resumed(sample_pcaps: Path, parts: int) -> None:
    """Files of one recording, fed one after the other; and with the state carried over by value in between."""
    frames = capture_rewriting.records((sample_pcaps / "lossy_mtu1500_server_side.pcap").read_bytes())
    whole = reassemble_bytes([capture_rewriting.pcap(frames)])
    step = len(frames) // parts + 1
    files = [capture_rewriting.pcap(frames[at : at + step]) for at in range(0, len(frames), step)]
    assert by_ends(reassemble_bytes(files)) == by_ends(whole)
    assert by_ends_resumed(files) == by_ends(whole)


def by_ends_resumed(files: list[bytes]) -> dict[tuple[str, int, str, int], bytes]:
    import io

    from rtmp_spark.capture.files.open_capture import open_capture
    from rtmp_spark.capture.packets.dissector import Dissector
    from rtmp_spark.capture.tcp.stream_items import Closed, Item, Run

    found: dict[tuple[str, int, str, int], bytes] = {}

    def keep(items: list[Item]) -> None:
        for item in items:
            there, back = item.connection.a, item.connection.b
            for key in ((*there, *back), (*back, *there)):
                found.setdefault(key, b"")
            if isinstance(item, Run):
                key = (*there, *back) if item.direction == 0 else (*back, *there)
                assert len(found[key]) == item.offset
                found[key] += item.data
            if isinstance(item, Closed):
                for stream in item.connection.streams:
                    parts = stream.delivered_bytes + stream.duplicate_bytes + stream.conflict_bytes
                    assert stream.captured_bytes == parts + stream.skipped_bytes

    states: list[list[Any]] = []
    for number, data in enumerate(files):
        reassembler, dissector = Reassembler(), Dissector()
        for state in states:
            reassembler.resume(state)
        for block in open_capture(io.BytesIO(data), window_bytes=4000):
            keep(reassembler.feed(dissector.segments(block), number))
        states = [json.loads(json.dumps(connection.state())) for connection in reassembler.connections]
    keep(reassembler.finish())
    return found


def test_one_lost_packet_loses_only_its_bytes(sample_pcaps: Path) -> None:
    """`capture_gap_lost_packets` is `capture_gap_full` without frames 150, 151 and 260-262."""
    packets = capture_rewriting.read(sample_pcaps / "capture_gap_full.pcap")
    whole = reassemble(packets).streams[0]
    result = reassemble_file(sample_pcaps / "capture_gap_lost_packets.pcap")
    (talked,) = result.talks
    lost = [packets[n - 1] for n in (150, 151, 260, 261, 262)]
    sent = next(p for p in packets if p.src == lost[0].src)
    missing = {
        ((p.seq - sent.seq - 1) & MASK) + at for p in lost if p.sender == sent.sender for at in range(len(p.payload))
    }
    holes = {at for start, size in talked.directions[0].holes for at in range(start, start + size)}
    assert holes == missing and len(missing) == 233
    assert all(gap.acked for gap in talked.directions[0].gaps)
    assert [
        (at in holes) or found == true for at, (found, true) in enumerate(zip(talked.bytes[0], whole[0], strict=True))
    ].count(False) == 0
    assert talked.bytes[1] == whole[1]


def test_damaged_state_is_refused() -> None:
    from rtmp_spark.codec.errors import CaptureError

    good = Connection(bytes(36), 0).state()
    assert Connection.resume(good, 3).state() == good
    version, *rest, side = good
    for bad in ([], [version], good[:-1], [version + 98, *rest, side], [version, *rest, side[:-1]], [*good, side]):
        with pytest.raises(CaptureError):
            Connection.resume(bad, 0)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_segments_agree_with_the_naive_reassembly(data: st.DataObject) -> None:
    """Pieces of one stream in any order, overlapping, repeated, some missing."""
    said = random.Random(5).randbytes(400)
    talk = Talk(isn=(data.draw(st.integers(0, MASK)), 9)).open()
    base = talk.seq[0]
    covered = set()
    for _ in range(data.draw(st.integers(1, 25))):
        start = data.draw(st.integers(0, 399))
        size = data.draw(st.integers(2, 60))  # one byte alone may be a keep-alive
        piece = said[start : start + size]
        covered |= set(range(start, start + len(piece)))
        talk.add(0, ACK, piece, seq=base + start)
    if data.draw(st.booleans()):
        talk.add(0, FIN | ACK, seq=base + max(covered) + 1)
    packets = talk.packets
    (talked,) = reassemble(packets, data.draw(st.sampled_from([60, 200, 1 << 16]))).talks
    direction = talked.directions[0]
    end = max(covered) + 1
    assert len(direction.data) == end
    holes = {at for start, size in direction.holes for at in range(start, start + size)}
    assert holes == set(range(end)) - covered
    assert all(direction.data[at] == said[at] for at in covered)
    assert direction.conflicts == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_packets_never_raise_and_always_add_up(seed: int, count: int) -> None:
    """Flags, numbers and bytes at random between few endpoints; `gather` asserts the accounting."""
    dice = random.Random(seed)
    packets = []
    for n in range(count):
        a, b = dice.sample([("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)], 2)
        near = dice.choice([0, 1000, MASK - 50])
        packets.append(
            Packet(
                1_700_000_000_000_000_000 + dice.randrange(-(10**11), 10**11) * dice.choice([0, 1]) + n, *a, *b,
                (near + dice.randrange(100)) & MASK, (near + dice.randrange(100)) & MASK, dice.randrange(32),
                dice.choice([0, 100, 65535]), dice.randbytes(dice.choice([0, 0, 1, 10, 50])),
            )
        )  # fmt: skip
    # A stray acknowledgement may announce a gap of gigabytes: the items are checked, not written out.
    from rtmp_spark.capture.packets.dissector import Dissector
    from rtmp_spark.capture.tcp.stream_items import Closed

    dissector, reassembler = Dissector(), Reassembler()
    items = []
    import io

    from rtmp_spark.capture.files.open_capture import open_capture

    data = capture_rewriting.pcap([(p.ts_ns, capture_rewriting.ethernet(as_ip(p))) for p in packets], nano=True)
    for block in open_capture(io.BytesIO(data), window_bytes=dice.choice([100, 1000, 100_000])):
        items += reassembler.feed(dissector.segments(block))
    items += reassembler.finish()
    closed = [item.connection for item in items if isinstance(item, Closed)]
    assert sum(stream.packets for connection in closed for stream in connection.streams) == count
    for stream in (stream for connection in closed for stream in connection.streams):
        parts = stream.delivered_bytes + stream.duplicate_bytes + stream.conflict_bytes + stream.skipped_bytes
        assert stream.captured_bytes == parts
