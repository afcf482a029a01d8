"""Which published streams a played one may come from, by name and time.

A play is compared with streams of the same name that were published at the time, and with those whose name is unknown.
If no stream of its name was published, it is compared with all of the time, because a relay may rename streams.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from rtmp_spark.forensics.thresholds import CACHE_US


class NamedPeriod(Protocol):
    """The part of a stream that `scopes` needs."""

    @property
    def name(self) -> str | None: ...

    @property
    def ts_start(self) -> int: ...

    @property
    def ts_end(self) -> int: ...


class Periods:
    """Spans of time (first and last microsecond)."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._latest = list(accumulate((end for _, end in ordered), max))

    def any_at(self, first: int, last: int) -> bool:
        """True if one of the spans overlaps this one."""
        begun = bisect_right(self._starts, last)
        return begun > 0 and self._latest[begun - 1] >= first

    def any_during_play(self, play: NamedPeriod) -> bool:
        """True if a player of that time can have received something that was published in one of the spans."""
        return self.any_at(play.ts_start - CACHE_US, play.ts_end)


class Scope(NamedTuple):
    """Plays that are compared with the same published streams, those of the time of each play; both as indices."""

    published: list[int]
    played: list[int]


def scopes(published: Sequence[NamedPeriod], played: Sequence[NamedPeriod]) -> list[Scope]:
    """Every play is in at most one scope. The cost does not depend on how many pairs of streams there are."""
    by_name: dict[str | None, list[int]] = {}
    for number, stream in enumerate(published):
        by_name.setdefault(stream.name, []).append(number)
    nameless = by_name.pop(None, [])
    periods = {
        name: Periods((published[n].ts_start, published[n].ts_end) for n in numbers)
        for name, numbers in by_name.items()
    }
    plays: dict[str | None, list[int]] = {}
    for number, play in enumerate(played):
        known = play.name in periods and periods[play.name].any_during_play(play)
        plays.setdefault(play.name if known else None, []).append(number)
    found = [Scope(sorted([*by_name[name], *nameless]), own) for name, own in plays.items() if name is not None]
    if None in plays and published:
        found.append(Scope(list(range(len(published))), plays[None]))
    return found
