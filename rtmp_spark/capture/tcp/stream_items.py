"""What reassembly delivers: bytes in order, gaps, conflicts and ends, as plain values.

`frame` is a frame number of the recording (frame_numbers.py). `direction` is 0 from the originator of the connection
and 1 to it.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.tcp.half_stream import Piece, Stream
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.errors import ViolationCode


class Run(NamedTuple):
    """Contiguous bytes; segment i holds the bytes from seg_offsets[i] to seg_offsets[i + 1]."""

    connection: Connection
    direction: int
    offset: int
    data: bytes
    seg_offsets: Ints
    seg_frames: Ints
    seg_ts_ns: Ints

    def locate(self, offset: int) -> tuple[int, int]:
        """Frame number and time of the packet with the byte at this stream offset."""
        index = int(np.searchsorted(self.seg_offsets, offset, "right")) - 1
        return int(self.seg_frames[index]), int(self.seg_ts_ns[index])


class Gap(NamedTuple):
    """Bytes that no packet contains. `frame` is the packet after them, or the last packet if none came after."""

    connection: Connection
    direction: int
    offset: int
    length: int
    frame: int
    ts_ns: int
    acked: bool | None  # by the receiver, so the capture tool dropped them; None: its packets were not recorded
    cut: bool  # cut off by the snapshot length
    outer: bool = False  # bytes of a wrapping (TLS, HTTP): the loss inside it is reported as `Lost`
    exact: bool = True  # False: the length is unknown


class Conflict(NamedTuple):
    """Different bytes for an offset that had some; the first ones were delivered."""

    connection: Connection
    direction: int
    offset: int
    length: int
    frame: int
    ts_ns: int
    crc_first: int
    crc_second: int
    intact: bool | None = None  # whether the TCP checksum of the second packet is right


class Lost(NamedTuple):
    """Bytes inside a wrapping (TLS, HTTP) that cannot be read although packets may hold some of them, and why."""

    connection: Connection
    direction: int
    offset: int
    length: int  # estimated, at least 1
    frame: int
    ts_ns: int
    code: ViolationCode
    detail: str
    outer: bool = False  # bytes of a wrapping around another one, whose own loss is reported separately


class End(NamedTuple):
    """The end of a direction."""

    connection: Connection
    direction: int
    kind: str  # fin, rst, open
    offset: int
    frame: int
    ts_ns: int


class Closed(NamedTuple):
    """The last item of a connection: its numbers are final."""

    connection: Connection
    direction: int = -1


Item = Run | Gap | Conflict | Lost | End | Closed


class ItemList:
    """Collects what the streams of one connection deliver, as items in `out`."""

    __slots__ = ("_connection", "out")

    def __init__(self, connection: Connection, out: list[Item]) -> None:
        self._connection = connection
        self.out = out

    def _direction(self, stream: Stream) -> int:
        return stream.side ^ self._connection.origin

    def add_run(self, stream: Stream, data: bytes, offsets: Ints, frames: Ints, times: Ints) -> None:
        if not self._connection.dropped:
            direction = self._direction(stream)
            self.out.append(Run(self._connection, direction, int(offsets[0]), data, offsets, frames, times))

    def add_gap(self, stream: Stream, length: int, after: Piece, acked: bool | None, cut: bool) -> None:
        place = (stream.next_offset, length, after.frame, after.ts_ns)
        self.out.append(Gap(self._connection, self._direction(stream), *place, acked, cut))

    def add_conflict(self, stream: Stream, differing: Piece, before: bytes) -> None:
        offset, end, data, frame, ts_ns, _ = differing
        crcs = crc32(before), crc32(data or b"")
        self.out.append(Conflict(self._connection, self._direction(stream), offset, end - offset, frame, ts_ns, *crcs))

    def finish(self) -> None:
        """No more packets will come: holes become gaps and both streams end."""
        connection = self._connection
        if not connection.dropped:
            for stream in connection.streams:
                stream.finish(self)
                if stream.packets:
                    stream.emitted = True
                    self.out.append(self._end(stream))
        self.out.append(Closed(connection))

    def _end(self, stream: Stream) -> End:
        connection = self._connection
        if stream.fin is not None:
            kind, frame, ts_ns = "fin", stream.fin_frame, stream.fin_ts_ns
        elif connection.reset_side is not None:
            kind, frame, ts_ns = "rst", connection.reset_frame, connection.reset_ts_ns
        else:
            kind, frame, ts_ns = "open", stream.frame_last, stream.ts_last_ns or 0
        return End(connection, self._direction(stream), kind, stream.next_offset, frame, ts_ns)


def item_state(item: Item, keep_data: bool = True) -> list[Any]:
    """An item as plain data, without its connection."""
    if isinstance(item, Run):
        data = base64.b64encode(item.data if keep_data else b"").decode()
        columns = [column.tolist() for column in (item.seg_offsets, item.seg_frames, item.seg_ts_ns)]
        return ["run", item.direction, item.offset, data, *columns]
    if isinstance(item, Gap):
        return ["gap", item.direction, item.offset, item.length, item.frame, item.ts_ns, item.acked, item.cut]
    if isinstance(item, Conflict):
        place = [item.direction, item.offset, item.length, item.frame, item.ts_ns]
        return ["conflict", *place, item.crc_first, item.crc_second, item.intact]
    assert isinstance(item, End)
    return ["end", item.direction, item.kind, item.offset, item.frame, item.ts_ns]


def item_from_state(state: list[Any], connection: Connection) -> Item:
    kind, *values = state
    if kind == "run":
        direction, offset, data, *columns = values
        return Run(connection, direction, offset, base64.b64decode(data), *[np.array(c, np.int64) for c in columns])
    if kind == "gap":
        return Gap(connection, *values)
    return Conflict(connection, *values) if kind == "conflict" else End(connection, *values)
