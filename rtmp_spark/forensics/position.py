"""The position of a message that findings refer to."""

from __future__ import annotations

from typing import NamedTuple

from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS


class Position(NamedTuple):
    """A message, its packet and its time. `frame` includes the number of the file in its upper bits."""

    msg_no: int | None
    frame: int | None
    ts: int | None


NO_POSITION = Position(None, None, None)


def frame_with_file(frame: int, known_at: int) -> int:
    """Add the file number of `known_at` to a packet number of a row, which does not contain it."""
    return known_at >> FRAME_BITS << FRAME_BITS | frame
