"""What became of each packet of a batch, for the counters per second."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, RST, SYN, Segments
from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.capture.tcp.interval_collector import IntervalCollector
from rtmp_spark.capture.tcp.interval_counters import NO_WINDOW, ZERO, Observed
from rtmp_spark.capture.tcp.loss_observation import note_sent, take_duplicate_reports
from rtmp_spark.capture.tcp.sequence_numbers import distance, signed
from rtmp_spark.capture.tcp.tcp_connection import Connection


class StreamBefore(NamedTuple):
    """A stream at the beginning of the batch."""

    acked_seq: int | None = None
    base: int | None = None
    top: int = 0


class BatchObservation:
    """Columns over the rows of a batch (packets sorted by connection), filled in by the reassembly."""

    def __init__(self, segments: Segments, flows: Flows, slots: list[Connection], per_second: bool) -> None:
        self._segments = segments
        self._flows = flows
        self._slots = slots  # the connections of the batch; the reassembly appends the ones that begin in it
        rows = len(flows.order)
        self.slot = flows.group.copy()
        self.end = np.full(rows, -1, np.int64)  # stream offset after the payload; -1: none
        self.end_seq = np.full(rows, -1, np.int64)  # instead of `end`, where offset 0 is a guess that may change
        self.retransmitted = np.zeros(rows, np.int64)
        self.wanted = np.ones(rows, bool)
        self._before = [_before(connection) for connection in slots] if per_second else []

    def add_slot(self, connection: Connection) -> int:
        """A connection that begins in this batch."""
        self._slots.append(connection)
        self._before.append((StreamBefore(), StreamBefore()))
        return len(self._slots) - 1

    def report(self, intervals: IntervalCollector) -> None:
        """Add the batch to the counters per second."""
        rows = np.flatnonzero(self.wanted)
        if not len(rows):
            return
        rows = rows[np.argsort(self.slot[rows], kind="stable")]
        take_duplicate_reports(self._segments, self._flows, self._slots, self.slot, rows)
        note_sent(self._segments, self._flows, self._slots, self.slot, rows)  # closes seconds
        seen = self._observed(rows, intervals)
        if intervals.per_second:
            top_before, moved = self._top_before()
            intervals.add_batch(seen, self._slots, self._acked_before(), top_before, moved)
        else:
            intervals.add_retransmissions(seen, self._slots)

    def _observed(self, rows: Ints, intervals: IntervalCollector) -> Observed:
        slot, side = self.slot[rows], self._flows.side[rows]
        packet = self._flows.order[rows]
        segments = self._segments
        flags = segments.flags[packet]
        streams = self._streams()
        base, following = streams.base, streams.next_offset
        own, other = slot * 2 + side, slot * 2 + 1 - side
        ack = following[other] + signed(segments.ack[packet] - base[other] - following[other])
        has_ack = ((flags & ACK) != 0) & (base[other] >= 0)
        end, end_seq = self.end[rows], self.end_seq[rows]
        guessed = end_seq >= 0
        if guessed.any():
            found = following[own] + signed(end_seq - base[own] - following[own])
            end = np.where(guessed, found, end)
        too_early = segments.frame[packet] < streams.scaled_since[own]
        shift = np.where(flags & SYN, 0, np.where(too_early, -1, streams.window_shift[own]))
        window = segments.window[packet] << np.maximum(shift, 0)
        seen = Observed(
            slot,
            side,
            segments.ts_ns[packet],
            np.where(guessed | (end >= 0), end + ZERO, -1),
            np.where(has_ack, ack + ZERO, -1),
            segments.length[packet] + segments.missing[packet],
            self.retransmitted[rows],
            np.where((flags & (ACK | SYN) == 0) | (flags & RST != 0), NO_WINDOW, window),
            np.zeros(len(rows), bool),
        )
        self._note_zero_windows(seen, flags, packet, intervals)
        seen.window = np.where((shift < 0) & (seen.window > 0), NO_WINDOW, seen.window)
        return seen

    def _streams(self) -> _Streams:
        base, following, shift, since = [], [], [], []
        begins = int(self._segments.frame[0])
        for connection in self._slots:
            low, high = connection.sides
            both = low.scale >= 0 and high.scale >= 0
            for stream in (low, high):
                base.append(-1 if stream.base is None else stream.base)
                following.append(stream.next_offset)
                shift.append(stream.scale if both else connection.window_shift(stream))
                new = low.syn_frame >= begins or high.syn_frame >= begins
                since.append(connection.scaled_since(stream) if new else 0)
        return _Streams(*(np.array(column, np.int64) for column in (base, following, shift, since)))

    def _note_zero_windows(self, seen: Observed, flags: Ints, packet: Ints, intervals: IntervalCollector) -> None:
        closed = (seen.window == 0) & ((flags & SYN) == 0)
        waiting = np.array([s.zero_since_ns is not None for c in self._slots for s in c.sides], bool)
        if not closed.any() and not waiting.any():
            return
        concerned = waiting.copy()
        concerned[(seen.slot * 2 + seen.side)[closed]] = True
        advertises = (seen.window < NO_WINDOW) & ((flags & SYN) == 0)
        for row in np.flatnonzero(concerned[seen.slot * 2 + seen.side] & advertises).tolist():
            connection = self._slots[int(seen.slot[row])]
            stream = connection.sides[int(seen.side[row])]
            ts_ns = int(seen.ts_ns[row])
            if closed[row]:
                if stream.zero_since_ns is None:
                    stream.zero_since_ns = ts_ns
                    waits = connection.sides[1 - stream.side]
                    waits.zero_windows += 1
                    if waits.zero_frame is None:
                        waits.zero_frame, waits.zero_ts_ns = int(self._segments.frame[packet[row]]), ts_ns
            elif stream.zero_since_ns is not None:
                intervals.add_zero_window(connection, stream, ts_ns)
                stream.zero_since_ns = None

    def _acked_before(self) -> Ints:
        """Per slot and side, the offset that was acknowledged at the beginning of the batch; -1: none."""
        table = []
        for connection, saved in zip(self._slots, self._before, strict=True):
            for stream, before in zip(connection.sides, saved, strict=True):
                acked = None if stream.base is None else before.acked_seq
                table.append(-1 if acked is None else stream.offset_of(acked) + ZERO)
        return np.array(table, np.int64).reshape(-1, 2)

    def _top_before(self) -> tuple[Ints, Ints]:
        """Per slot and side, the highest offset that was sent before the batch (0: none), and the difference between
        offsets at that time and now."""
        table, shifts = [], []
        for connection, saved in zip(self._slots, self._before, strict=True):
            for stream, before in zip(connection.sides, saved, strict=True):
                known = before.base is not None and stream.base is not None
                moved = distance(before.base or 0, stream.base or 0) if known else 0
                table.append(before.top + moved + ZERO if before.top else 0)
                shifts.append(moved)
        return np.array(table, np.int64).reshape(-1, 2), np.array(shifts, np.int64).reshape(-1, 2)


class _Streams(NamedTuple):
    """Columns over the streams of the slots, two per slot."""

    base: Ints  # -1: unknown
    next_offset: Ints
    window_shift: Ints  # -1: unknown
    scaled_since: Ints  # the packet from which `window_shift` is known


def _before(connection: Connection) -> tuple[StreamBefore, StreamBefore]:
    low, high = connection.sides
    if connection.reset_side is None:
        acked = low.acked_seq, high.acked_seq
    else:
        acked = _heard(low), _heard(high)
    return StreamBefore(acked[0], low.base, low.top), StreamBefore(acked[1], high.base, high.top)


def _heard(stream: Stream) -> int | None:
    """The last acknowledgement of a stream; the sequence number of a reset is not one."""
    seq = stream.acked_seq if stream.heard_seq is None else stream.heard_seq
    return None if seq is not None and seq < 0 else seq
