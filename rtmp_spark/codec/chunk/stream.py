"""What one csid remembers: its last header, its clock, and the message that is under way on it.

The clock adds up what headers say, times of fmt 0 and deltas in 24 or 32 bits, to a time that does not wrap; and it
knows the senders who mean something else by these fields than the specification does. It reports what it finds wrong
and never refuses a time.
"""

from __future__ import annotations

from ..errors import ViolationCode
from ..events import Event, Violation

EXTENDED = 0xFFFFFF
REPEAT_MS = 1000  # an fmt 0 time up to this is read as the delta of a following fmt 3
WRAP31_MS = 60_000  # SRS masks to 31 bits: a drop of 2^31 by less than this is its wrap
ABSOLUTE_MS = 10_000  # so near to a time before, a delta of hours is a time itself


class ChunkStream:
    """What one csid remembers, and the message that is under way on it."""

    __slots__ = (
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
        self.basic_bytes = 1 + (csid >= 64) + (csid >= 320)  # of a continuation's basic header, as its sender has it
        self.timestamp = 0  # ms, unwrapped
        self.based = False  # an absolute time was seen
        self.drifted = False  # deltas were lost since
        self.field = 0  # the last 24-bit timestamp field
        self.ext: int | None = None  # the last extended timestamp, when that field was 0xFFFFFF
        self.delta = 0
        self.absolute = False  # the last header told a time: fmt 0, or a delta that can only be one
        self.length = 0  # -1: not known
        self.type_id = 0
        self.stream_id = 0
        self.first = -1  # byte of the last payload
        self.stale = False  # a header that changed these may have been lost
        self.orphan = False  # the rest of a message whose beginning was lost is still to come
        self.active = False
        self.got = 0
        self.start = 0
        self.fmt = 0
        self.chunks = 0
        self.chunk_size = 0
        self.rule = ""
        self.used_delta: int | None = None
        self.dropping = False  # over budget: counted, no longer kept
        self.flagged = False
        self.payload = bytearray()

    def set_time(self, value: int) -> None:
        """An absolute time (fmt 0): of all that have these 32 bits, the one nearest to the time before."""
        if self.based:
            step = (value - self.timestamp + 0x80000000 & 0xFFFFFFFF) - 0x80000000
            if step <= WRAP31_MS - 0x80000000:
                step += 0x80000000
            self.timestamp += step
        else:
            self.timestamp = value
            self.based = True
        self.absolute = True
        self.drifted = False

    def take_time(self, fmt: int, field: int, ext: int | None, start: int, out: list[Event]) -> None:
        """The time of a message that begins at `start` with these fields (RTMP 1.0 5.3.1.2, 5.3.1.3)."""
        value = field if ext is None else ext
        absolute = False
        if ext is not None and ext < EXTENDED and fmt != 3:
            _flag(
                out,
                ViolationCode.CHUNK_EXT_TS_NEEDLESS,
                start,
                f"an extended timestamp for {ext}, which fits into 24 bits",
            )
        if fmt == 0:
            self.rule = "absolute" if ext is None else "ext_absolute"
            self.used_delta = None
            self.set_time(value)
            self.field = field
            self.ext = ext
            return
        if fmt == 3 and (ext is None or ext == self.ext):
            self.rule = "repeat_delta"
            if not self.absolute:
                value = self.delta
            elif value > REPEAT_MS:
                value = 0
                self.rule = "repeat_zero"
        else:
            self.rule = "delta" if ext is None else "ext_delta"
            if ext is not None:
                absolute = fmt != 3 and self._is_absolute(ext)
                if absolute:
                    _flag(
                        out,
                        ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE,
                        start,
                        f"the extended delta {ext} makes sense only as an absolute time",
                    )
                if ext >= 0x80000000:
                    value = ext - 0x100000000
                    _flag(
                        out,
                        ViolationCode.CHUNK_DELTA_NEGATIVE,
                        start,
                        f"a delta of {ext} is a step back of {-value} ms",
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
        """Is this extended delta near the time before, as it is or as the last header had it?"""
        if self.timestamp > ABSOLUTE_MS and abs(delta - (self.timestamp & 0xFFFFFFFF)) <= ABSOLUTE_MS:
            return True
        return self.absolute and self.ext is not None and abs(delta - self.ext) <= ABSOLUTE_MS


def _flag(out: list[Event], code: ViolationCode, start: int, detail: str) -> None:
    out.append(Violation(code, code.severity, start, detail, start))
