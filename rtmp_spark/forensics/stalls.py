"""Pauses in the arrival of coded frames, and what they were: TIME_STALL.

A pause is one of the whole stream, or of one track while the other one goes on. Whether media time leapt with a pause,
stood still, or was caught up in a burst is seen in the frames after it; whether TCP struggled is known when the seconds
of the connection are final, so the cause is told at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from rtmp_spark.capture.findings import NETWORK, SENDER, Finding
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.flow import RECEIVER

STALL_US = 1_000_000
TRACK_STALL_US = 2_000_000
_WATCH_US = 2_000_000  # how long after a pause a burst is looked for
_MOST_KEPT = 256
_LISTED = 5
TRACK_WORDS = {"video": ("picture", "sound"), "audio": ("sound", "picture")}  # what stopped, what went on


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


class TrackStall(NamedTuple):
    """One track was silent while the other went on; `to_the_end`: it never came back."""

    kind: str
    length_us: int
    to_the_end: bool
    ts: int
    msg_no: int | None
    frame: int | None


class Stalls:
    """The pauses of one stream, and those of its tracks."""

    __slots__ = ("count", "kept", "of_tracks", "total_us", "watched")

    def __init__(self) -> None:
        self.count = self.total_us = 0
        self.of_tracks: list[TrackStall] = []
        self.kept: list[Stall] = []
        self.watched: Stall | None = None  # what comes after it tells what it was

    def begin(self, stall: Stall) -> None:
        self.count += 1
        self.total_us += stall.length_us
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(stall)
            self.watched = stall

    def begin_track(self, stall: TrackStall) -> None:
        self.count += 1
        self.total_us += stall.length_us
        if len(self.of_tracks) < _MOST_KEPT:
            self.of_tracks.append(stall)

    def follow(self, ts: int, dts: int) -> None:
        if self.watched is not None and not self.watched.follow(ts, dts):
            self.watched = None

    def interrupt(self) -> None:
        self.watched = None

    def findings(
        self,
        direction: str,
        stream_id: int,
        troubled: Collection[int],
        waits: Sequence[Sequence[int]] = (),
        closed: Mapping[int, float] = {},
    ) -> list[Finding]:
        """`troubled` are the seconds in which TCP sent again, `closed` those in which this direction met a closed
        window, with the ms; a pause inside one of `waits` (from, to) is told as what it was: waiting for an
        acknowledgement."""
        if not self.kept:
            return []
        told = [s for s in self.kept if not any(s.ts_before < end and begin < s.ts_after for begin, end in waits)]
        by_cause: dict[tuple[str | None, str], list[Stall]] = {}
        for stall in told:
            by_cause.setdefault(_cause(stall, direction, troubled, closed), []).append(stall)
        found = []
        for (at_fault, why), stalls in by_cause.items():
            detail = f"no coded frame for {_seconds([stall.length_us for stall in stalls])}; {why}"
            found += [
                Finding(
                    ViolationCode.TIME_STALL, detail, None, at_fault, direction, stream_id, stall.msg_no, stall.frame,
                    stall.ts_after, expected="a frame at least every second",
                    actual=f"{stall.length_us / 1e6:.1f} s without one",
                )
                for stall in stalls
            ]  # fmt: skip
        return sorted(found, key=lambda finding: finding.ts or 0)

    def track_findings(self, direction: str, stream_id: int, author: str | None) -> list[Finding]:
        if not self.of_tracks:
            return []
        found = []
        by_kind: dict[tuple[str, bool], list[TrackStall]] = {}
        for stall in self.of_tracks:
            by_kind.setdefault((stall.kind, stall.to_the_end), []).append(stall)
        for (kind, to_the_end), stalls in by_kind.items():
            stopped, went_on = TRACK_WORDS[kind]
            lengths = _seconds([stall.length_us for stall in stalls])
            detail = f"no {stopped} for {'the last ' if to_the_end else ''}{lengths} while the {went_on} went on"
            found += [
                Finding(
                    ViolationCode.TIME_STALL, detail, None, author, direction, stream_id, stall.msg_no, stall.frame,
                    stall.ts, expected=f"{stopped} as long as there is {went_on}",
                    actual=f"{stall.length_us / 1e6:.1f} s without",
                )
                for stall in stalls
            ]  # fmt: skip
        return sorted(found, key=lambda finding: finding.ts or 0)

    def state(self) -> list[Any]:
        watched = self.kept.index(self.watched) if self.watched is not None else None
        return [self.count, self.total_us, [stall.state() for stall in self.kept], watched, self.of_tracks]

    @classmethod
    def resume(cls, state: list[Any]) -> Stalls:
        stalls = cls()
        stalls.count, stalls.total_us, kept, watched, of_tracks = state
        stalls.kept = [Stall.resume(one) for one in kept]
        stalls.of_tracks = [TrackStall(*one) for one in of_tracks]
        stalls.watched = None if watched is None else stalls.kept[watched]
        return stalls


def _any_within(seconds: Collection[int], first: int, last: int) -> bool:
    """Whichever way is shorter: a pause may last for years where the clock of a recorder jumped."""
    if last - first < len(seconds):
        return any(second in seconds for second in range(first, last + 1))
    return any(first <= second <= last for second in seconds)


def _seconds(lengths_us: Sequence[int]) -> str:
    """1.2 s, 3.4 s and 2 more."""
    said = [f"{length / 1e6:.1f} s" for length in lengths_us[:_LISTED]]
    more = len(lengths_us) - len(said)
    if more:
        said.append(f"{more} more")
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _closed_within(stall: Stall, closed: Mapping[int, float]) -> float:
    """Of a second at its edge no more counts than the stall has of it: the burst behind a stall closes windows, too."""
    first, last = stall.ts_before // 1_000_000, stall.ts_after // 1_000_000
    few = range(first, last + 1) if last - first < len(closed) else [s for s in closed if first <= s <= last]

    def part_ms(second: int) -> float:
        begin, end = max(stall.ts_before, second * 1_000_000), min(stall.ts_after, (second + 1) * 1_000_000)
        return (end - begin) / 1000

    return sum(min(closed.get(second, 0.0), part_ms(second)) for second in few)


def _cause(
    stall: Stall, direction: str, troubled: Collection[int], closed: Mapping[int, float]
) -> tuple[str | None, str]:
    """Who is at fault, and why."""
    half_ms = stall.length_us / 2000
    sender = SENDER[direction]
    shut_ms = _closed_within(stall, closed)
    if shut_ms >= half_ms:  # whatever the sender did then: it could not send
        receiver = RECEIVER[direction]
        return receiver, f"the window was closed for most of it: the {receiver} took nothing, and the {sender} waited"
    if stall.leap_ms >= half_ms:  # a server passes on what its publisher made
        return sender if direction == "c2s" else None, "media time leaps with it: the encoder made nothing"
    if stall.lead_ms >= half_ms:
        if _any_within(troubled, stall.ts_before // 1_000_000, stall.ts_after // 1_000_000):
            return NETWORK, "a burst caught it up, and TCP sent again inside: the network held it up"
        trouble = "was open for most of it" if shut_ms else "shows no trouble"  # a burst can close a window, too
        return sender, f"a burst caught it up, and TCP {trouble}: the sender held it back"
    if direction == "s2c":  # a player on a slow line looks like this, and the server has no clock of its own
        return None, "it went on where it had stopped, and nothing caught it up: this way is slower than the stream"
    return sender, "media time did not go on: the encoder's clock stood still"
