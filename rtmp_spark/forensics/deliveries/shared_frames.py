"""Finds the published streams that have frames of a played one, without comparing every pair of streams.

The published streams become an index from checksums to streams; the checksums of a play are looked up in it. A pair is
worth a comparison if both streams have `COMMON_FRAMES` distinct coded frames in common, which are `COMMON_SHARE` of the
played frames: a match needs both, so no match is missed. Two limits bound what streams with the same content cost:

- A play is compared with at most `COMPARED_STREAMS` streams, those with the most distinct frames in common.
- Frames that very many streams have (silence, black pictures, a looped clip) are looked up in streams in the order in
  which they began, until `SHARED_FRAMES` and `SHARED_FRAMES_EACH` per frame of the play were found.

Both depend on the play and the streams of its time only, never on what else is analyzed at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rtmp_spark.codec.limits import COMPARED_STREAMS, INDEXED_FRAMES, SHARED_FRAMES, SHARED_FRAMES_EACH
from rtmp_spark.forensics.deliveries.delivery_frames import CODED, Stream
from rtmp_spark.forensics.thresholds import CACHE_US, COMMON_FRAMES, COMMON_SHARE

Keys = npt.NDArray[np.uint64]


class Found:
    """What the search found for one play."""

    __slots__ = ("_best", "complete", "shared", "streams")

    def __init__(self) -> None:
        self.streams = 0  # that have enough frames in common
        self.shared = 0  # frames found in all streams so far
        self.complete = True  # False: the limit was reached before all streams were looked at
        self._best: list[tuple[int, int]] = []  # (-distinct frames in common, number of the stream)

    def add(self, distinct: Sequence[int], numbers: Sequence[int]) -> None:
        self.streams += len(numbers)
        self._best = sorted([*self._best, *((-count, number) for count, number in zip(distinct, numbers))])
        del self._best[COMPARED_STREAMS:]

    @property
    def compared(self) -> list[int]:
        """Numbers of the published streams to compare with the play."""
        return sorted(number for _, number in self._best)


class SharedFrames:
    """The search for a number of plays. The published streams are added in blocks, in the order of `search_order`."""

    def __init__(self, played: Sequence[Stream]) -> None:
        self.found = [Found() for _ in played]
        self._played = played
        self._added = 0
        keys, counts, ends = [], [], [0]
        for play in played:
            own, times = np.unique(_coded(play), return_counts=True)
            keys.append(own)
            counts.append(times)
            ends.append(ends[-1] + len(own))
        self._keys: Keys = np.concatenate([np.empty(0, np.uint64), *keys])
        self._counts = np.concatenate([np.empty(0, np.int64), *counts])
        self._ends = np.array(ends)

    def add(self, published: Sequence[Stream]) -> None:
        """Look for the frames of all plays in some more published streams, numbered in the order of all calls."""
        for block in _blocks(published):
            self._look_in(block)
            self._added += len(block)

    def _look_in(self, published: Sequence[Stream]) -> None:
        keys, ends, owners = _index(published)
        if not len(keys):
            return
        starts = np.array([stream.ts_start for stream in published])
        stops = np.array([stream.ts_end for stream in published])
        at = np.minimum(np.searchsorted(keys, self._keys), len(keys) - 1)
        hit = keys[at] == self._keys
        hits = np.diff(np.concatenate([[0], np.cumsum(hit)])[self._ends])
        for number in np.flatnonzero(hits).tolist():
            if not self.found[number].complete:
                continue
            own = slice(self._ends[number], self._ends[number + 1])
            chosen = at[own][hit[own]]
            lengths = ends[chosen + 1] - ends[chosen]
            places = np.repeat(ends[chosen] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            times = np.repeat(self._counts[own][hit[own]], lengths)
            play = self._played[number]
            simultaneous = (starts <= play.ts_end) & (stops >= play.ts_start - CACHE_US)
            mine = owners[places]
            distinct = np.bincount(mine, minlength=len(published)) * simultaneous
            frames = np.bincount(mine, times, minlength=len(published))
            self._judge(number, distinct, frames)

    def _judge(self, number: int, distinct: npt.NDArray[np.int64], frames: npt.NDArray[np.int64 | np.float64]) -> None:
        """Note the streams with enough in common; in order, up to the limit on shared frames."""
        found = self.found[number]
        first, last = self._ends[number], self._ends[number + 1]
        shared = found.shared + np.cumsum(distinct)
        looked_at = int(np.searchsorted(shared, SHARED_FRAMES + SHARED_FRAMES_EACH * int(last - first), "right"))
        found.complete = looked_at == len(distinct)
        found.shared = int(shared[-1])
        least = COMMON_SHARE * self._counts[first:last].sum()
        enough = np.flatnonzero((distinct[:looked_at] >= COMMON_FRAMES) & (frames[:looked_at] >= least))
        found.add(distinct[enough].tolist(), (enough + self._added).tolist())


def search_order(stream: Stream) -> tuple[int, str, int]:
    return stream.ts_start, stream.uid, stream.stream_id


def _coded(stream: Stream) -> Keys:
    frames = stream.frames
    coded: Keys = np.array(frames.key, np.uint64)[np.array(frames.kind, np.int8) == CODED]
    return coded


def _blocks(published: Sequence[Stream]) -> Iterator[Sequence[Stream]]:
    """Parts of the streams with about `INDEXED_FRAMES` frames and at most 4096 streams."""
    first = frames = 0
    for number, stream in enumerate(published):
        if number > first and (frames + len(stream.frames) > INDEXED_FRAMES or number - first == 4096):
            yield published[first:number]
            first, frames = number, 0
        frames += len(stream.frames)
    yield published[first:]


def _index(published: Sequence[Stream]) -> tuple[Keys, npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Distinct checksums in order; where their streams are in the third array, with an end after the last; streams."""
    each = [np.unique(_coded(stream)) for stream in published]
    keys = np.concatenate([np.empty(0, np.uint64), *each])
    owners = np.repeat(np.arange(len(each), dtype=np.int32), [len(own) for own in each])
    order = np.argsort(keys, kind="stable")
    distinct, firsts = np.unique(keys[order], return_index=True)
    return distinct, np.append(firsts, len(keys)), owners[order]
