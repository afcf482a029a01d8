"""Pauses in the arrival of coded frames, and what they were: TIME_STALL.

Whether media time leapt with the pause, stood still, or was caught up in a burst is seen in the frames after it;
whether TCP struggled is known when the seconds of the connection are final, so the cause is told at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rtmp_spark.capture.findings import NETWORK, SENDER, Finding
from rtmp_spark.codec.errors import ViolationCode

STALL_US = 1_000_000
_WATCH_US = 2_000_000  # how long after a pause a burst is looked for
_MOST_KEPT = 256


class Stall:
    """One pause. `lead_ms` is how far media time ran ahead of arrival after it, `leap_ms` over the pause itself."""

    __slots__ = ("dts", "frame", "lead_ms", "leap_ms", "msg_no", "ts_after", "ts_before")

    def __init__(
        self, ts_before: int, ts_after: int, leap_ms: int, dts: int, msg_no: int | None, frame: int | None
    ) -> None:
        self.ts_before, self.ts_after = ts_before, ts_after
        self.leap_ms = leap_ms
        self.dts = dts  # of the first frame after it
        self.lead_ms = 0
        self.msg_no, self.frame = msg_no, frame

    @property
    def length_us(self) -> int:
        return self.ts_after - self.ts_before

    def follow(self, ts: int, dts: int) -> bool:
        """A frame after it; False when enough was seen."""
        since = ts - self.ts_after
        if since > _WATCH_US:
            return False
        self.lead_ms = max(self.lead_ms, dts - self.dts - since // 1000)
        return True

    def state(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def resume(cls, state: list[Any]) -> Stall:
        stall = cls(0, 0, 0, 0, None, None)
        for name, value in zip(cls.__slots__, state):
            setattr(stall, name, value)
        return stall


class Stalls:
    """The pauses of one stream."""

    __slots__ = ("_watched", "count", "kept", "total_us")

    def __init__(self) -> None:
        self.count = self.total_us = 0
        self.kept: list[Stall] = []
        self._watched: Stall | None = None

    def begin(self, stall: Stall) -> None:
        self.count += 1
        self.total_us += stall.length_us
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(stall)
            self._watched = stall

    @property
    def watching(self) -> bool:
        return self._watched is not None

    def follow(self, ts: int, dts: int) -> None:
        if self._watched is not None and not self._watched.follow(ts, dts):
            self._watched = None

    def interrupt(self) -> None:
        self._watched = None

    def findings(
        self, direction: str, stream_id: int, troubled: Collection[int], waits: Sequence[Sequence[int]] = ()
    ) -> list[Finding]:
        """`troubled` are the seconds in which TCP of this direction sent again or met a closed window; a pause inside
        one of `waits` (from, to) is told as what it was: waiting for an acknowledgement."""
        told = [s for s in self.kept if not any(s.ts_before < end and begin < s.ts_after for begin, end in waits)]
        return [_finding(stall, direction, stream_id, troubled) for stall in told]

    def state(self) -> list[Any]:
        watched = self.kept.index(self._watched) if self._watched is not None else None
        return [self.count, self.total_us, [stall.state() for stall in self.kept], watched]

    @classmethod
    def resume(cls, state: list[Any]) -> Stalls:
        stalls = cls()
        stalls.count, stalls.total_us, kept, watched = state
        stalls.kept = [Stall.resume(one) for one in kept]
        stalls._watched = None if watched is None else stalls.kept[watched]
        return stalls


def _any_within(seconds: Collection[int], first: int, last: int) -> bool:
    """Whichever way is shorter: a pause may last for years where the clock of a recorder jumped."""
    if last - first < len(seconds):
        return any(second in seconds for second in range(first, last + 1))
    return any(first <= second <= last for second in seconds)


def _finding(stall: Stall, direction: str, stream_id: int, troubled: Collection[int]) -> Finding:
    seconds = stall.length_us / 1e6
    half_ms = stall.length_us / 2000
    at_fault: str | None = SENDER[direction]
    if stall.leap_ms >= half_ms:
        why = f"media time leaps by {stall.leap_ms / 1000:.1f} s with it: the encoder made nothing"
    elif stall.lead_ms >= half_ms:
        first, last = stall.ts_before // 1_000_000, stall.ts_after // 1_000_000
        if _any_within(troubled, first, last):
            at_fault = NETWORK
            why = "a burst caught it up, and TCP sent again or met a closed window inside: the network held it up"
        else:
            why = "a burst caught it up, and TCP shows no trouble: the sender held it back"
    elif direction == "s2c":  # a player on a slow line looks like this, and the server has no clock of its own
        at_fault = None
        why = "it went on where it had stopped, and nothing caught it up: this way is slower than the stream"
    else:
        why = "media time did not go on: the encoder's clock stood still"
    return Finding(
        ViolationCode.TIME_STALL, f"no coded frame for {seconds:.1f} s; {why}", None, at_fault, direction, stream_id,
        stall.msg_no, stall.frame, stall.ts_after, expected="a frame at least every second",
        actual=f"{seconds:.1f} s without one",
    )  # fmt: skip
