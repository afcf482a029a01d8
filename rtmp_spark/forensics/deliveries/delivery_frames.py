"""The media messages of one stream as columns of numbers, for matching."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.thresholds import CACHE_US
from rtmp_spark.schema import column_names

CODED, CONFIG = 1, 2  # kinds of media messages; 0 is any other

# Indices of the columns of `messages` in rows without uid and direction.
_COLUMNS = column_names("messages")[2:]
MESSAGE_NO = _COLUMNS.index("msg_no")
TYPE_ID = _COLUMNS.index("type_id")
STREAM_ID = _COLUMNS.index("stream_id")
LENGTH = _COLUMNS.index("length")
_TS, _TIMESTAMP, _CRC = (_COLUMNS.index(name) for name in ("ts_last", "timestamp", "payload_crc32"))


class Frames:
    """The media messages of one direction and message stream id, in order."""

    __slots__ = ("dts", "key", "kind", "ts")

    def __init__(self) -> None:
        self.key = array("Q")  # length, type and checksum in one number
        self.ts = array("q")  # arrival, microseconds
        self.dts = array("q")  # timestamp, ms
        self.kind = array("b")  # CODED, CONFIG or 0

    def add(self, row: Row, kind: int) -> None:
        """Append a row of `messages` without uid and direction."""
        self.key.append((row[LENGTH] << 8 | row[TYPE_ID]) << 32 | row[_CRC])
        self.ts.append(row[_TS])
        self.dts.append(row[_TIMESTAMP])
        self.kind.append(kind)

    @classmethod
    def filled(cls, *columns: npt.NDArray[np.generic]) -> Frames:
        """Frames from the columns key, ts, dts and kind, with the item types of the arrays."""
        own = cls()
        for target, column in zip((own.key, own.ts, own.dts, own.kind), columns):
            target.frombytes(column.tobytes())
        return own

    def type_id(self, index: int) -> int:
        """The message type of a frame, from its key."""
        return self.key[index] >> 32 & 0xFF

    def within_reach(self, play_start: int, play_end: int) -> Frames:
        """The frames that a player of that time can have received: those of the time, those that a server may have
        cached, and all configurations from before."""
        ts, kind = np.array(self.ts), np.array(self.kind)
        chosen = (ts <= play_end) & ((ts >= play_start - CACHE_US) | (kind == CONFIG))
        if chosen.all():
            return self
        return Frames.filled(np.array(self.key)[chosen], ts[chosen], np.array(self.dts)[chosen], kind[chosen])

    def between(self, start: int, end: int) -> Frames:
        """The frames that arrived from `start` to `end`, both included."""
        first, last = bisect_left(self.ts, start), bisect_left(self.ts, end + 1)
        part = Frames()
        for name in self.__slots__:
            setattr(part, name, getattr(self, name)[first:last])
        return part

    def of_kind(self, kind: int) -> list[int]:
        """Indices of the messages of a kind."""
        chosen: list[int] = np.flatnonzero(np.array(self.kind) == kind).tolist()
        return chosen

    def __len__(self) -> int:
        return len(self.key)


def types_of_keys(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The message types of frames, from their keys."""
    return keys >> np.uint64(32) & np.uint64(0xFF)


class Stream(NamedTuple):
    """One published or played stream with its frames."""

    uid: str
    stream_id: int
    ts_start: int
    frames: Frames
    ts_end: int = 1 << 62
    name: str | None = None
    direction: str | None = None
