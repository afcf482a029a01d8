"""Deliver the packets of a batch that continue their streams, in columns: one join of slices per direction."""

from __future__ import annotations

from typing import Final

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, FIN, SYN, Segments
from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.capture.tcp.sequence_numbers import HALF, MASK, signed
from rtmp_spark.capture.tcp.stream_items import ItemList, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection

_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost


class InOrderSegments:
    """The in-order rows of a batch, divided into directions, with sums for each direction."""

    def __init__(self, segments: Segments, flows: Flows, rows: Ints) -> None:
        packet = flows.order[rows]
        flow = (flows.group * 2 + flows.side)[rows]
        first = np.ones(len(rows), bool)
        first[1:] = flow[1:] != flow[:-1]
        starts = np.flatnonzero(first)
        self.flow = flow[starts]
        self.sides = (self.flow & 1).tolist()
        self._data = segments.data
        self._view = memoryview(segments.data)
        self._length = segments.length[packet]
        self._run = np.cumsum(first) - 1
        total = np.cumsum(self._length)
        self._within = total - self._length
        self._within -= self._within[starts][self._run]
        if not len(starts):
            return
        frame, ts_ns, flags = segments.frame[packet], segments.ts_ns[packet], segments.flags[packet]
        self._bytes = np.add.reduceat(self._length, starts).tolist()
        bounds = np.append(starts, len(rows))
        self._packets = np.diff(bounds).tolist()
        self._first_ts, self._first_frame = _extreme(ts_ns, frame, starts, np.minimum)
        self._last_ts, self._last_frame = _extreme(ts_ns, frame, starts, np.maximum)
        self._rows = starts, frame, ts_ns
        opened, opened_ns = frame[starts], ts_ns[starts]
        back = opened_ns > self._first_ts
        back[1:] |= (self.flow[1:] ^ 1 == self.flow[:-1]) & ((np.diff(opened) > 0) == (np.diff(opened_ns) < 0))
        self._opened, self._back_in_time = opened.tolist(), back.tolist()
        self._seq = segments.seq[packet][starts].tolist()
        self._flags = np.bitwise_or.reduceat(flags, starts).tolist()
        self._first_flags = flags[starts].tolist()
        self._first_ack = segments.ack[packet][starts].tolist()
        self._scale = segments.wscale[packet][starts].tolist()
        self._vlan = segments.vlan[packet][starts].tolist()
        last = bounds[1:] - 1
        self._window = segments.window[packet][last].tolist()
        self._last_flags = flags[last].tolist()
        acks = segments.ack[packet]
        has_ack = (flags & ACK) != 0
        reference = np.full(len(starts), -1, np.int64)
        some = np.flatnonzero(has_ack)
        reference[self._run[some][::-1]] = acks[some][::-1]  # the first acknowledgement of each direction
        advance = np.where(has_ack, signed(acks - reference[self._run]), -HALF)
        highest = (reference + np.maximum.reduceat(advance, starts)) & MASK
        self._acked = np.where(reference < 0, -1, highest).tolist()
        fins = np.flatnonzero(flags & FIN)
        places = zip(frame[fins].tolist(), ts_ns[fins].tolist(), strict=True)
        self._fin = dict(zip(self._run[fins].tolist(), places, strict=True))
        payload = np.flatnonzero(self._length)
        self._bounds = np.searchsorted(payload, bounds).tolist()
        start = segments.start[packet][payload]
        self._from = start.tolist()
        self._to = (start + self._length[payload]).tolist()
        self._offsets = self._within[payload]
        self._frames = frame[payload]
        self._times = ts_ns[payload]

    def ends(self, before: Ints) -> Ints:
        """Per row, the stream offset after its payload (-1: none); `before` has the first offset of each direction."""
        return np.where(self._length > 0, before[self._run] + self._within + self._length, -1)

    def note(self, low: int, high: int, connection: Connection) -> None:
        """Note the first packets of the directions [low, high) of a connection, then their last ones."""
        if True in self._back_in_time[low:high] and not connection.named:
            self._note_opening(low, high, connection)
        else:
            for at in range(low, high):
                connection.note(self.sides[at], self._first_frame[at], self._first_ts[at], self._vlan[at])
        for at in range(low, high):
            connection.note_last(self._last_frame[at], self._last_ts[at])

    def _note_opening(self, low: int, high: int, connection: Connection) -> None:
        """Note packets one by one, up to the first with payload: it settles which packet was the first."""
        starts, frame, ts_ns = self._rows
        first, last = int(starts[low]), int(starts[high]) if high < len(starts) else len(frame)
        for row in first + np.argsort(frame[first:last]):
            at = int(self._run[row])
            connection.note(self.sides[at], int(frame[row]), int(ts_ns[row]), self._vlan[at])
            if self._length[row]:
                return

    def note_window(self, at: int, connection: Connection) -> None:
        stream = connection.sides[self.sides[at]]
        stream.window = connection.scaled(stream, self._window[at], self._last_flags[at])

    def continue_stream(self, at: int, connection: Connection, stream: Stream, out: ItemList) -> None:
        """Deliver the rows of one direction."""
        side = stream.side
        stream.note(self._first_ts[at], self._last_frame[at], self._last_ts[at])
        stream.packets += self._packets[at]
        if self._acked[at] >= 0:
            connection.acknowledge(connection.sides[1 - side], self._acked[at])
        if self._first_flags[at] & SYN:
            connection.synchronise(
                side, self._opened[at], self._seq[at], self._first_ack[at], self._first_flags[at], self._scale[at], out
            )
        low, high = self._bounds[at], self._bounds[at + 1]
        if low < high:
            data = self._data
            if high - low == 1:
                joined = data[self._from[low] : self._to[low]]
            else:
                view = self._view  # slices of it are not copies
                joined = b"".join([view[a:b] for a, b in zip(self._from[low:high], self._to[low:high], strict=True)])
            begins = stream.next_offset
            offsets = self._offsets[low:high] + begins
            stream.take(joined, int(self._times[high - 1]))
            direction = stream.side ^ connection.origin
            frames, times = self._frames[low:high], self._times[low:high]
            out.out.append(_new(Run, (connection, direction, begins, joined, offsets, frames, times)))
        if self._flags[at] & FIN:
            stream.fin = stream.next_offset
            stream.fin_frame, stream.fin_ts_ns = self._fin[at]


def _extreme(ts_ns: Ints, frame: Ints, starts: Ints, ufunc: np.ufunc) -> tuple[list[int], list[int]]:
    """Per direction the earliest (or latest) time, and the earliest (or latest) frame that has it."""
    times = ufunc.reduceat(ts_ns, starts)
    run = np.zeros(len(ts_ns), np.int64)
    run[starts[1:]] = 1
    has_it = ts_ns == times[np.cumsum(run)]
    worst = np.int64(1 << 62) if ufunc is np.minimum else np.int64(-1)
    return times.tolist(), ufunc.reduceat(np.where(has_it, frame, worst), starts).tolist()
