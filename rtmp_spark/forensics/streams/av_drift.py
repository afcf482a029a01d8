"""The offset between audio and video timestamps, and whether it drifts.

A sample is the timestamp of the last audio frame minus that of a video frame at the same place of the stream, so it
does not depend on arrival times. Samples are averaged over stretches of media time; when there are too many stretches,
neighbours are merged. The slope is the median of the slopes between distant stretches. It counts as drift only if both
halves of the stream show it: a single step is not drift.
"""

from __future__ import annotations

from typing import Final

from rtmp_spark.codec.limits import DRIFT_STRETCHES
from rtmp_spark.forensics.median import median
from rtmp_spark.forensics.thresholds import SKEW_STRETCHES

FIRST_WIDTH_MS: Final = 1000


class Drift:
    __slots__ = ("_sums", "_width")

    def __init__(self) -> None:
        self._width = FIRST_WIDTH_MS
        self._sums: dict[int, list[int]] = {}  # stretch -> [sum, samples]

    def add(self, media_ms: int, offset_ms: int) -> None:
        stretch = media_ms // self._width
        sums = self._sums.get(stretch)
        if sums is not None:
            sums[0] += offset_ms
            sums[1] += 1
            return
        self._sums[stretch] = [offset_ms, 1]
        if len(self._sums) > DRIFT_STRETCHES:
            self._merge_neighbours()

    def _merge_neighbours(self) -> None:
        self._width *= 2
        merged: dict[int, list[int]] = {}
        for stretch, (total, samples) in self._sums.items():
            sums = merged.setdefault(stretch // 2, [0, 0])
            sums[0] += total
            sums[1] += samples
        self._sums = merged

    def clear(self) -> None:
        self._width = FIRST_WIDTH_MS
        self._sums = {}

    def _points(self) -> list[tuple[float, float]]:
        """The middle of each stretch in minutes of media time, and its mean offset in ms."""
        return [
            ((stretch + 0.5) * self._width / 60_000, total / samples)
            for stretch, (total, samples) in sorted(self._sums.items())
        ]

    def median_offset_ms(self) -> float | None:
        return median([total / samples for total, samples in self._sums.values()]) if self._sums else None

    def minutes(self) -> float:
        """The media time covered by samples."""
        if not self._sums:
            return 0.0
        points = self._points()
        return points[-1][0] - points[0][0] + self._width / 60_000

    def per_minute(self) -> float | None:
        """The drift in ms per minute; None with too few stretches, where noise would look like drift."""
        if len(self._sums) < SKEW_STRETCHES:
            return None
        return _slope(self._points())

    def steady_per_minute(self) -> float | None:
        """The drift in ms per minute; None unless each half alone drifts the same way, at least half as fast."""
        if len(self._sums) < SKEW_STRETCHES:
            return None
        points = self._points()
        whole = _slope(points)
        if whole is None:
            return None
        half = len(points) // 2
        parts = [_slope(part) for part in (points[:half], points[half:])]
        if any(part is None or part * whole <= 0 or abs(part) < abs(whole) / 2 for part in parts):
            return None
        return whole

    def state(self) -> list[object]:
        return [self._width, [[stretch, *sums] for stretch, sums in self._sums.items()]]

    @classmethod
    def resume(cls, state: list[object]) -> Drift:
        own = cls()
        width, stretches = state
        assert isinstance(width, int) and isinstance(stretches, list)
        own._width = width
        own._sums = {stretch: [total, samples] for stretch, total, samples in stretches}
        return own


def _slope(points: list[tuple[float, float]]) -> float | None:
    """The median of the slopes between points that are half the series apart."""
    if len(points) < SKEW_STRETCHES:
        return None
    half = len(points) // 2
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in zip(points, points[half:]))
