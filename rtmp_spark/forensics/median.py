"""The median as `statistics.median` computes it; importing that module takes longer than analyzing a small capture."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
