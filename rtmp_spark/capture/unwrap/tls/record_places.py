"""Packets and times of TLS records in one direction, from the packets of the TCP bytes they are made of."""

from __future__ import annotations

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.tcp.stream_items import Run


class RecordPlaces:
    def __init__(self) -> None:
        self.last_run: Run | None = None
        self.high = (0, 0)  # the latest packet, and its time
        self.floor = 0  # the latest packet before the last run
        self.begun_ns = 0  # the latest time of bytes before the last run that belong to an incomplete record

    def add_run(self, run: Run) -> None:
        self.last_run = run
        self.floor = self.high[0]
        if len(run.seg_frames):
            last = int(np.argmax(run.seg_frames))
            self.raise_to(int(run.seg_frames[last]), int(run.seg_ts_ns[last]))

    def raise_to(self, frame: int, ts_ns: int) -> None:
        if frame > self.high[0]:
            self.high = (frame, ts_ns)

    def of_records(self, starts: Ints, lasts: Ints) -> tuple[Ints, Ints]:
        """For each record, the packet with which all its bytes had arrived, and the latest time of its bytes.

        If packets were recorded out of order, these may be two packets: the time must not depend on the order.
        """
        run = self.last_run
        if run is None or not len(run.seg_frames):
            frame, ts_ns = self.high
            return np.full(len(lasts), frame, np.int64), np.full(len(lasts), ts_ns, np.int64)
        frames = np.maximum(np.maximum.accumulate(run.seg_frames), self.floor)
        index = np.maximum(np.searchsorted(run.seg_offsets, lasts, "right") - 1, 0)
        times = run.seg_ts_ns[index]
        if (run.seg_ts_ns[1:] < run.seg_ts_ns[:-1]).any():
            first = np.maximum(np.searchsorted(run.seg_offsets, starts, "right") - 1, 0)
            between = np.stack((np.minimum(first, index), index + 1), 1).ravel()
            padded = np.append(run.seg_ts_ns, 0)  # so that every end is an index
            times = np.maximum.reduceat(padded, between)[::2]
        begun = starts < run.offset
        return frames[index], np.where(begun, np.maximum(times, self.begun_ns), times)

    def incomplete_ns(self, pending: bool, offset: int) -> int:
        """The latest time of the bytes so far that belong to an incomplete record, which begins at `offset`."""
        run = self.last_run
        if run is None or not len(run.seg_ts_ns):
            return self.begun_ns
        if not pending:
            return 0
        first = max(int(np.searchsorted(run.seg_offsets, offset, "right")) - 1, 0)
        latest = int(run.seg_ts_ns[first:].max())
        return max(latest, self.begun_ns) if offset < run.offset else latest
