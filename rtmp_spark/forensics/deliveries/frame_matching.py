"""Which published frame each frame of a play is: the one with the same bytes or, among several, the one whose timestamp
is nearest. Frames that were published only once show the shift between the timestamps of both streams."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.forensics.deliveries.delivery_frames import CODED, Frames, types_of_keys
from rtmp_spark.forensics.thresholds import BEHIND_US, COMMON_FRAMES, COMMON_SHARE, EARLY_US, NEAR_FRAMES, SHIFT_MS

Numbers = npt.NDArray[Any]


class FrameMatches(NamedTuple):
    pairs: dict[int, int]  # index of the published frame -> index of the played frame, in order
    shift: int  # of the timestamps
    unknown: list[int]  # played frames whose bytes were never published


class _Columns(NamedTuple):
    """The coded frames of a stream."""

    place: Numbers
    key: Numbers
    ts: Numbers
    dts: Numbers

    @classmethod
    def of(cls, frames: Frames) -> _Columns:
        place = np.flatnonzero(np.array(frames.kind) == CODED)
        return cls(place, *(np.array(column)[place] for column in (frames.key, frames.ts, frames.dts)))

    def select(self, rows: Numbers) -> _Columns:
        return _Columns(*(column[rows] for column in self))


def match_frames(published: Frames, played: Frames) -> FrameMatches | None:
    """None if they have too little in common."""
    sent, received = _Columns.of(published), _Columns.of(played)
    sent = sent.select(np.lexsort((sent.dts, sent.key)))
    first, last = (np.searchsorted(sent.key, received.key, side) for side in ("left", "right"))
    once = np.flatnonzero(last - first == 1)
    once = once[sent.ts[first[once]] <= received.ts[once] + EARLY_US]
    only = first[once]
    shifts = received.dts[once] - sent.dts[only]
    only, first_time = np.unique(only, return_index=True)  # the first one, if a frame was played twice
    if len(only) < COMMON_FRAMES:
        return None
    shift = int(np.median(shifts[first_time]))
    pairs = dict(zip(only.tolist(), once[first_time].tolist()))
    _match_copies(sent, received, pairs, first, last, _present_shifts(received, once, shifts, shift))
    chosen = _without_late(sent, received, np.array(sorted(pairs.items()), np.int64))
    if len(chosen) < max(COMMON_FRAMES, COMMON_SHARE * len(received.key)):
        return None
    indices = zip(sent.place[chosen[:, 0]].tolist(), received.place[chosen[:, 1]].tolist())
    return FrameMatches(dict(sorted(indices)), shift, received.place[first == last].tolist())


def _present_shifts(received: _Columns, once: Numbers, shifts: Numbers, shift: int) -> Numbers:
    """For each played frame the shift that the last frame of its track showed: timestamps lag after data that was not
    captured."""
    present = np.full(len(received.key), shift)
    tracks = types_of_keys(received.key)
    for track in np.unique(tracks[once]):
        own = np.flatnonzero(tracks == track)
        known = tracks[once] == track
        last = np.searchsorted(once[known], own, "right") - 1
        present[own[last >= 0]] = shifts[known][last[last >= 0]]
    return present


def _match_copies(
    sent: _Columns, received: _Columns, pairs: dict[int, int], first: Numbers, last: Numbers, shifts: Numbers
) -> None:
    """Add the played frames whose bytes were published several times, `first` to `last`, in order of their timestamps:
    each is the nearest one that is free and was not published after it arrived."""
    several = np.flatnonzero(last - first > 1)
    if not len(several):
        return
    times, stamps = sent.ts.tolist(), sent.dts.tolist()
    columns = (several, first[several], last[several], (received.dts - shifts)[several], received.ts[several])
    for number, begin, end, stamp, arrived in zip(*(column.tolist() for column in columns)):
        middle = bisect_left(stamps, stamp, begin, end)
        around = range(max(middle - NEAR_FRAMES, begin), min(middle + NEAR_FRAMES, end))
        near = [n for n in around if n not in pairs and times[n] <= arrived + EARLY_US]
        best = min(near, key=lambda n: abs(stamps[n] - stamp), default=None)
        if best is not None and abs(stamps[best] - stamp) <= SHIFT_MS:
            pairs[best] = number


def _without_late(sent: _Columns, received: _Columns, pairs: Numbers) -> Numbers:
    """The pairs without frames that arrived long after a later frame of their track: those come from a second publish
    of the same content."""
    pairs = pairs[np.argsort(sent.place[pairs[:, 0]])]
    tracks, arrived = types_of_keys(sent.key[pairs[:, 0]]), received.ts[pairs[:, 1]]
    is_late = np.zeros(len(pairs), bool)
    for track in np.unique(tracks):
        own = tracks == track
        of_later = np.minimum.accumulate(arrived[own][::-1])[::-1]  # the first arrival from here on
        is_late[own] = arrived[own] > of_later + BEHIND_US
    return pairs[~is_late]
