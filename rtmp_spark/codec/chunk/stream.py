"""What one csid remembers: its last header, its clock, and its unfinished message.

The clock turns timestamps (fmt 0) and deltas (fmt 1, 2, 3) of 24 or 32 bits into a timestamp that does not wrap. It
knows the senders that use these fields differently from the specification. It reports violations and accepts every
value.
"""

from __future__ import annotations

from typing import ClassVar

from ..errors import ViolationCode
from ..events import Event, Violation
from ..limits import ABSOLUTE_MS, REPEAT_MS, WRAP31_MS
from .header import EXTENDED, Head


class ChunkStream:
    """The last header of one csid, its clock, and its unfinished message."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "absolute",
        "active",
        "based",
        "basic_bytes",
        "chunk_size",
        "chunks",
        "csid",
        "delta",
        "drifted",
        "dropping",
        "ext",
        "field",
        "first",
        "flagged",
        "fmt",
        "got",
        "length",
        "orphan",
        "payload",
        "rule",
        "stale",
        "start",
        "stream_id",
        "timestamp",
        "type_id",
        "used_delta",
    )

    def __init__(self, csid: int) -> None:
        self.csid = csid
        self.basic_bytes = 1 + (csid >= 64) + (csid >= 320)  # basic header of continuations, as this sender writes it
        self.timestamp = 0  # ms, unwrapped
        self.based = False  # an absolute timestamp was seen
        self.drifted = False  # deltas were lost since then
        self.field = 0  # the last 24-bit timestamp field
        self.ext: int | None = None  # the last extended timestamp, when that field was 0xFFFFFF
        self.delta = 0
        self.absolute = False  # the last header carried a timestamp: fmt 0, or a "delta" that can only be one
        self.length = 0  # -1: unknown
        self.type_id = 0
        self.stream_id = 0
        self.first = -1  # first byte of the last payload; -1: unknown
        self.stale = False  # a header that changed length, type and stream may have been lost
        self.orphan = False  # the rest of a message whose start was lost is still to come
        self.active = False  # a message is unfinished; the fields below describe it
        self.got = 0
        self.start = 0
        self.fmt = 0
        self.chunks = 0
        self.chunk_size = 0
        self.rule = ""
        self.used_delta: int | None = None
        self.dropping = False  # over a limit: payload bytes are counted but not kept
        self.flagged = False
        self.payload = bytearray()

    def set_time(self, value: int) -> None:
        """Set an absolute timestamp (fmt 0): of all with these 32 bits, the one nearest to the previous timestamp."""
        if self.based:
            step = value - self.timestamp
            if not 0 <= step < 0x80000000:
                step = (step + 0x80000000 & 0xFFFFFFFF) - 0x80000000
                if step <= WRAP31_MS - 0x80000000:
                    step += 0x80000000
            self.timestamp += step
        else:
            self.timestamp = value
            self.based = True
        self.absolute = True
        self.drifted = False

    def repeated_delta(self, field: int) -> tuple[str, int]:
        """The timestamp rule and the delta of an fmt 3 header that starts a message.

        After fmt 0, RTMP 1.0 5.3.1.2.4 makes its timestamp the delta. Senders mean that only for small timestamps."""
        if not self.absolute:
            return "repeat_delta", self.delta
        return ("repeat_delta", field) if field <= REPEAT_MS else ("repeat_zero", 0)

    @property
    def head(self) -> Head:
        return Head(self.length, self.type_id, self.stream_id)

    def take_time(self, fmt: int, field: int, ext: int | None, start: int, out: list[Event]) -> None:
        """Set the timestamp of a message that starts at `start` with these fields (RTMP 1.0 5.3.1.2, 5.3.1.3)."""
        value = field if ext is None else ext
        absolute = False
        if ext is not None and ext < EXTENDED and fmt != 3:
            _flag(
                out,
                ViolationCode.CHUNK_EXT_TS_NEEDLESS,
                start,
                f"extended timestamp used for {ext}, which fits in 24 bits",
            )
        if fmt == 0:
            self.rule = "absolute" if ext is None else "ext_absolute"
            self.used_delta = None
            self.set_time(value)
            self.field = field
            self.ext = ext
            return
        if fmt == 3 and (ext is None or ext == self.ext):
            self.rule, value = self.repeated_delta(value)
        else:
            self.rule = "delta" if ext is None else "ext_delta"
            if ext is not None:
                absolute = fmt != 3 and self._is_absolute(ext)
                if absolute:
                    _flag(
                        out,
                        ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE,
                        start,
                        f"extended delta {ext} makes sense only as an absolute timestamp",
                    )
                if ext >= 0x80000000:
                    value = ext - 0x100000000
                    _flag(
                        out,
                        ViolationCode.CHUNK_DELTA_NEGATIVE,
                        start,
                        f"delta {ext} is a step back of {-value} ms",
                    )
        self.absolute = absolute
        self.delta = value
        self.used_delta = value
        self.timestamp += value
        self.field = field
        self.ext = ext
        if self.drifted:
            self.rule = "inferred"

    def _is_absolute(self, delta: int) -> bool:
        """True if this extended delta is close to the previous timestamp, unwrapped or as last sent."""
        if self.timestamp > ABSOLUTE_MS and abs(delta - (self.timestamp & 0xFFFFFFFF)) <= ABSOLUTE_MS:
            return True
        return self.absolute and self.ext is not None and abs(delta - self.ext) <= ABSOLUTE_MS


def _flag(out: list[Event], code: ViolationCode, start: int, detail: str) -> None:
    out.append(Violation(code, code.severity, start, detail, start))
