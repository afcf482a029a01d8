"""Measurements of one track of a stream: counts, timestamps and sizes; nothing is kept per frame."""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from rtmp_spark.codec.limits import TRACK_VARIANTS
from rtmp_spark.forensics.position import Position
from rtmp_spark.forensics.streams.histogram import Histogram
from rtmp_spark.forensics.streams.pace import TrackPace
from rtmp_spark.forensics.thresholds import (
    REGULAR_STEPS,
    REGULAR_UNEVEN_SHARE,
    REGULAR_UNEVEN_STEPS,
    SLOW_STEP_MS,
    VARIABLE_SHARE,
    VARIABLE_STEP,
    VARIABLE_STEPS,
)


class Gop(NamedTuple):
    """A keyframe interval, and the message, packet and time of the keyframe that ends it."""

    length_ms: int
    msg_no: int | None
    frame: int | None
    ts: int | None


_NO_GOP: Final = Gop(0, None, None, None)


class Track:
    """`dts` and `ts` belong to the previous frame; `dts` is None if the next frame must not be compared with it.
    `last` is its msg_no, its packet and the packet that made it known; `over_ts` is when the last end of sequence came.
    """

    __slots__: ClassVar[tuple[str, ...]] = (
        "bytes", "channels", "codec", "configs", "dts", "elapsed", "enhanced", "first_dts", "frames", "height",
        "key_dts", "key_gaps", "keys", "kind", "last", "longest_gop", "over_ts", "pace", "place", "rates",
        "sample_rate", "sizes", "steps", "ts", "width",
    )  # fmt: skip

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.codec: str | None = None
        self.enhanced = False
        self.frames = self.bytes = self.configs = self.keys = 0
        self.dts: int | None = None
        self.ts = 0
        self.last: tuple[int, int, int] = (0, 0, 0)
        self.over_ts = 0
        self.first_dts: int | None = None
        self.elapsed = 0  # ms of media time between consecutive frames
        self.steps = Histogram()  # intervals between consecutive frames, ms
        self.key_dts: int | None = None
        self.key_gaps = Histogram()  # intervals between keyframes, ms
        self.longest_gop = _NO_GOP
        self.pace = TrackPace()
        self.place: Position | None = None  # of its first tag
        self.width: int | None = None
        self.height: int | None = None
        self.sample_rate: int | None = None
        self.channels: int | None = None
        self.sizes: list[list[int]] = []  # all resolutions seen
        self.rates: list[int] = []  # all sample rates seen

    def set_size(self, width: int | None, height: int | None) -> None:
        self.width, self.height = width, height
        if width and height and [width, height] not in self.sizes and len(self.sizes) < TRACK_VARIANTS:
            self.sizes.append([width, height])

    def set_sample_rate(self, rate: int | None) -> None:
        self.sample_rate = rate
        if rate and rate not in self.rates and len(self.rates) < TRACK_VARIANTS:
            self.rates.append(rate)

    def interrupt(self) -> None:
        """Do not compare the next frame with the previous one."""
        self.dts = self.key_dts = None
        self.pace.cut()

    def step_ms(self) -> float | None:
        """The median frame interval."""
        return self.steps.median()

    @property
    def is_variable(self) -> bool:
        """Whether the frame rate is variable, or not yet known to be steady."""
        step, total = self.step_ms(), self.steps.total
        if step is None:
            return False
        uneven = self.steps.count_outside((1 - VARIABLE_STEP) * step, (1 + VARIABLE_STEP) * max(step, 1))
        return uneven > VARIABLE_SHARE * total or (step >= SLOW_STEP_MS and total < VARIABLE_STEPS)

    def usual_step_ms(self) -> float | None:
        """The frame interval by which pauses and jumps are judged: the median, or the longest one if the frame rate is
        variable. None without intervals; infinite if there are too few of them to tell which."""
        if not self.is_variable:
            return self.step_ms()
        return self.steps.largest() if self.steps.total >= VARIABLE_STEPS else inf

    def regular_step_ms(self) -> float | None:
        """The median frame interval of a regular track; None for slides and for audio that pauses in silence."""
        step = self.step_ms()
        total = self.steps.total
        if step is None or total < REGULAR_STEPS:
            return None
        uneven = self.steps.count_above(REGULAR_UNEVEN_STEPS * max(step, 1))
        return step if uneven <= 1 + REGULAR_UNEVEN_SHARE * total else None

    def rate(self) -> float | None:
        """Frames per second of media time."""
        count = self.steps.total
        return count * 1000 / self.elapsed if self.elapsed > 0 and count >= 2 else None

    def rate_without_pauses(self) -> float | None:
        """Frames per second of media time, without intervals longer than three median ones."""
        step = self.step_ms()
        mean = self.steps.mean_below(3 * max(step, 1)) if step is not None else None
        return 1000 / mean if mean else None

    def bitrate(self) -> float | None:
        if self.elapsed <= 0 or not self.frames:
            return None
        return self.bytes * 8000 / (self.elapsed * self.frames / max(self.frames - 1, 1))

    def state(self) -> list[object]:
        return [value.state() if isinstance(value, (Histogram, TrackPace)) else value for value in _values(self)]

    @classmethod
    def resume(cls, state: list[object]) -> Track:
        track = cls("")
        values: dict[str, Any] = dict(zip(cls.__slots__, state))
        values["steps"], values["key_gaps"] = Histogram.resume(values["steps"]), Histogram.resume(values["key_gaps"])
        values["pace"], values["last"] = TrackPace.resume(values["pace"]), tuple(values["last"])
        values["longest_gop"] = Gop(*values["longest_gop"])
        values["place"] = None if values["place"] is None else Position(*values["place"])
        for name, value in values.items():
            setattr(track, name, value)
        return track


_values: Final = attrgetter(*Track.__slots__)
