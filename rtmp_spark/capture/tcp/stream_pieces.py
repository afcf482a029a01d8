"""Bytes that a half of a connection holds: behind a hole, or in order and not handed over yet."""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.codec.limits import HELD_SEGMENT_COST


class Piece(NamedTuple):
    """The bytes of one packet for [offset, end) of a stream."""

    offset: int
    end: int
    data: bytes | None  # None: cut off by the snapshot length
    frame: int
    ts_ns: int
    ip_id: int = 0  # of the IP packet; 0 if it has none

    def part(self, offset: int, end: int) -> Piece:
        data = None if self.data is None else self.data[offset - self.offset : end - self.offset]
        return self._replace(offset=offset, end=end, data=data)

    @property
    def cost(self) -> int:
        return max(HELD_SEGMENT_COST, 0 if self.data is None else len(self.data))


class Ready(NamedTuple):
    """Bytes in order that are not handed over yet."""

    offset: int
    data: bytes
    frame: int
    ts_ns: int
