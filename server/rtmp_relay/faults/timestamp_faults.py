"""Faults of timestamps and of delivery times (TIME_ rules)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rtmp_relay.frames import Tag
from rtmp_spark.codec.message import AUDIO, VIDEO

from .fault import CLIENT, Fault, FaultEntry, MediaFault
from .tag_changes import changed_frames, changed_payload


def _shifted(shift: Callable[[Tag], int]) -> Callable[[], Fault]:
    """Return a factory of faults that add `shift(tag)` milliseconds to each timestamp."""

    def change(tags: Iterable[Tag]) -> Iterator[Tag]:
        for tag in tags:
            yield tag._replace(timestamp=tag.timestamp + shift(tag))

    return lambda: MediaFault(change)


class _Jump(Fault):
    """After one second adds five seconds to every timestamp; the tags are sent without that delay."""

    FROM_MS, BY_MS = 1000, 5000

    def changed_tags(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return (t._replace(timestamp=t.timestamp + self.BY_MS) if t.timestamp >= self.FROM_MS else t for t in tags)

    def due_ms(self, tag: Tag) -> int:
        return tag.timestamp - self.BY_MS if tag.timestamp >= self.FROM_MS + self.BY_MS else tag.timestamp


class _FastAudioClock(Fault):
    """Audio timestamps advance 0.5 % faster than the clock by which all tags are sent."""

    def changed_tags(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return (t._replace(timestamp=t.timestamp + t.timestamp // 200) if t.type_id == AUDIO else t for t in tags)

    def due_ms(self, tag: Tag) -> int:
        return round(tag.timestamp / 1.005) if tag.type_id == AUDIO else tag.timestamp


class _Stall(Fault):
    """Sends nothing for two seconds, then everything that is due."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._done = False

    def extra_delay_s(self, tag: Tag) -> float:
        self._first = tag.timestamp if self._first is None else self._first
        if self._done or tag.timestamp - self._first < 1500:
            return 0.0
        self._done = True
        return 2.0


class _Speed(Fault):
    """Sends at another speed than real time."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def due_ms(self, tag: Tag) -> int:
        return round(tag.timestamp / self._speed)


def _with_composition_time(value: int) -> Callable[[bytes], bytes]:
    return lambda payload: payload[:2] + (value & 0xFFFFFF).to_bytes(3, "big") + payload[5:]


TIMESTAMP_FAULTS = {
    "TIME_BACKWARDS": FaultEntry(
        CLIENT,
        "sends one audio frame with a timestamp half a second too early",
        changed_frames(AUDIO, lambda tag: [tag._replace(timestamp=max(0, tag.timestamp - 500))], after=40),
    ),
    "TIME_JUMP": FaultEntry(CLIENT, "adds 5 s to all timestamps after one second", _Jump),
    "TIME_WRAP": FaultEntry(CLIENT, "sends timestamps that cross 2^24 ms", _shifted(lambda tag: 0xFFFFFF - 1500)),
    "TIME_SKEW": FaultEntry(CLIENT, "runs the audio clock 0.5 % fast; needs a minute of media", _FastAudioClock),
    "TIME_STALL": FaultEntry(CLIENT, "sends nothing for 2 s, then a burst", _Stall),
    "TIME_SLOW": FaultEntry(CLIENT, "sends at 0.3 x real time", lambda: _Speed(0.3)),
    "TIME_FAST": FaultEntry(CLIENT, "sends as fast as it can; needs 6 s of media", lambda: _Speed(1000.0)),
    "TIME_PTS_BEFORE_DTS": FaultEntry(
        CLIENT,
        "sends a composition time of -40 ms",
        changed_frames(VIDEO, changed_payload(_with_composition_time(-40)), after=5),
    ),
}
