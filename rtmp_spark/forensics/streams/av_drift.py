"""How far sound and picture lie apart, and whether they drift.

A sample is the time of the last sound frame minus that of a picture at the same place of the stream, so it does not
depend on when packets arrived. Samples are averaged over stretches of media time; when there are too many stretches,
neighbours are joined. The slope is a robust one (the median of slopes between distant stretches), and counts as drift
only where both halves of the stream show it: a step is no drift.
"""

from __future__ import annotations

from statistics import median

FIRST_WIDTH_MS = 1000
MOST_STRETCHES = 512


class Drift:
    __slots__ = ("_sums", "_width")

    def __init__(self) -> None:
        self._width = FIRST_WIDTH_MS
        self._sums: dict[int, list[int]] = {}  # stretch -> [sum, samples]

    def add(self, media_ms: int, apart_ms: int) -> None:
        stretch = media_ms // self._width
        sums = self._sums.get(stretch)
        if sums is not None:
            sums[0] += apart_ms
            sums[1] += 1
            return
        self._sums[stretch] = [apart_ms, 1]
        if len(self._sums) > MOST_STRETCHES:
            self._join()

    def _join(self) -> None:
        self._width *= 2
        joined: dict[int, list[int]] = {}
        for stretch, (total, samples) in self._sums.items():
            sums = joined.setdefault(stretch // 2, [0, 0])
            sums[0] += total
            sums[1] += samples
        self._sums = joined

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _points(self) -> list[tuple[float, float]]:
        """Middle of each stretch in minutes of media time, and how far apart it was on average."""
        return [
            ((stretch + 0.5) * self._width / 60_000, total / samples)
            for stretch, (total, samples) in sorted(self._sums.items())
        ]

    def apart_ms(self) -> float | None:
        points = self._points()
        return median(y for _, y in points) if points else None

    def minutes(self) -> float:
        points = self._points()
        return points[-1][0] - points[0][0] + self._width / 60_000 if points else 0.0

    def per_minute(self) -> float | None:
        """Milliseconds a minute; None below ten stretches, where noise would be taken for drift."""
        return _slope(self._points())

    def steady_per_minute(self) -> float | None:
        """The same, and None unless each half alone drifts the same way at half that speed or more."""
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
        drift = cls()
        width, stretches = state
        assert isinstance(width, int) and isinstance(stretches, list)
        drift._width = width
        drift._sums = {stretch: [total, samples] for stretch, total, samples in stretches}
        return drift


def _slope(points: list[tuple[float, float]]) -> float | None:
    """Median of the slopes between points that lie half the series apart."""
    if len(points) < 10:
        return None
    half = len(points) // 2
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in zip(points, points[half:]))
