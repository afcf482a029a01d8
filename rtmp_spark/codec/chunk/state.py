"""What one direction remembers between chunks: chunk size, chunk streams, and how its sender deviates.

All of it is plain data (saved_state.py saves it). Three methods are the answers that a reader of chunks may give
instead of a message: wait for more bytes, give up synchronisation, report a violation. No protocol rule is here.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ViolationCode
from ..events import Event, Violation
from ..limits import DEFAULT_LIMITS, Limits
from ..message import DEFAULT_CHUNK_SIZE
from .stream import ChunkStream

UNKNOWN, PRESENT, ABSENT = "unknown", "present", "absent"  # does this sender repeat the extended timestamp on fmt 3?


class CutChunk(NamedTuple):
    """The chunk that the end of the bytes cut."""

    cs: ChunkStream
    missing: int  # payload bytes


class ChunkState:
    """The state of one direction, and the reader's place in the buffer it is given."""

    __slots__ = (
        "announced", "base", "chunk_size", "cut", "dialect", "held", "high_active", "inferred", "limit_reported",
        "limits", "lost", "need", "old_size", "size_announced", "size_floor", "streams",
    )  # fmt: skip

    def __init__(self, limits: Limits = DEFAULT_LIMITS, chunk_size: int = DEFAULT_CHUNK_SIZE) -> None:
        self.limits = limits
        self.streams: dict[int, ChunkStream] = {}
        self.chunk_size = chunk_size
        self.size_announced = True  # by Set Chunk Size, or it is the default; False if it was inferred
        self.size_floor = 0  # after a resync the size is a guess of at least this; 0 if the size is certain
        self.old_size = 0  # the size before the last change, until a message shows which of the two is in use
        self.dialect = UNKNOWN
        self.held = 0  # payload bytes kept of unfinished messages
        self.announced = 0  # sum of the lengths of unfinished messages
        self.limit_reported = False
        self.high_active: dict[int, ChunkStream] = {}  # csids >= 64 with an unfinished message
        self.inferred = False  # decoding started or continued on an inferred message boundary
        self.base = 0  # stream offset of buffer position 0
        self.need = 1  # bytes the buffer must hold before another attempt is worthwhile
        self.lost = ""  # why synchronisation was lost; empty if it was not
        self.cut: CutChunk | None = None

    def wait(self, position: int) -> int:
        """Say that nothing can be decided before the buffer reaches `position`. Returns -1."""
        self.need = position
        return -1

    def lose(self, why: str) -> int:
        """Say that the header at this place cannot be valid. Returns -1."""
        self.lost = why
        return -1

    def flag(self, out: list[Event], code: ViolationCode, offset: int, detail: str, message: int | None) -> None:
        """Report a violation at a stream offset, of the message that starts at `message`."""
        out.append(Violation(code, code.severity, offset, detail, message))
