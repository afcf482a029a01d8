"""TIME_SLOW, TIME_FAST: whether the media of a stream arrives slower or faster than real time.

The offset of a coded frame is its arrival time minus its decoding time. It is constant if media arrives in real time,
grows if media arrives too slowly and falls if it arrives too fast. `TrackPace` follows the offset of one track; a
discontinuity of the timestamps, a seek, a pause or missing data begins a new part, and each part is judged on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import KEPT_PACES, PACE_FRAMES
from rtmp_spark.conversation.facts import RECEIVER, SENDER
from rtmp_spark.forensics.findings import NETWORK, Finding
from rtmp_spark.forensics.position import frame_with_file
from rtmp_spark.forensics.thresholds import (
    BUFFERED_MS,
    BURST_FALL_US,
    BURST_QUIET_US,
    FAST_US,
    HURRIED,
    HURRIED_SHARE,
    LATE_STALL_SHARE,
    LATE_STEPS,
    LATE_US,
    SLOW_CAUSE_SHARE,
    SLOW_PACE,
    SLOW_WALL_US,
    STALL_US,
)

_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
_LAST_US: Final = 1_000_000  # the end of a part, over which the offset is averaged


class Part(NamedTuple):
    """A part of a track without discontinuities: from its first to its last frame, and from its lowest offset on."""

    wall_us: int
    media_ms: int
    since_low_us: int
    media_since_low_ms: int
    late_us: int  # offset at the end minus the lowest one
    stall_us: int  # the largest part of it that a single stall accounts for
    lead_us: int  # offset of the first frame minus the lowest one
    lead_after_burst_us: int  # the same from the end of the initial burst
    ahead_us: int  # offset of the first frame minus that at the end
    frames: int  # since the lowest offset, ...
    hurried: int  # ... and those of them that came much sooner after the frame before than their timestamps say
    low_ts: int
    end_ts: int
    last: tuple[int, int, int]  # msg_no and packet of the last frame, and the packet that made it known

    @property
    def pace_since_low(self) -> float:
        return self.media_since_low_ms * 1000 / self.since_low_us if self.since_low_us > 0 else 1.0

    @property
    def is_notable(self) -> bool:
        return self.late_us > LATE_US or max(self.lead_us, self.lead_after_burst_us) > FAST_US

    def is_slow(self, step_ms: float, recorded: bool) -> bool:
        """A player that still has media in advance, as of a file sent faster than real time, waits for nothing."""
        if self.ahead_us >= (0 if recorded else BUFFERED_MS * 1000):
            return False
        return (
            self.since_low_us >= SLOW_WALL_US
            and self.pace_since_low < SLOW_PACE
            and self.late_us > max(LATE_US, LATE_STEPS * 1000 * step_ms)
            and self.stall_us < LATE_STALL_SHARE * self.late_us
        )


class TrackPace:
    """The parts of one track. What came before a stall is kept, because frames after the receiver closed do not
    count, and servers flush their queues then."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "_base", "_base_ts", "_first_dts", "_first_ts", "_frames", "_hurried", "_last", "_last_dts", "_last_ts",
        "_low", "_low_dts", "_low_ts", "_notable", "_recent", "_settled", "_stall_us", "_until", "media_ms", "wall_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wall_us = self.media_ms = 0  # of finished parts
        self._notable: list[Part] = []  # the latest finished parts that may give a finding
        self._until: list[tuple[int, Part]] = []  # the current part up to a stall, and when the stall ended
        self._first_ts: int | None = None
        self._first_dts = self._last_ts = self._last_dts = 0
        self._last = (0, 0, 0)
        self._low = self._low_ts = self._low_dts = 0
        self._base = self._base_ts = 0
        self._settled = False
        self._stall_us = self._frames = self._hurried = 0
        self._recent: list[tuple[int, int]] = []  # time and offset of the last frames

    def add(self, ts: int, dts: int, place: tuple[int, int, int]) -> None:
        """A coded frame that arrived at `ts`; `place` is its msg_no, its packet and the packet that made it known."""
        offset = ts - 1000 * dts
        if self._first_ts is None:
            self._first_ts, self._first_dts = ts, dts
            self._low, self._low_ts, self._low_dts = offset, ts, dts
            self._base, self._base_ts = offset, ts
        elif ts - self._last_ts >= STALL_US:
            self._stalled(ts, offset)
        if offset <= self._low:
            self._low, self._low_ts, self._low_dts = offset, ts, dts
            self._stall_us = self._frames = self._hurried = 0
        else:
            self._frames += 1
            if HURRIED * (ts - self._last_ts) < 1000 * (dts - self._last_dts):
                self._hurried += 1
        if not self._settled:
            if offset < self._base - BURST_FALL_US:
                self._base, self._base_ts = offset, ts
            elif ts - self._base_ts >= BURST_QUIET_US:
                self._settled = True
        recent = self._recent
        recent.append((ts, offset))
        if recent[0][0] <= ts - _LAST_US:
            del recent[: next(index for index, (then, _) in enumerate(recent) if then > ts - _LAST_US)]
        elif len(recent) > 2 * PACE_FRAMES:
            del recent[:-PACE_FRAMES]
        self._last_ts, self._last_dts, self._last = ts, dts, place

    def is_ahead(self, ts: int, dts: int, ms: int) -> bool:
        """Whether a frame is earlier than all frames of this part, by this much."""
        return self._first_ts is not None and ts - 1000 * dts < self._low - 1000 * ms

    def _stalled(self, ts: int, offset: int) -> None:
        before = self._last_ts - 1000 * self._last_dts
        part = self._part()
        if part is not None:
            self._until = [*self._until[1 - KEPT_PACES :], (ts, part)]
        self._stall_us = max(self._stall_us, offset - before)

    def cut(self) -> None:
        """A discontinuity: the next frame begins another part."""
        part = self._part()
        if part is None:
            return
        self.wall_us += part.wall_us
        self.media_ms += part.media_ms
        if part.is_notable:
            self._notable = [*self._notable[1 - KEPT_PACES :], part]
        self._until = []
        self._first_ts = None
        self._stall_us = 0
        self._settled = False
        self._recent = []

    def _part(self) -> Part | None:
        if self._first_ts is None:
            return None
        since = self._last_ts - _LAST_US
        recent = [offset for ts, offset in self._recent[-PACE_FRAMES:] if ts > since]
        end = sorted(recent)[(len(recent) - 1) // 2]  # the lower median
        first = self._first_ts - 1000 * self._first_dts
        return _new(
            Part,
            (
                self._last_ts - self._first_ts, self._last_dts - self._first_dts, self._last_ts - self._low_ts,
                self._last_dts - self._low_dts, end - self._low, self._stall_us, first - self._low,
                self._base - self._low if self._settled else 0, first - end, self._frames, self._hurried,
                self._low_ts, self._last_ts, self._last,
            ),
        )  # fmt: skip

    def _current(self, closed_us: int) -> Part | None:
        if closed_us:
            for ts, before in self._until:
                if ts >= closed_us:
                    return before
        return self._part()

    def paced(self, closed_us: int) -> PacedTrack:
        """The result, without what came after the receiver closed (0: it did not)."""
        parts, media_ms, wall_us = self._notable, self.media_ms, self.wall_us
        current = self._current(closed_us)
        if current is not None:
            media_ms, wall_us = media_ms + current.media_ms, wall_us + current.wall_us
            if current.is_notable:
                parts = [*parts, current]
        return _new(PacedTrack, (parts, media_ms, wall_us, 0.0))

    def state(self) -> list[Json]:
        self._recent = self._recent[-PACE_FRAMES:]
        return [getattr(self, name) for name in self.__slots__]

    @classmethod
    def resume(cls, state: list[Json]) -> TrackPace:
        own = cls()
        values: dict[str, Any] = dict(zip(cls.__slots__, state))
        values["_last"] = tuple(values["_last"])
        values["_notable"] = [_resumed(part) for part in values["_notable"]]
        values["_until"] = [(ts, _resumed(part)) for ts, part in values["_until"]]
        values["_recent"] = [(ts, offset) for ts, offset in values["_recent"]]
        for name, value in values.items():
            setattr(own, name, value)
        return own


def _resumed(part: SavedFields) -> Part:
    """The part with the types that JSON does not keep."""
    msg_no, frame, known_at = part[-1]
    return Part(*part)._replace(last=(msg_no, frame, known_at))


class PacedTrack(NamedTuple):
    """What the rules of pace need to know of a track: the parts that may give a finding, the sums of all parts, and the
    usual frame interval, which is 0 if it is unknown or no part may give a finding."""

    parts: Sequence[Part]
    media_ms: int
    wall_us: int
    step_ms: float = 0.0


class TcpTrouble(NamedTuple):
    """What TCP showed: seconds with retransmissions, and zero windows in the direction of the media by second."""

    troubled_seconds: Collection[int]
    zero_window_ms: Mapping[int, float]


def stream_pace(tracks: Iterable[PacedTrack]) -> float | None:
    """Media time over wall time of the track that was seen longest; None if it was too short to tell."""
    longest = max(tracks, key=attrgetter("wall_us"), default=None)
    if longest is None:
        return None
    media_ms, wall_us = longest.media_ms, longest.wall_us
    return media_ms * 1000 / wall_us if wall_us > 0 and max(media_ms * 1000, wall_us) >= _LAST_US else None


def slow_finding(
    tracks: Iterable[PacedTrack], direction: str, stream_id: int, recorded: bool, tcp: TcpTrouble
) -> list[Finding]:
    """TIME_SLOW for the first track with slow parts, and the latest of them."""
    slow = [[part for part in track.parts if part.is_slow(track.step_ms, recorded)] for track in tracks]
    part = max(next(filter(None, slow), []), key=attrgetter("late_us"), default=None)
    if part is None:
        return []
    msg_no, frame, known_at = part.last
    at_fault, seen = _cause(part, direction, tcp)
    pace = f"{part.pace_since_low:.2f} x real time"
    return [
        Finding(
            ViolationCode.TIME_SLOW, f"media arrives at {pace}; {part.late_us / 1e6:.1f} s behind at the end; {seen}",
            None, at_fault, direction, stream_id, msg_no, frame_with_file(frame, known_at), part.end_ts,
            expected="1.00 x real time", actual=pace,
        )
    ]  # fmt: skip


def _cause(part: Part, direction: str, tcp: TcpTrouble) -> tuple[str | None, str]:
    """Who is at fault as far as TCP shows it, and what was seen."""
    first, last = part.low_ts // 1_000_000, part.end_ts // 1_000_000
    closed_ms = sum(ms for second, ms in tcp.zero_window_ms.items() if first <= second <= last)
    if closed_ms * 1000 >= SLOW_CAUSE_SHARE * part.late_us:
        receiver = RECEIVER[direction]
        return receiver, f"the {receiver} did not read its data: zero window for {closed_ms / 1000:.1f} s"
    sender = SENDER[direction]
    lossy = sum(first <= second <= last for second in tcp.troubled_seconds)
    seen = f"TCP retransmitted in {lossy} of {last - first + 1} s" if lossy else "no TCP problem was seen"
    if part.hurried < HURRIED_SHARE * part.frames:
        # An overloaded encoder, and a link that is too slow for frames of equal size, look like this.
        return None, f"{seen}: the {sender} sends too slowly, or the link to the point of capture is too slow"
    if lossy:
        return NETWORK, f"frames arrive in bursts and {seen}: the network is too slow"
    return (
        None,
        f"frames arrive in bursts and {seen}: they waited at the {sender} or on the way to the point of capture",
    )


def fast_finding(tracks: Iterable[PacedTrack], direction: str, stream_id: int, recorded: bool) -> list[Finding]:
    """TIME_FAST for a stream whose media comes far ahead of real time. A file may be played as fast as possible."""
    if recorded:
        return []
    is_publish = direction == "c2s"
    lead = attrgetter("lead_us" if is_publish else "lead_after_burst_us")
    fast = [[part for part in track.parts if lead(part) > FAST_US] for track in tracks]
    part = max(next(filter(None, fast), []), key=lead, default=None)
    if part is None:
        return []
    msg_no, frame, known_at = part.last
    lead_us = lead(part)
    since = "its first frame" if is_publish else "the initial burst"
    return [
        Finding(
            ViolationCode.TIME_FAST, f"media is {lead_us / 1e6:.1f} s ahead of real time since {since}", None,
            SENDER[direction] if is_publish else None, direction, stream_id, msg_no, frame_with_file(frame, known_at),
            part.end_ts, expected="real time", actual=f"{lead_us / 1e6:.1f} s ahead",
        )
    ]  # fmt: skip
