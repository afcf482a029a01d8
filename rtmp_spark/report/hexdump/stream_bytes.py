"""The bytes of one direction of one connection between two places, with the packets that brought them.

Reads the captures again and keeps only what was asked for. It sees plain TCP streams: what was wrapped (TLS, HTTP) is
not unwrapped here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from rtmp_spark.capture.files import open_capture, sort_by_first_packet
from rtmp_spark.capture.items import Gap, Item, Run, frame_no
from rtmp_spark.capture.packet import Dissector
from rtmp_spark.capture.tcp import Reassembler
from rtmp_spark.codec.errors import CaptureError

Endpoint = tuple[str, int]
_SLACK_US = 2_000_000  # packet times of a connection may be rounded


@dataclass(frozen=True)
class Brought:
    """Bytes of one packet at their place in the stream."""

    offset: int
    data: bytes
    frame: int
    ts: int  # microseconds


@dataclass
class Excerpt:
    """Contiguous bytes from `offset` on, as far as they go; `lost` lists holes behind it as (offset, length)."""

    offset: int
    packets: list[Brought] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"".join(packet.data for packet in self.packets)

    def packet_at(self, offset: int) -> Brought | None:
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
    """Bytes [start, stop) of the connection between these ends whose first packet came at `since` (microseconds)."""
    sender, receiver = (client, server) if direction == "c2s" else (server, client)
    found = Excerpt(start)
    reassembler, dissector = Reassembler(), Dissector()
    for number, path in enumerate(sort_by_first_packet([os.fspath(p) for p in paths])):
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
    """Keep what belongs to the excerpt; true when it is whole."""
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
            found.packets.append(Brought(low, bytes(data), frame, ts))
