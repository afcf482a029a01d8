"""Finds the packet that carried a byte of a stream."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from rtmp_spark.capture.tcp.stream_items import Run
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import KEPT_SEGMENTS

_FEW_SEGMENTS: Final = 32  # below this, plain Python is faster than numpy calls


PlacesState = SavedFields  # the columns and `high`


class SegmentPlaces:
    """Columns of the segments whose bytes may still be asked for, sorted by stream offset.

    `at` is the packet at which all bytes up to this segment were known; `high` the largest packet so far.
    """

    __slots__ = ("at", "frames", "high", "offsets", "times")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.frames: list[int] = []
        self.times: list[int] = []  # microseconds
        self.at: list[int] = []
        self.high = 0

    def add(self, run: Run) -> None:
        if len(run.seg_frames) <= _FEW_SEGMENTS:
            self._add_few(run)
            return
        known = np.maximum.accumulate(run.seg_frames)
        if len(known) and known[0] < self.high:
            known = np.maximum(known, self.high)
        self.offsets += run.seg_offsets.tolist()
        self.frames += run.seg_frames.tolist()
        self.times += (run.seg_ts_ns // 1000).tolist()
        self.at += known.tolist()
        if self.at:
            self.high = self.at[-1]

    def _add_few(self, run: Run) -> None:
        frames = run.seg_frames.tolist()
        self.offsets += run.seg_offsets.tolist()
        self.frames += frames
        self.times += [ts_ns // 1000 for ts_ns in run.seg_ts_ns.tolist()]
        high = self.high
        if frames and frames[0] >= high and frames == sorted(frames):
            self.at += frames
            self.high = frames[-1]
            return
        for frame in frames:
            if frame > high:
                high = frame
            self.at.append(high)
        self.high = high

    def raise_to(self, frame: int) -> None:
        self.high = max(self.high, frame)

    def find(self, offset: int) -> tuple[int, int, int]:
        """(at, frame, ts) of the byte at this stream offset."""
        if not self.offsets:
            return self.high, self.high, 0
        index = max(bisect_right(self.offsets, offset) - 1, 0)
        return self.at[index], self.frames[index], self.times[index]

    def oldest_since(self, offset: int) -> int | None:
        """The smallest time of a segment with bytes from this stream offset on."""
        return min(self.times[max(bisect_right(self.offsets, offset) - 1, 0) :], default=None)

    def forget_before(self, offset: int) -> None:
        keep = bisect_right(self.offsets, offset) - 1
        keep = max(keep, len(self.offsets) - KEPT_SEGMENTS)
        if keep > 0:
            del self.offsets[:keep], self.frames[:keep], self.times[:keep], self.at[:keep]

    def forget_all(self) -> None:
        for column in (self.offsets, self.frames, self.times, self.at):
            column.clear()

    def state(self) -> PlacesState:
        return self.offsets, self.frames, self.times, self.at, self.high

    @classmethod
    def resume(cls, state: PlacesState) -> SegmentPlaces:
        places = cls()
        places.offsets, places.frames, places.times, places.at, places.high = state
        return places
