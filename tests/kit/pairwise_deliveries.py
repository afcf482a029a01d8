"""Deliveries found by comparing every pair of streams that names and times allow: slow, and without any limit.

The product finds the pairs through an index of checksums; the tests compare its rows with these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.deliveries.delivery_frames import CODED, Stream
from rtmp_spark.forensics.deliveries.delivery_matching import delivery
from rtmp_spark.forensics.thresholds import CACHE_US, COMMON_FRAMES


def candidates(published: Sequence[Stream], played: Sequence[Stream]) -> list[tuple[int, int]]:
    """Index pairs (published, played) of streams whose frames are compared."""
    starts = np.array([stream.ts_start for stream in published], np.int64)
    ends = np.array([stream.ts_end for stream in published], np.int64)
    nameless = np.array([stream.name is None for stream in published], bool)
    by_name: dict[str | None, list[int]] = {}
    for number, stream in enumerate(published):
        by_name.setdefault(stream.name, []).append(number)
    pairs = []
    for place, play in enumerate(played):
        simultaneous = (starts <= play.ts_end) & (ends >= play.ts_start - CACHE_US)
        same = [n for n in by_name.get(play.name, ()) if simultaneous[n]] if play.name is not None else []
        if same:
            pairs += [(n, place) for n in sorted({*same, *np.flatnonzero(simultaneous & nameless).tolist()})]
        else:
            pairs += [(n, place) for n in np.flatnonzero(simultaneous).tolist()]
    return pairs


def match_pairwise(published: Sequence[Stream], played: Sequence[Stream]) -> list[Row]:
    """Rows of `deliveries` for all pairs of streams with the same content."""
    keys: dict[int, set[int]] = {}
    rows = []
    for number, place in candidates(published, played):
        publish, play = published[number], played[place]
        if number not in keys:
            keys[number] = set(publish.frames.key)
        coded = {play.frames.key[i] for i in play.frames.of_kind(CODED)}
        if len(coded & keys[number]) >= COMMON_FRAMES:
            row = delivery(publish, play)
            if row is not None:
                rows.append(row)
    return rows
