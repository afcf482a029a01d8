"""A time axis on which long pauses are cut out, so that short events months apart can be seen on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

BREAK_SHARE, BREAKS_SHARE = 0.04, 0.4  # of the axis, for each pause that is cut out and for all of them
LONG_PAUSE = 5  # times all busy time together: a longer pause is cut out
MOST_BREAKS = 30


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
        longest_kept = LONG_PAUSE * sum(end - start for start, end in busy)
        if len(pauses) > MOST_BREAKS:
            longest_kept = max(longest_kept, pauses[MOST_BREAKS])
        parts: list[list[int]] = []
        for start, end in busy:
            if parts and start - parts[-1][1] <= longest_kept:
                parts[-1][1] = end
            else:
                parts.append([start, end])
        break_share = min(BREAK_SHARE, BREAKS_SHARE / max(len(parts) - 1, 1))
        room = 1 - break_share * (len(parts) - 1)
        length = sum(end - start for start, end in parts)
        pieces, left = [], 0.0
        for start, end in parts:
            right = left + room * (end - start) / length
            pieces.append(Piece(start, end, left, right))
            left = right + break_share
        return cls(pieces)

    def share(self, time: int) -> float:
        """Where a time of one of the spans is on the axis."""
        piece = next((piece for piece in self.pieces if time <= piece.end), self.pieces[-1])
        return min(piece.left + (piece.right - piece.left) * (time - piece.start) / (piece.end - piece.start), 1.0)

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
