"""A byte range of one direction of one connection, with the packets that carried it.

It reads the captures again and keeps only the requested bytes. TLS and HTTP are not unwrapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from rtmp_spark.capture.files.open_capture import open_capture, sort_by_first_packet
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.tcp.frame_numbers import frame_no
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.stream_items import Gap, Item, Run
from rtmp_spark.codec.errors import CaptureError

Endpoint = tuple[str, int]
_SLACK_US = 2_000_000  # packet times in the tables may be rounded


@dataclass(frozen=True)
class PacketBytes:
    """Bytes of one packet and their stream offset."""

    offset: int
    data: bytes
    frame: int
    ts: int  # microseconds


@dataclass
class Excerpt:
    """Bytes from `offset` on. `lost` lists the gaps as (offset, length)."""

    offset: int
    packets: list[PacketBytes] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"".join(packet.data for packet in self.packets)

    def packet_at(self, offset: int) -> PacketBytes | None:
        return next((p for p in self.packets if p.offset <= offset < p.offset + len(p.data)), None)


def read_excerpt(
    paths: Iterable[str | os.PathLike[str]],
    client: Endpoint,
    server: Endpoint,
    direction: str,
    since: int,
    start: int,
    stop: int,
) -> Excerpt:
    """Bytes [start, stop) of the connection between these endpoints whose first packet has time `since` (µs)."""
    sender, receiver = (client, server) if direction == "c2s" else (server, client)
    found = Excerpt(start)
    reassembler, dissector = Reassembler(), Dissector()
    for number, (path, _) in enumerate(sort_by_first_packet([os.fspath(p) for p in paths])):
        try:
            capture = open_capture(path)
        except CaptureError:
            continue
        with capture:
            for block in capture:
                items = reassembler.feed(dissector.segments(block), number)
                if _take(items, sender, receiver, since, start, stop, found):
                    return found
    _take(reassembler.finish(), sender, receiver, since, start, stop, found)
    return found


def _take(
    items: list[Item], sender: Endpoint, receiver: Endpoint, since: int, start: int, stop: int, found: Excerpt
) -> bool:
    """Add the bytes that belong to the excerpt. True if the excerpt is complete."""
    for item in items:
        if not isinstance(item, (Run, Gap)):
            continue
        connection = item.connection
        ends = (connection.a, connection.b)
        if (ends[item.direction], ends[1 - item.direction]) != (sender, receiver):
            continue
        if abs((connection.ts_first_ns or 0) // 1000 - since) > _SLACK_US:
            continue
        if isinstance(item, Gap):
            if item.offset < stop and item.offset + item.length > start:
                found.lost.append((item.offset, item.length))
        else:
            _cut(item, start, stop, found)
        if item.offset >= stop or (isinstance(item, Run) and item.offset + len(item.data) >= stop):
            return True
    return False


def _cut(run: Run, start: int, stop: int, found: Excerpt) -> None:
    offsets = [*run.seg_offsets.tolist(), run.offset + len(run.data)]
    for index, (first, last) in enumerate(pairwise(offsets)):
        low, high = max(first, start), min(last, stop)
        if low < high:
            data = run.data[low - run.offset : high - run.offset]
            frame, ts = frame_no(int(run.seg_frames[index])), int(run.seg_ts_ns[index]) // 1000
            found.packets.append(PacketBytes(low, bytes(data), frame, ts))
