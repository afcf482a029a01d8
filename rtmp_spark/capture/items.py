"""What reassembly hands over: bytes in order, gaps, conflicts, ends. Plain values.

Frames are numbers of packets in their file; because several files make one recording, the number of the file
stands in the upper bits of every frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtmp_spark.capture.block import Ints
from rtmp_spark.codec.errors import ViolationCode

if TYPE_CHECKING:
    from rtmp_spark.capture.connection import Connection

FRAME_BITS = 40


def frame_no(frame: int) -> int:
    """The 1-based number of the packet in its file, as Wireshark counts."""
    return frame & ((1 << FRAME_BITS) - 1)


def file_no(frame: int) -> int:
    return frame >> FRAME_BITS


@dataclass(slots=True)
class Run:
    """Contiguous bytes; segment i holds the bytes from seg_offsets[i] to seg_offsets[i + 1]."""

    connection: Connection
    direction: int
    offset: int
    data: bytes
    seg_offsets: Ints
    seg_frames: Ints
    seg_ts_ns: Ints

    def locate(self, offset: int) -> tuple[int, int]:
        """The frame and time of the packet that brought this stream offset."""
        index = int(np.searchsorted(self.seg_offsets, offset, "right")) - 1
        return int(self.seg_frames[index]), int(self.seg_ts_ns[index])


@dataclass(slots=True)
class Gap:
    """Bytes in no packet. `frame` is the packet after it, or the last one when nothing came after."""

    connection: Connection
    direction: int
    offset: int
    length: int
    frame: int
    ts_ns: int
    acked: bool | None  # by the receiver, so the recorder lost it; None: the receiver's packets were not recorded
    cut: bool  # beyond the snapshot length
    outer: bool = False  # in a wrapping (TLS, HTTP): what it costs inside comes as `Lost`
    exact: bool = True  # else there is no telling how long it is


@dataclass(slots=True)
class Conflict:
    """Other bytes for a place that had some; the first ones were delivered."""

    connection: Connection
    direction: int
    offset: int
    length: int
    frame: int
    ts_ns: int
    crc_first: int
    crc_second: int
    intact: bool | None = None  # the packet with the other bytes, by its TCP checksum


@dataclass(slots=True)
class Lost:
    """Bytes inside a wrapping (TLS, HTTP) that cannot be read although packets may hold some of them; and why."""

    connection: Connection
    direction: int
    offset: int
    length: int  # as far as it can be told, at least 1
    frame: int
    ts_ns: int
    code: ViolationCode
    detail: str
    outer: bool = False  # bytes of a wrapping around what is read: what is lost inside is told on its own


@dataclass(slots=True)
class End:
    connection: Connection
    direction: int
    kind: str  # fin, rst, open
    offset: int
    frame: int
    ts_ns: int


@dataclass(slots=True)
class Closed:
    """The last item of a connection: its numbers are final."""

    connection: Connection
    direction: int = -1


Item = Run | Gap | Conflict | Lost | End | Closed
