"""A time axis on which long pauses are cut out, so that short events months apart can be seen on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

BREAK_SHARE = 0.04  # of the axis, for each pause that is cut out
LONG_PAUSE = 5  # times all busy time together: a longer pause is cut out
MOST_BREAKS = 12


@dataclass(frozen=True)
class Piece:
    """An uncut part of the axis."""

    start: int
    end: int
    left: float  # share of the axis, 0 to 1
    right: float


@dataclass(frozen=True)
class TimeScale:
    """Maps times to shares of the axis. Times and lengths are in one unit, microseconds in this project."""

    pieces: Sequence[Piece]

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> TimeScale:
        """An axis for these (start, end) spans, of which there must be one."""
        busy = _merged(spans)
        pauses = sorted((after[0] - before[1] for before, after in pairwise(busy)), reverse=True)
        total = busy[-1][1] - busy[0][0]
        cut = 0  # from which length pauses are cut out; 0 for none
        for pause in pauses[:MOST_BREAKS]:
            if pause <= LONG_PAUSE * max(total - pause, 1):
                break
            total -= pause
            cut = pause
        parts: list[list[int]] = []
        for start, end in busy:
            if parts and (not cut or start - parts[-1][1] < cut):
                parts[-1][1] = end
            else:
                parts.append([start, end])
        room = 1 - BREAK_SHARE * (len(parts) - 1)
        length = sum(end - start for start, end in parts)
        pieces, left = [], 0.0
        for start, end in parts:
            right = left + room * (end - start) / length
            pieces.append(Piece(start, end, left, right))
            left = right + BREAK_SHARE
        return cls(pieces)

    def share(self, time: int) -> float:
        """Where a time of one of the spans is on the axis."""
        piece = next((piece for piece in self.pieces if time <= piece.end), self.pieces[-1])
        return piece.left + (piece.right - piece.left) * (time - piece.start) / (piece.end - piece.start)

    @property
    def breaks(self) -> list[tuple[float, float, int]]:
        """(left, right, length) of the pauses that are cut out."""
        return [(a.right, b.left, b.start - a.end) for a, b in pairwise(self.pieces)]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted((start, max(end, start + 1)) for start, end in spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
