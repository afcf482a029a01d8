"""What is kept of one track of a stream: counts, times and sizes, nothing per frame."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from rtmp_spark.forensics.histogram import Histogram

_MOST_VARIANTS = 8
_LEAST_STEPS = 20  # before a track is said to have a rhythm
_UNEVEN = 0.02  # of the steps may be three times the usual one in an even rhythm


class Track:
    """`dts` and `ts` are those of the frame before, None where the next one may not be compared with it; `last` is
    its message, its packet and the packet that made it known. `over_ts`: when an end of sequence came."""

    __slots__ = (
        "bytes", "channels", "codec", "configs", "dts", "elapsed", "enhanced", "first_dts", "frames", "height",
        "key_dts", "key_gaps", "keys", "kind", "last", "longest_gop", "over_ts", "place", "rates", "sample_rate",
        "sizes", "steps", "ts", "width",
    )  # fmt: skip

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.codec: str | None = None
        self.enhanced = False
        self.frames = self.bytes = self.configs = self.keys = 0
        self.dts: int | None = None
        self.ts = 0
        self.last: Sequence[int] = ()
        self.over_ts = 0
        self.first_dts: int | None = None
        self.elapsed = 0  # media time that passed in steps between frames, ms
        self.steps = Histogram()
        self.key_dts: int | None = None
        self.key_gaps = Histogram()
        self.longest_gop: list[Any] = [0, None, None, None]  # ms; message, frame, time of the frame that ends it
        self.place: list[int] | None = None  # message, packet and time of its first tag
        self.width = self.height = self.sample_rate = self.channels = None
        self.sizes: list[list[int]] = []
        self.rates: list[int] = []

    def see_size(self, width: int | None, height: int | None) -> None:
        self.width, self.height = width, height  # type: ignore[assignment]
        if width and height and [width, height] not in self.sizes and len(self.sizes) < _MOST_VARIANTS:
            self.sizes.append([width, height])

    def see_rate(self, rate: int | None) -> None:
        self.sample_rate = rate  # type: ignore[assignment]
        if rate and rate not in self.rates and len(self.rates) < _MOST_VARIANTS:
            self.rates.append(rate)

    def interrupt(self) -> None:
        self.dts = self.key_dts = None

    def step_ms(self) -> float | None:
        """The usual distance of two frames."""
        return self.steps.median()

    def even_step_ms(self) -> float | None:
        """The usual distance, where nearly all are like it: not of slides, of sound that pauses in silence."""
        step = self.step_ms()
        if step is None or self.steps.total < _LEAST_STEPS:
            return None
        uneven = sum(count for value, count in self.steps.counts.items() if value > 3 * max(step, 1))
        return step if uneven <= 1 + _UNEVEN * self.steps.total else None

    def rate(self) -> float | None:
        """Frames a second of media time."""
        count = self.steps.total
        return count * 1000 / self.elapsed if self.elapsed > 0 and count >= 2 else None

    def steady_rate(self) -> float | None:
        """The same without the pauses."""
        step = self.step_ms()
        mean = self.steps.mean_below(3 * max(step, 1)) if step is not None else None
        return 1000 / mean if mean else None

    def bitrate(self) -> float | None:
        if self.elapsed <= 0 or not self.frames:
            return None
        return self.bytes * 8000 / (self.elapsed * self.frames / max(self.frames - 1, 1))

    def state(self) -> list[Any]:
        return [value.state() if type(value) is Histogram else value for value in _values(self)]

    @classmethod
    def resume(cls, state: list[Any]) -> Track:
        track = cls("")
        for name, value in zip(cls.__slots__, state):
            setattr(track, name, Histogram.resume(value) if name in ("steps", "key_gaps") else value)
        return track


_values = attrgetter(*Track.__slots__)
