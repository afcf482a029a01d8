"""Counts of whole numbers, for medians without keeping the numbers. State is a plain list."""

from __future__ import annotations

MOST_VALUES = 4096  # distinct ones; a sender that makes up more only blurs its own median


class Histogram:
    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        counts = self.counts
        if value in counts:
            counts[value] += 1
        elif len(counts) < MOST_VALUES:
            counts[value] = 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def median(self) -> float | None:
        """The lower median; None without values."""
        total = self.total
        if not total:
            return None
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if 2 * seen >= total:
                return float(value)
        raise AssertionError("counts add up to their total")

    def mean_below(self, limit: float) -> float | None:
        """Mean of the values up to `limit`."""
        kept = [(value, count) for value, count in self.counts.items() if value <= limit]
        number = sum(count for _, count in kept)
        return sum(value * count for value, count in kept) / number if number else None

    def largest(self) -> int | None:
        return max(self.counts, default=None)

    def state(self) -> list[tuple[int, int]]:
        return list(self.counts.items())

    @classmethod
    def resume(cls, state: list[tuple[int, int]]) -> Histogram:
        histogram = cls()
        histogram.counts = dict(state)
        return histogram
