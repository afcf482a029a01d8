"""Counts of integers: medians without keeping every value."""

from __future__ import annotations

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import HISTOGRAM_VALUES


class Histogram:
    """`total` is the number of values counted."""

    __slots__ = ("_median", "_median_of", "counts", "total")

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts or {}
        self.total = sum(counts.values()) if counts else 0
        self._median: float | None = None
        self._median_of = 0  # the total for which _median was computed

    def add(self, value: int) -> None:
        counts = self.counts
        if value in counts:
            counts[value] += 1
        elif len(counts) < HISTOGRAM_VALUES:
            counts[value] = 1
        else:
            return
        self.total += 1

    def median(self) -> float | None:
        """The lower median; None without values."""
        if self._median_of != self.total:
            self._median_of = self.total
            self._median = self._computed_median()
        return self._median

    def _computed_median(self) -> float:
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if 2 * seen >= self.total:
                return float(value)
        raise AssertionError("counts add up to their total")

    def count_outside(self, low: float, high: float) -> int:
        """The number of values below `low` or above `high`."""
        return sum(count for value, count in self.counts.items() if not low <= value <= high)

    def mean_below(self, limit: float) -> float | None:
        """The mean of the values up to `limit`; None without such values."""
        kept = [(value, count) for value, count in self.counts.items() if value <= limit]
        number = sum(count for _, count in kept)
        return sum(value * count for value, count in kept) / number if number else None

    def count_above(self, limit: float) -> int:
        """The number of values greater than `limit`."""
        return sum(count for value, count in self.counts.items() if value > limit)

    def largest(self) -> int | None:
        return max(self.counts, default=None)

    def state(self) -> list[tuple[int, int]]:
        return list(self.counts.items())

    @classmethod
    def resume(cls, state: SavedFields) -> Histogram:
        return cls(dict(state))
