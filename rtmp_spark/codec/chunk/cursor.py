"""The place where a chunk is read: bytes, position, and the list that receives the events."""

from __future__ import annotations

from dataclasses import dataclass

from ..events import Event


@dataclass(slots=True)
class Cursor:
    buf: bytes
    pos: int  # of the chunk's first byte
    end: int  # of the bytes that have arrived
    final: bool  # no more bytes will follow: the stream ends here, or bytes are missing
    out: list[Event]
