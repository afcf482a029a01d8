"""Counts the segments of one direction that the network lost, as retransmissions show it.

Not every retransmission follows a loss. Not counted are those that the receiver reports as duplicates (DSACK, RFC
2883; most tail-loss probes), those whose data it had acknowledged, those sent into a closed window, and those with the
IP id of the first transmission, which the network doubled.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

from rtmp_spark.capture.tcp.interval_counters import SECOND_NS
from rtmp_spark.capture.tcp.sequence_numbers import distance
from rtmp_spark.codec.limits import (
    LOSS_OPEN_SECONDS,
    LOSS_SECOND_BYTES,
    MAX_TROUBLED_SECONDS,
    OPEN_SECONDS,
    UNCONFIRMED_LOSSES,
)


class Retransmitted(NamedTuple):
    """A retransmission that counts as a loss until its receiver reports a duplicate."""

    seq: int
    end_seq: int
    bytes: int
    frame: int
    ts_ns: int


class LossCounter:
    __slots__ = (
        "_last_seq", "_losses", "_seconds", "_troubled", "bytes", "data_packets", "segments", "sent_bytes",
        "worst_share",
    )  # fmt: skip

    def __init__(self) -> None:
        self.data_packets = 0
        self.sent_bytes = 0  # payload, with retransmissions and without duplicates
        self.segments = 0
        self.bytes = 0
        self.worst_share = 0.0  # of the bytes of one second that is over
        self._seconds: dict[int, list[int]] = {}  # bytes sent and lost in the last seconds
        self._troubled: list[int] = []  # seconds that are over and had losses, or with repeated retransmissions
        self._last_seq = -1  # of the last retransmission
        self._losses: list[Retransmitted] = []

    @property
    def share(self) -> float | None:
        """Lost bytes of those that were sent; None if there were none."""
        return self.bytes / self.sent_bytes if self.sent_bytes else None

    @property
    def worst_second(self) -> float:
        """The largest share of lost bytes in one second with enough bytes."""
        return max([self.worst_share, *(_share(*figures) for figures in self._seconds.values())])

    @property
    def troubled_seconds(self) -> list[int]:
        """The seconds in which segments were lost or retransmitted more than once (the first ones, if there were very
        many). A single retransmission that the receiver did not need is a tail-loss probe."""
        return self._troubled + [second for second, (_, lost) in self._seconds.items() if lost > 0]

    @property
    def first(self) -> tuple[int, int] | None:
        """Frame number and time of the first loss (of the last ones, if there were very many)."""
        return (self._losses[0].frame, self._losses[0].ts_ns) if self._losses else None

    @property
    def may_be_corrected(self) -> bool:
        return bool(self._losses)

    def add_sent(self, second: int, packets: int, size: int) -> None:
        """Data packets of one second."""
        self.data_packets += packets
        self.sent_bytes += size
        figures = self._seconds.get(second)
        if figures is not None:
            figures[0] += size
            return
        self._seconds[second] = [size, 0]
        self._close_seconds(second - LOSS_OPEN_SECONDS)

    def add_loss(self, lost: Retransmitted) -> None:
        self.segments += 1
        self.bytes += lost.bytes
        self._seconds.setdefault(lost.ts_ns // SECOND_NS, [0, 0])[1] += lost.bytes
        self._losses.append(lost)
        if len(self._losses) > UNCONFIRMED_LOSSES:
            del self._losses[1]  # the first one tells the place

    def note_retransmission(self, seq: int, ts_ns: int) -> None:
        """A retransmission, whether it shows a loss or not."""
        if seq == self._last_seq:
            self._add_troubled(ts_ns // SECOND_NS)
        self._last_seq = seq

    def _add_troubled(self, second: int) -> None:
        if len(self._troubled) < MAX_TROUBLED_SECONDS and self._troubled[-1:] != [second]:
            self._troubled.append(second)

    def add_duplicate_report(self, left: int, right: int, frame: int, ts_ns: int) -> None:
        """The receiver reports (in this packet) that it received these sequence numbers twice."""
        for index in range(len(self._losses) - 1, -1, -1):
            lost = self._losses[index]
            if lost.frame < frame and distance(lost.seq, right) < 0 < distance(lost.end_seq, left):
                del self._losses[index]
                self.segments -= 1
                self.bytes -= lost.bytes
                figures = self._seconds.get(lost.ts_ns // SECOND_NS)
                if figures is not None and ts_ns <= lost.ts_ns + LOSS_OPEN_SECONDS * SECOND_NS:
                    figures[1] -= lost.bytes
                return

    def _close_seconds(self, before: int) -> None:
        """Close these seconds, and the oldest if there are very many: clocks may jump."""
        if len(self._seconds) <= LOSS_OPEN_SECONDS:
            return
        oldest_first = sorted(self._seconds)
        over = bisect_left(oldest_first, before)
        for second in oldest_first[: max(over, len(oldest_first) - OPEN_SECONDS)]:
            sent, lost = self._seconds.pop(second)
            self.worst_share = max(self.worst_share, _share(sent, lost))
            if lost > 0:
                self._add_troubled(second)

    def state(self) -> list[Any]:
        counts = [self.data_packets, self.sent_bytes, self.segments, self.bytes, self.worst_share]
        return [counts, list(self._seconds.items()), self._troubled, self._last_seq, self._losses]

    def restore(self, state: list[Any]) -> None:
        counts, seconds, troubled, self._last_seq, losses = state
        self.data_packets, self.sent_bytes, self.segments, self.bytes, self.worst_share = counts
        self._seconds = {second: list(figures) for second, figures in seconds}
        self._troubled = list(troubled)
        self._losses = [Retransmitted(*lost) for lost in losses]


def _share(sent: int, lost: int) -> float:
    return lost / sent if sent >= LOSS_SECOND_BYTES else 0.0
