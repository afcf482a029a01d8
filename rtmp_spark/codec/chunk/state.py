"""What one direction remembers between chunks: chunk size, chunk streams, habits of its sender.

Everything that is saved of it is plain data. Beside it stand the three answers that whoever reads a chunk may give
instead of a message: wait for more bytes, lose sync, report a fault. No rule of the protocol is here.
"""

from __future__ import annotations

from ..errors import Severity, ViolationCode
from ..events import Event, Violation
from ..limits import DEFAULT_LIMITS, Limits
from ..message import DEFAULT_CHUNK_SIZE
from .stream import ChunkStream

UNKNOWN, PRESENT, ABSENT = "unknown", "present", "absent"  # does fmt 3 repeat the extended timestamp?


class ChunkState:
    """Plain data: with `streams`, all that a decoder saves of its chunks, and where it stands in a buffer."""

    __slots__ = (
        "announced", "base", "chunk_size", "cut", "dialect", "held", "high_active", "inferred", "limit_told",
        "limits", "lost", "need", "old_size", "size_announced", "size_floor", "streams",
    )  # fmt: skip

    def __init__(self, limits: Limits = DEFAULT_LIMITS, chunk_size: int = DEFAULT_CHUNK_SIZE) -> None:
        self.limits = limits
        self.streams: dict[int, ChunkStream] = {}
        self.chunk_size = chunk_size
        self.size_announced = True  # by Set Chunk Size, or it is the default; False: inferred
        self.size_floor = 0  # after a resync: the size is a guess, but at least this; 0 when it is known
        self.old_size = 0  # the size before the last change, while nobody has seen the new one in use
        self.dialect = UNKNOWN
        self.held = 0  # bytes of unfinished messages
        self.announced = 0  # their lengths, as announced
        self.limit_told = False
        self.high_active: dict[int, ChunkStream] = {}  # csids >= 64 with a message under way
        self.inferred = False
        self.base = 0  # stream offset of buffer position 0
        self.need = 1  # bytes the buffer must hold before another try is worth it
        self.lost = ""
        self.cut: tuple[ChunkStream, int] | None = None  # the chunk that the end of the buffer cut, bytes it lacks

    def wait(self, position: int) -> int:
        """Nothing can be said before the buffer reaches beyond `position`."""
        self.need = position
        return -1

    def lose(self, why: str) -> int:
        self.lost = why
        return -1

    def flag(
        self,
        out: list[Event],
        code: ViolationCode,
        offset: int,
        detail: str,
        message: int | None,
        severity: Severity | None = None,
    ) -> None:
        out.append(Violation(code, severity or code.severity, offset, detail, message))
