"""Downsampling that keeps the look of a line: each slice of the x axis keeps its first, last, lowest and highest point.

A spike or a drop-out is an extreme of its slice, so it is always kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
SLICES = 500  # about the columns that a screen shows; up to four points each


def kept(x: Numbers, y: Numbers, slices: int = SLICES) -> npt.NDArray[np.int64]:
    """Indices of the points to keep, ascending. `x` need not be sorted."""
    count = len(x)
    if count <= 4 * slices:
        return np.arange(count)
    part = _parts(x, slices)
    by_value = np.lexsort((y, part))
    by_place = np.lexsort((x, part))
    starts = np.flatnonzero(np.diff(part[by_value], prepend=-1))
    ends = np.append(starts[1:], count) - 1
    chosen = (by_value[starts], by_value[ends], by_place[starts], by_place[ends])
    return np.unique(np.concatenate(chosen))


def medians(x: Numbers, y: Numbers, slices: int = SLICES) -> tuple[Numbers, Numbers]:
    """The mean x and median y of each slice that has points."""
    part = _parts(x, slices)
    order = np.lexsort((y, part))
    starts = np.flatnonzero(np.diff(part[order], prepend=-1))
    ends = np.append(starts[1:], len(x))
    middle = order[(starts + ends) // 2]
    places = np.add.reduceat(x[order], starts) / (ends - starts)
    return places, y[middle]


def _parts(x: Numbers, slices: int) -> npt.NDArray[np.int64]:
    """The slice number of each point."""
    low, high = float(x.min()), float(x.max())
    if high <= low:
        return np.zeros(len(x), np.int64)
    return np.minimum(((x - low) / (high - low) * slices).astype(np.int64), slices - 1)
