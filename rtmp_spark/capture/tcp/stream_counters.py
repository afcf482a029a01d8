"""The numbers of one direction of a TCP connection: sequence numbers, byte counts, times, windows.

The reassembly (half_stream.py) changes them; rows and rules read them. They are part of a connection's saved state.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any, Final

from rtmp_spark.capture.tcp.sequence_numbers import distance

_COUNTS: Final = (
    "packets",
    "captured_bytes",
    "delivered_bytes",
    "duplicate_bytes",
    "duplicate_packets",
    "conflict_bytes",
    "skipped_bytes",
    "missed_bytes",
    "cut_bytes",
    "retransmitted_bytes",
    "out_of_order_packets",
    "gaps",
    "conflicts",
    "zero_windows",
    "zero_window_ns",
)
_POSITIONS: Final = (
    "base",
    "synced",
    "syn",
    "next_offset",
    "top",
    "top_ts_ns",
    "acked_seq",
    "heard_seq",
    "fin",
    "fin_frame",
    "fin_ts_ns",
    "scale",
    "window",
    "zero_since_ns",
    "zero_frame",
    "zero_ts_ns",
    "duplicate_frame",
    "duplicate_ts_ns",
    "ts_first_ns",
    "ts_last_ns",
    "frame_last",
)
_SAVED: Final = (*_COUNTS, *_POSITIONS)  # in the order of the saved state
_saved = attrgetter(*_SAVED)


class StreamCounters:
    """What is known about the bytes that one side sent. Offsets count from the byte after the SYN."""

    __slots__ = (*_SAVED, "emitted", "side", "skipped_reasons", "syn_frame")

    def __init__(self, side: int) -> None:
        self.side = side
        self.packets = 0
        self.captured_bytes = 0
        self.delivered_bytes = 0
        self.duplicate_bytes = 0
        self.duplicate_packets = 0  # the same packets again, which are not among `packets`
        self.conflict_bytes = 0
        self.skipped_bytes = 0
        self.missed_bytes = 0
        self.cut_bytes = 0
        self.retransmitted_bytes = 0
        self.out_of_order_packets = 0
        self.gaps = 0
        self.conflicts = 0
        self.zero_windows = 0
        self.zero_window_ns = 0
        self.base: int | None = None  # sequence number of offset 0; a guess until `synced`
        self.synced = False
        self.syn = False
        self.next_offset = 0
        self.top = 0  # the highest end of any segment
        self.top_ts_ns = 0
        self.acked_seq: int | None = None
        self.heard_seq: int | None = None  # by acknowledgements alone, if a reset implied a later one; -1: none
        self.fin: int | None = None  # offset where the stream ends
        self.fin_frame = 0
        self.fin_ts_ns = 0
        self.syn_frame = 0
        self.scale = -1
        self.window = -1  # last advertised by this side, scaled
        self.zero_since_ns: int | None = None
        self.zero_frame: int | None = None  # packet with which its receiver first closed the window
        self.zero_ts_ns = 0
        self.duplicate_frame: int | None = None  # the first packet that was recorded again
        self.duplicate_ts_ns = 0
        self.ts_first_ns: int | None = None
        self.ts_last_ns: int | None = None
        self.frame_last = 0
        self.skipped_reasons: Counter[str] | None = None
        self.emitted = False  # something was delivered, so the direction of the stream must not change any more

    def offset_of(self, seq: int) -> int:
        assert self.base is not None
        return self.next_offset + distance(seq, self.base + self.next_offset)

    @property
    def acked_offset(self) -> int | None:
        """How far the receiver acknowledged this stream (a FIN counts as one byte)."""
        if self.acked_seq is None or self.base is None:
            return None
        return self.offset_of(self.acked_seq)

    @property
    def unacked_bytes(self) -> int | None:
        acked = self.acked_offset
        if acked is None:
            return None
        return max(0, max(self.top, self.next_offset) - max(acked, 0))

    @property
    def settled(self) -> bool:
        """All of it was delivered and its receiver acknowledged the FIN: retransmissions cannot change anything."""
        if self.fin is None or self.next_offset < self.fin:
            return False
        acked = self.acked_offset
        return acked is not None and acked > self.fin

    def sent_before(self, seq: int, length: int) -> bool:
        """Whether later bytes, or an acknowledgement of these, were already recorded."""
        if self.base is None or not length:
            return False
        return self.offset_of(seq) + length <= max(self.top, self.fin or 0, self.acked_offset or 0)

    def note(self, first_ts_ns: int, last_frame: int, last_ts_ns: int) -> None:
        """Extend the times by those of packets of this side."""
        if self.ts_first_ns is None or first_ts_ns < self.ts_first_ns:
            self.ts_first_ns = first_ts_ns
        if self.ts_last_ns is None or (last_ts_ns, last_frame) > (self.ts_last_ns, self.frame_last):
            self.ts_last_ns, self.frame_last = last_ts_ns, last_frame

    def skip(self, count: int, why: str) -> None:
        """Count captured bytes that are not delivered."""
        if count:
            self.skipped_bytes += count
            if self.skipped_reasons is None:
                self.skipped_reasons = Counter()
            self.skipped_reasons[why] += count

    def saved_counters(self) -> list[Any]:
        return [*_saved(self), dict(self.skipped_reasons or {})]

    def restore_counters(self, values: list[Any]) -> None:
        *numbers, reasons = values
        for name, value in zip(_SAVED, numbers, strict=True):
            setattr(self, name, value)
        self.skipped_reasons = Counter(reasons) or None
