"""Fewer points that draw the same line: of each slice of the x axis the first, the last and both extremes stay.

What must not vanish (a spike, a drop-out) is an extreme of its slice, so it is always kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
SLICES = 500  # about what a screen can tell apart; up to four points each


def kept(x: Numbers, y: Numbers, slices: int = SLICES) -> npt.NDArray[np.int64]:
    """Positions of the points that stay, ascending. `x` need not be sorted."""
    count = len(x)
    if count <= 4 * slices:
        return np.arange(count)
    low, high = float(x.min()), float(x.max())
    if high <= low:
        part = np.zeros(count, np.int64)
    else:
        part = np.minimum(((x - low) / (high - low) * slices).astype(np.int64), slices - 1)
    by_value = np.lexsort((y, part))
    by_place = np.lexsort((x, part))
    starts = np.flatnonzero(np.diff(part[by_value], prepend=-1))
    ends = np.append(starts[1:], count) - 1
    chosen = (by_value[starts], by_value[ends], by_place[starts], by_place[ends])
    return np.unique(np.concatenate(chosen))
