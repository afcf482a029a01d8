"""Run the reassembly over packets and collect what it delivers; and a naive reassembly to compare it with.

The naive one keeps every byte of a direction in a dictionary and has no windows, columns or limits.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit import capture_rewriting
from kit.capture_rewriting import MASK, SYN, Packet

from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.tcp import interval_counters as intervals
from rtmp_spark.capture.tcp.frame_numbers import frame_no
from rtmp_spark.capture.tcp.interval_counters import Intervals
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.stream_items import Closed, Conflict, End, Gap, Item, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits


@dataclass
class Direction:
    data: bytearray = field(default_factory=bytearray)  # gaps as zeros
    places: list[tuple[int, int]] = field(default_factory=list)  # (stream offset, frame) of every piece
    gaps: list[Gap] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    end: End | None = None

    @property
    def holes(self) -> list[tuple[int, int]]:
        return [(gap.offset, gap.length) for gap in self.gaps]


@dataclass
class Talked:
    connection: Connection
    directions: tuple[Direction, Direction] = field(default_factory=lambda: (Direction(), Direction()))
    closed: bool = False

    @property
    def bytes(self) -> tuple[bytes, bytes]:
        return bytes(self.directions[0].data), bytes(self.directions[1].data)


@dataclass
class Result:
    talks: list[Talked]
    intervals: Intervals
    reassembler: Reassembler

    @property
    def streams(self) -> list[tuple[bytes, bytes]]:
        return [talk.bytes for talk in self.talks]


def gather(items: Sequence[Item], into: dict[int, Talked]) -> None:
    """Join the items of each connection, and assert what must hold for every item."""
    for item in items:
        talk = into.setdefault(item.connection.number, Talked(item.connection))
        assert not talk.closed, "an item after Closed"
        if isinstance(item, Closed):
            talk.closed = True
            for stream in item.connection.streams:
                parts = stream.delivered_bytes + stream.duplicate_bytes + stream.conflict_bytes + stream.skipped_bytes
                assert stream.captured_bytes == parts
            continue
        direction = talk.directions[item.direction]
        assert direction.end is None, "an item after the end of its direction"
        if isinstance(item, Run):
            assert item.offset == len(direction.data) == item.seg_offsets[0]
            assert len(item.data) > 0
            direction.data += item.data
            frames = map(frame_no, item.seg_frames.tolist())
            direction.places += list(zip(item.seg_offsets.tolist(), frames, strict=True))
        elif isinstance(item, Gap):
            assert item.offset == len(direction.data)
            assert item.length > 0
            direction.data += bytes(item.length)
            direction.gaps.append(item)
        elif isinstance(item, Conflict):
            direction.conflicts.append(item)
        else:
            assert item.offset == len(direction.data)
            direction.end = item


def reassemble_bytes(files: Sequence[bytes], window_bytes: int = 1 << 20, limits: Limits = DEFAULT_LIMITS) -> Result:
    """Reassemble capture files, in this order, as one recording."""
    reassembler = Reassembler(limits)
    talks: dict[int, Talked] = {}
    parts = []
    for number, data in enumerate(files):
        dissector = Dissector()
        for block in open_capture(io.BytesIO(data), window_bytes=window_bytes):
            gather(reassembler.feed(dissector.segments(block), number), talks)
            parts.append(reassembler.take_intervals())
    gather(reassembler.finish(), talks)
    parts.append(reassembler.take_intervals())
    assert all(talk.closed for talk in talks.values())
    return Result([talks[n] for n in sorted(talks)], intervals.merge(parts), reassembler)


def reassemble(
    packets: Sequence[Packet], window_bytes: int = 1 << 20, limits: Limits = DEFAULT_LIMITS, *, snaplen: int = 0
) -> Result:
    return reassemble_bytes(
        [capture_rewriting.pcap(capture_rewriting.build(packets), snaplen=snaplen)], window_bytes, limits
    )


def reassemble_file(path: Path, window_bytes: int = 1 << 20) -> Result:
    return reassemble_bytes([path.read_bytes()], window_bytes)


def naive(packets: Sequence[Packet]) -> dict[tuple[str, int, str, int], bytes]:
    """The bytes of every direction that begins with a SYN; the first byte for an offset wins."""
    first = {(p.src, p.sport, p.dst, p.dport): p.seq for p in packets if p.flags & SYN}
    places: dict[tuple[str, int, str, int], dict[int, int]] = {key: {} for key in first}
    for packet in packets:
        key = (packet.src, packet.sport, packet.dst, packet.dport)
        if key in first:
            begin = (packet.seq - first[key] - (0 if packet.flags & SYN else 1)) & MASK
            for at, byte in enumerate(packet.payload):
                if begin + at < 1 << 31:  # else a keep-alive before the first byte
                    places[key].setdefault(begin + at, byte)
    assert all(sorted(found) == list(range(len(found))) for found in places.values()), "naive cannot do gaps"
    return {key: bytes(found[n] for n in range(len(found))) for key, found in places.items()}


def by_ends(result: Result) -> dict[tuple[str, int, str, int], bytes]:
    found = {}
    for talk in result.talks:
        (a, b), (there, back) = (talk.connection.a, talk.connection.b), talk.bytes
        found[(*a, *b)] = there
        found[(*b, *a)] = back
    return found
