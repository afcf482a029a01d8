"""TIME_STALL: times without coded frames, and their cause.

A stall is one of the whole stream, or of one track while the other one continues. The frames after a stall show whether
timestamps jumped with it, continued without a jump, or caught up in a burst. Retransmissions and zero windows are known
only when the TCP statistics of these seconds are final, so the cause is determined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, cast

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import KEPT_STALLS
from rtmp_spark.conversation.facts import RECEIVER, SENDER
from rtmp_spark.forensics.findings import NETWORK, Finding
from rtmp_spark.forensics.thresholds import CATCH_UP_US, ON_TIME_US, STALL_CAUSE_SHARE

_LISTED: Final = 5  # durations that a detail lists one by one
OTHER_KIND: Final = {"video": "audio", "audio": "video"}


class Received(NamedTuple):
    """Coded frames, their bytes, and the time in which they arrived, without pauses that the client requested."""

    frames: int
    bytes: int
    wall_us: int


NOTHING: Final = Received(0, 0, 0)


class Stall:
    """A stall of the whole stream. `leap_ms` is how far timestamps advanced during the stall, `lead_ms` how far they
    then got ahead of arrival, `dts` belongs to the first frame after it. `received` is what came before it. `on_time`
    is the kind of track whose frame interval spans the stall without a delay; `delayed`: with one."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "delayed", "dts", "frame", "lead_ms", "leap_ms", "msg_no", "on_time", "received", "ts_after", "ts_before",
    )  # fmt: skip

    def __init__(
        self,
        ts_before: int,
        ts_after: int,
        leap_ms: int,
        dts: int,
        msg_no: int | None,
        frame: int | None,
        received: Received = NOTHING,
    ) -> None:
        self.ts_before, self.ts_after = ts_before, ts_after
        self.leap_ms = leap_ms
        self.dts = dts
        self.lead_ms = 0
        self.msg_no, self.frame = msg_no, frame
        self.on_time: str | None = None
        self.delayed = False
        self.received = received

    @property
    def length_us(self) -> int:
        return self.ts_after - self.ts_before

    def follow(self, ts: int, dts: int) -> bool:
        """Take a frame after the stall into account; False if enough frames were seen."""
        since = ts - self.ts_after
        if since > CATCH_UP_US:
            return False
        self.lead_ms = max(self.lead_ms, dts - self.dts - since // 1000)
        return True

    def note_interval(self, kind: str, ts_before: int, ts: int, step_ms: int) -> None:
        """A frame after the stall, and the arrival of the frame before it on its track."""
        if ts_before <= self.ts_before and 1000 * step_ms >= STALL_CAUSE_SHARE * self.length_us:
            if abs(ts - ts_before - 1000 * step_ms) < ON_TIME_US:
                self.on_time = kind
            else:
                self.delayed = True

    @property
    def is_caught_up(self) -> bool:
        return 1000 * max(self.lead_ms, self.leap_ms) >= STALL_CAUSE_SHARE * self.length_us

    def state(self) -> list[Json]:
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def resume(cls, state: list[Json]) -> Stall:
        stall = cls(0, 0, 0, 0, None, None)
        for name, value in zip(cls.__slots__, state):
            setattr(stall, name, Received(*cast("SavedFields", value)) if name == "received" else value)
        return stall


class TrackStall(NamedTuple):
    """A stall of one track while the other one continued; `to_the_end`: no frame of it followed."""

    kind: str
    length_us: int
    to_the_end: bool
    ts: int
    msg_no: int | None
    frame: int | None


StallsState = SavedFields  # in the order of `Stalls.state`


class Stalls:
    """The stalls of one stream and of its tracks."""

    __slots__ = ("count", "kept", "of_tracks", "total_us", "watched")

    def __init__(self) -> None:
        self.count = self.total_us = 0
        self.of_tracks: list[TrackStall] = []
        self.kept: list[Stall] = []
        self.watched: Stall | None = None  # the last stall, while the frames after it may show its cause

    def begin(self, stall: Stall) -> None:
        self.count += 1
        self.total_us += stall.length_us
        if len(self.kept) < KEPT_STALLS:
            self.kept.append(stall)
            self.watched = stall

    def begin_track(self, stall: TrackStall) -> None:
        self.count += 1
        self.total_us += stall.length_us
        if len(self.of_tracks) < KEPT_STALLS:
            self.of_tracks.append(stall)

    def follow(self, ts: int, dts: int) -> None:
        if self.watched is not None and not self.watched.follow(ts, dts):
            self.watched = None

    def interrupt(self) -> None:
        self.watched = None

    def forget(self, is_none: Callable[[Stall], bool]) -> Stall | None:
        """Forget the stalls for which `is_none` is true, and return the first of them."""
        forgotten = [stall for stall in self.kept if is_none(stall)]
        if not forgotten:
            return None
        self.count -= len(forgotten)
        self.total_us -= sum(stall.length_us for stall in forgotten)
        self.kept = [stall for stall in self.kept if stall not in forgotten]
        self.watched = None
        return forgotten[0]

    def findings(
        self,
        direction: str,
        stream_id: int,
        troubled_seconds: Collection[int],
        zero_window_ms: Mapping[int, float] = {},
        acknowledgement_waits: Sequence[tuple[int, int]] = (),
        is_slow: bool = False,
    ) -> list[Finding]:
        """Return a finding for each stall of the whole stream.

        Args:
            direction: Direction of the media.
            stream_id: Message stream id of the media.
            troubled_seconds: Seconds in which TCP retransmitted, without single probes that were not needed.
            zero_window_ms: Milliseconds of zero window that this direction met, by second.
            acknowledgement_waits: Times (from, to) in which the sender waited for an Acknowledgement. Stalls in these
                times are not reported again: FLOW_ACK_STARVED reports them.
            is_slow: TIME_SLOW reports that the media came too slowly; stalls of the delivery are not reported again.
        """
        if not self.kept:
            return []
        by_cause: dict[_StallCause, list[Stall]] = {}
        for stall in self.kept:
            if not any(stall.ts_before < end and begin < stall.ts_after for begin, end in acknowledgement_waits):
                cause = _cause(stall, direction, troubled_seconds, zero_window_ms)
                if is_slow and cause.of_delivery:
                    continue
                by_cause.setdefault(cause, []).append(stall)
        found = []
        for (at_fault, why, _), stalls in by_cause.items():
            detail = f"no coded frame for {_durations([stall.length_us for stall in stalls])}; {why}"
            found += [
                Finding(
                    ViolationCode.TIME_STALL, detail, None, at_fault, direction, stream_id, stall.msg_no, stall.frame,
                    stall.ts_after, expected="a frame at least every second",
                    actual=f"no frame for {stall.length_us / 1e6:.1f} s",
                )
                for stall in stalls
            ]  # fmt: skip
        return sorted(found, key=lambda finding: finding.ts or 0)

    def track_findings(self, direction: str, stream_id: int, author: str | None) -> list[Finding]:
        """Return a finding for each stall of one track; `author` is at fault."""
        if not self.of_tracks:
            return []
        found = []
        by_kind: dict[tuple[str, bool], list[TrackStall]] = {}
        for stall in self.of_tracks:
            by_kind.setdefault((stall.kind, stall.to_the_end), []).append(stall)
        for (kind, to_the_end), stalls in by_kind.items():
            lengths = _durations([stall.length_us for stall in stalls])
            when = "the last " if to_the_end else ""
            detail = f"no {kind} for {when}{lengths}; {OTHER_KIND[kind]} continued"
            found += [
                Finding(
                    ViolationCode.TIME_STALL, detail, None, author, direction, stream_id, stall.msg_no, stall.frame,
                    stall.ts, expected=f"{kind} as long as there is {OTHER_KIND[kind]}",
                    actual=f"no {kind} for {stall.length_us / 1e6:.1f} s",
                )
                for stall in stalls
            ]  # fmt: skip
        return sorted(found, key=lambda finding: finding.ts or 0)

    def state(self) -> StallsState:
        watched = self.kept.index(self.watched) if self.watched is not None else None
        return self.count, self.total_us, [stall.state() for stall in self.kept], watched, self.of_tracks

    @classmethod
    def resume(cls, state: StallsState) -> Stalls:
        stalls = cls()
        stalls.count, stalls.total_us, kept, watched, of_tracks = state
        stalls.kept = [Stall.resume(one) for one in kept]
        stalls.of_tracks = [TrackStall(*one) for one in of_tracks]
        stalls.watched = None if watched is None else stalls.kept[watched]
        return stalls


class _StallCause(NamedTuple):
    at_fault: str | None
    text: str
    of_delivery: bool = False  # the encoder continued, and the receiver read


def _cause(
    stall: Stall, direction: str, troubled_seconds: Collection[int], zero_window_ms: Mapping[int, float]
) -> _StallCause:
    enough_ms = stall.length_us / 1000 * STALL_CAUSE_SHARE
    sender = SENDER[direction]
    closed_ms = _zero_window_within(stall, zero_window_ms)
    if receiver_waited(stall, zero_window_ms):  # the sender could not send, whatever else happened
        receiver = RECEIVER[direction]
        return _StallCause(receiver, f"zero window for most of the stall: the {receiver} did not read its data")
    if stall.leap_ms >= enough_ms:
        # A server only forwards what its publisher produced.
        author = sender if direction == "c2s" else None
        return _StallCause(author, "timestamps jumped by the length of the stall: the encoder produced nothing")
    if stall.lead_ms >= enough_ms:
        if _any_within(troubled_seconds, stall.ts_before // 1_000_000, stall.ts_after // 1_000_000):
            text = "a burst followed and TCP retransmitted during the stall: the network stalled"
            return _StallCause(NETWORK, text, of_delivery=True)
        # A burst may close the window too, so a short zero window does not blame the receiver. Packets that were lost
        # or delayed on the way to the point of capture leave no other trace than the burst.
        tcp = "a zero window for only a part of the stall" if closed_ms else "no TCP problem"
        text = f"a burst followed, with {tcp}: the media waited at the {sender} or on the way to the point of capture"
        return _StallCause(None, text, of_delivery=True)
    text = (
        f"the stream continued where it had stopped and never caught up: the {sender} paused, or the link to the point "
        "of capture is slower than the stream"
    )
    return _StallCause(None, text, of_delivery=True)


def receiver_waited(stall: Stall, zero_window_ms: Mapping[int, float]) -> bool:
    """Whether the receiver had closed its window for most of a stall. A player of a file does so because it has enough
    media, and misses nothing."""
    return _zero_window_within(stall, zero_window_ms) >= stall.length_us / 1000 * STALL_CAUSE_SHARE


def _zero_window_within(stall: Stall, zero_window_ms: Mapping[int, float]) -> float:
    """Milliseconds of zero window during the stall. The seconds at its edges count no more than their part inside the
    stall, because the burst after a stall closes windows too."""
    first, last = stall.ts_before // 1_000_000, stall.ts_after // 1_000_000
    seconds: Sequence[int] = range(first, last + 1)
    if len(seconds) > len(zero_window_ms):
        seconds = [second for second in zero_window_ms if first <= second <= last]

    def part_ms(second: int) -> float:
        begin, end = max(stall.ts_before, second * 1_000_000), min(stall.ts_after, (second + 1) * 1_000_000)
        return (end - begin) / 1000

    return sum(min(zero_window_ms.get(second, 0.0), part_ms(second)) for second in seconds)


def _any_within(seconds: Collection[int], first: int, last: int) -> bool:
    """True if any of the seconds is in the range. A stall may span years if a clock jumped, so the shorter of the two
    is iterated."""
    if last - first < len(seconds):
        return any(second in seconds for second in range(first, last + 1))
    return any(first <= second <= last for second in seconds)


def _durations(lengths_us: Sequence[int]) -> str:
    """For example "1.2 s, 3.4 s and 2 more"."""
    listed = [f"{length / 1e6:.1f} s" for length in lengths_us[:_LISTED]]
    more = len(lengths_us) - len(listed)
    if more:
        listed.append(f"{more} more")
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
