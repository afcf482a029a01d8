"""The packets of one window on their way into their connections.

Two ways with one outcome. Packets that simply continue their streams go through in columns; from the first one
of a connection that does not (lost, late, doubled, cut, reset, joined in the middle), the rest of that
connection's packets in this window are taken one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtmp_spark.capture.block import Ints
from rtmp_spark.capture.connection import BRIEF_NS, Connection
from rtmp_spark.capture.flows import Flows
from rtmp_spark.capture.intervals import NO_WINDOW, ZERO, Observed
from rtmp_spark.capture.items import Conflict, Item, Run
from rtmp_spark.capture.packet import ACK, FIN, RST, SYN, Segments
from rtmp_spark.capture.stream import MASK, Stream, distance

if TYPE_CHECKING:
    from rtmp_spark.capture.tcp import Reassembler

_HALF = 1 << 31
_NOT_SIMPLE, _FRESH = -1, -2


def _signed(difference: Ints) -> Ints:
    return ((difference + _HALF) & MASK) - _HALF


class Window:
    """Rows are packets sorted by connection; `slots` are the connections that they belong to."""

    def __init__(self, owner: Reassembler, segments: Segments, flows: Flows, out: list[Item]) -> None:
        self._owner = owner
        self._segments = segments
        self._flows = flows
        self._out = out
        self.slots: list[Connection] = [owner.connection_of(key) for key in flows.keys]
        before = self.slots if owner.per_second else []
        self._acked_before = [
            (c.sides[0].acked_seq, c.sides[1].acked_seq) if c.reset_side is None else _heard(c) for c in before
        ]
        self._top_before = [(c.sides[0].base, c.sides[0].top, c.sides[1].base, c.sides[1].top) for c in before]
        self._slot = flows.group.copy()
        rows = len(flows.order)
        self._end = np.full(rows, -1, np.int64)
        self._end_seq = np.full(rows, -1, np.int64)  # instead, where offset 0 is a guess that may be corrected
        self._retransmitted = np.zeros(rows, np.int64)
        self._observed = np.ones(rows, bool)
        self._after_silence = self._silences()

    def run(self) -> None:
        flows = self._flows
        by_flow = np.argsort(flows.group * 2 + flows.side, kind="stable")  # rows sorted by direction within connection
        simple = self._simple_rows(by_flow)
        fast = by_flow[simple[by_flow]]
        careful = np.flatnonzero(~simple & ~self._unwanted_rows())
        directions = _Directions(self._segments, flows, fast)
        packets = self._as_lists(careful)
        careful_group = flows.group[careful]
        groups = np.arange(len(flows.keys))
        fast_bounds = np.searchsorted(directions.flow, np.arange(2 * len(groups) + 1)).tolist()
        careful_from = np.searchsorted(careful_group, groups).tolist()
        careful_to = np.searchsorted(careful_group, groups, "right").tolist()
        before = np.zeros(len(directions.flow), np.int64)
        for number in range(len(groups)):
            connection = self.slots[number]
            low, high = fast_bounds[2 * number], fast_bounds[2 * number + 2]
            if low < high:
                directions.note(low, high, connection)
            for at in range(low, high):
                stream = connection.sides[directions.sides[at]]
                before[at] = stream.next_offset
                directions.continue_stream(at, connection, stream, self._out)
            for at in range(low, high):
                directions.note_window(at, connection)  # scaled only once both SYNs are known
            if careful_from[number] < careful_to[number]:
                self._take_one_by_one(number, careful, packets, careful_from[number], careful_to[number])
        self._end[fast] = directions.ends(before)

    def _silences(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Rows after a silence so long that they may belong to the next connection."""
        times, starts = self._segments.ts_ns[self._flows.order], self._flows.starts
        before = np.empty_like(times)
        before[1:] = times[:-1]
        known = [times[at] if c.ts_last_ns is None else c.ts_last_ns for at, c in zip(starts.tolist(), self.slots)]
        before[starts] = known
        return times - before > BRIEF_NS

    def _unwanted_rows(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Rows of connections that the consumer dropped, unless one of them opens or ends something: counted here."""
        flows, segments = self._flows, self._segments
        dropped = np.array([c.dropped and c.closed_ts_ns is None for c in self.slots], bool)
        if not dropped.any():
            return np.zeros(len(flows.group), bool)
        happens = np.bitwise_or.reduceat(segments.flags[flows.order], flows.starts) & (SYN | FIN | RST)
        dropped &= (happens == 0) & ~np.logical_or.reduceat(self._after_silence, flows.starts)
        unwanted = dropped[flows.group]
        rows = np.flatnonzero(unwanted)
        direction = (flows.group * 2 + flows.side)[rows]
        most = 2 * len(self.slots)
        packets = np.bincount(direction, minlength=most)
        lengths = np.bincount(direction, segments.length[flows.order[rows]], minlength=most).astype(np.int64)
        ends = np.append(flows.starts[1:], len(flows.group)) - 1
        for number in np.flatnonzero(dropped).tolist():
            connection = self.slots[number]
            for stream in connection.sides:
                stream.packets += int(packets[2 * number + stream.side])
                stream.captured_bytes += int(lengths[2 * number + stream.side])
                stream.skip(int(lengths[2 * number + stream.side]), "not_wanted")
            last = flows.order[ends[number]]
            connection.note(int(flows.side[ends[number]]), int(segments.frame[last]), int(segments.ts_ns[last]), -1)
        self._observed[rows] = False
        return unwanted

    def _simple_rows(self, by_flow: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Rows that continue their stream, up to the first of their connection that does not."""
        segments, flows = self._segments, self._flows
        packet = flows.order[by_flow]
        flow = (flows.group * 2 + flows.side)[by_flow]
        seq, flags, length = segments.seq[packet], segments.flags[packet], segments.length[packet]
        syn, fin = (flags & SYN) != 0, (flags & FIN) != 0
        first = np.ones(len(flow), bool)
        first[1:] = flow[1:] != flow[:-1]
        starts = np.flatnonzero(first)
        expected, ended = self._expectations(flow[starts], packet[starts])
        follows = np.empty(len(flow), np.int64)
        follows[1:] = (seq + length + syn + fin)[:-1] & MASK
        follows[starts] = np.where(expected == _FRESH, seq[starts], expected)
        fresh = np.zeros(len(flow), bool)
        fresh[starts] = expected == _FRESH
        simple = (seq == follows) & (segments.missing[packet] == 0) & ((flags & RST) == 0) & (syn == fresh)
        fins = np.cumsum(fin)
        fins_before = fins - fin
        run = np.cumsum(first) - 1
        fins_before = fins_before - fins_before[starts][run] + ended[run]
        simple &= (fins_before == 0) | ((length == 0) & ~fin)
        in_rows = np.empty(len(flow), bool)
        in_rows[by_flow] = simple
        in_rows &= ~self._after_silence
        places = np.arange(len(flow))
        cut = np.minimum.reduceat(np.where(in_rows, len(flow), places), flows.starts)
        return places < cut[flows.group]

    def _expectations(self, flow: Ints, packet: Ints) -> tuple[Ints, Ints]:
        """Per direction: the sequence number that continues it (or that it is fresh), and whether it had its FIN."""
        segments = self._segments
        first_packets = zip(
            flow.tolist(),
            packet.tolist(),
            segments.seq[packet].tolist(),
            segments.ack[packet].tolist(),
            segments.flags[packet].tolist(),
            strict=True,
        )
        expected: dict[int, int] = {}
        ended: dict[int, int] = {}
        opening: dict[int, tuple[int, int, int, int]] = {}
        for one, index, seq, ack, flags in first_packets:
            connection = self.slots[one >> 1]
            stream = connection.sides[one & 1]
            continued = stream.expected_seq
            ended[one] = int(stream.fin is not None)
            unnamed = connection.emitted and not connection.named  # any packet may still be its first
            if connection.dropped or connection.closed_ts_ns is not None or unnamed:
                expected[one] = _NOT_SIMPLE
            elif continued is not None:
                expected[one] = continued
            elif stream.base is None and flags & SYN:
                expected[one] = _FRESH
                opening[one] = (index, seq, ack, flags)
            else:
                expected[one] = _NOT_SIMPLE
        for one, (index, _seq, ack, flags) in opening.items():
            other = self.slots[one >> 1].sides[1 - (one & 1)]
            answer = opening.get(one ^ 1)
            if flags & ACK:
                if answer is not None:
                    sound = ack == (answer[1] + 1) & MASK and answer[0] < index and not answer[3] & ACK
                else:
                    sound = other.syn and other.base == ack
            else:
                sound = not other.packets and (answer is not None or one ^ 1 not in expected)
                sound = sound and (answer is None or bool(answer[3] & ACK))
            if not sound:
                expected[one] = _NOT_SIMPLE
        values = list(expected)
        return (
            np.array([expected[one] for one in values], np.int64),
            np.array([ended[one] for one in values], np.int64),
        )

    def _as_lists(self, rows: Ints) -> list[tuple[int, ...]]:
        s, packet = self._segments, self._flows.order[rows]
        columns = (s.frame, s.ts_ns, s.seq, s.ack, s.flags, s.window, s.start, s.length, s.missing, s.vlan, s.wscale)
        return list(zip(self._flows.side[rows].tolist(), *(c[packet].tolist() for c in columns), strict=True))

    def _take_one_by_one(self, slot: int, rows: Ints, packets: list[tuple[int, ...]], begin: int, end: int) -> None:
        data, out, owner = self._segments.data, self._out, self._owner
        connection = self.slots[slot]
        most = owner.limits.tcp_hold_bytes
        for at in range(begin, end):
            side, frame, ts_ns, seq, ack, flags, window, start, length, missing, vlan, wscale = packets[at]
            if connection.begins_anew(side, seq, ack, flags, ts_ns):
                connection.flush(out)
                connection = owner.replace(connection, out)
                slot = len(self.slots)
                self.slots.append(connection)
                self._acked_before.append((None, None))
                self._top_before.append((None, 0, None, 0))
            payload, told = data[start : start + length], len(out)
            reached, again = connection.receive(
                side, frame, ts_ns, seq, ack, flags, window, payload, missing, vlan, wscale, out
            )
            stream = connection.sides[side]
            row = rows[at]
            if len(out) > told:
                self._weigh_conflicts(out[told:], frame, int(row))
            if stream.held_cost > most:
                stream.release(most, out)
            elif stream.held:
                stream.give_up(ts_ns, out)
            self._slot[row] = slot
            if stream.synced or reached < 0:
                self._end[row] = reached
            else:
                self._end_seq[row] = (seq + length + missing) & MASK
            self._retransmitted[row] = again
            self._observed[row] = not connection.dropped
        connection.flush(out)

    def _weigh_conflicts(self, items: list[Item], frame: int, row: int) -> None:
        for item in items:
            if isinstance(item, Conflict) and item.frame == frame:
                item.intact = self._segments.intact(int(self._flows.order[row]))

    def observed(self) -> Observed | None:
        """What the per-second facts are made of; None when nothing here is wanted."""
        rows = np.flatnonzero(self._observed)
        if not len(rows):
            return None
        rows = rows[np.argsort(self._slot[rows], kind="stable")]
        slot, side = self._slot[rows], self._flows.side[rows]
        packet = self._flows.order[rows]
        segments = self._segments
        flags = segments.flags[packet]
        base, following, shift, scaled_since = self._references()
        own, other = slot * 2 + side, slot * 2 + 1 - side
        ack = following[other] + _signed(segments.ack[packet] - base[other] - following[other])
        has_ack = ((flags & ACK) != 0) & (base[other] >= 0)
        end, end_seq = self._end[rows], self._end_seq[rows]
        guessed = end_seq >= 0
        if guessed.any():
            found = following[own] + _signed(end_seq - base[own] - following[own])
            end = np.where(guessed, found, end)
        shift = np.where(flags & SYN, 0, np.where(segments.frame[packet] < scaled_since[own], -1, shift[own]))
        window = segments.window[packet] << np.maximum(shift, 0)
        seen = Observed(
            slot,
            side,
            segments.ts_ns[packet],
            np.where(guessed | (end >= 0), end + ZERO, -1),
            np.where(has_ack, ack + ZERO, -1),
            segments.length[packet] + segments.missing[packet],
            self._retransmitted[rows],
            np.where((flags & (ACK | SYN) == 0) | (flags & RST != 0), NO_WINDOW, window),
            np.zeros(len(rows), bool),
        )
        self._note_zero_windows(seen, flags, packet)
        seen.window = np.where((shift < 0) & (seen.window > 0), NO_WINDOW, seen.window)
        return seen

    def _references(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Per direction of each slot: base (-1: not known), next offset, window shift (-1: not known) and from which
        packet on it is known."""
        base, following, shift, since = [], [], [], []
        begins = int(self._segments.frame[0])
        for connection in self.slots:
            low, high = connection.sides
            both = low.scale >= 0 and high.scale >= 0
            for stream in (low, high):
                base.append(-1 if stream.base is None else stream.base)
                following.append(stream.next_offset)
                shift.append(stream.scale if both else connection.window_shift(stream))
                new = low.syn_frame >= begins or high.syn_frame >= begins
                since.append(connection.scaled_since(stream) if new else 0)
        return tuple(np.array(column, np.int64) for column in (base, following, shift, since))  # type: ignore[return-value]

    def _note_zero_windows(self, seen: Observed, flags: Ints, packet: Ints) -> None:
        closed = (seen.window == 0) & ((flags & SYN) == 0)
        waiting = np.array([s.zero_since_ns is not None for c in self.slots for s in c.sides], bool)
        if not closed.any() and not waiting.any():
            return
        concerned = waiting.copy()
        concerned[(seen.slot * 2 + seen.side)[closed]] = True
        advertises = (seen.window < NO_WINDOW) & ((flags & SYN) == 0)
        for row in np.flatnonzero(concerned[seen.slot * 2 + seen.side] & advertises).tolist():
            connection = self.slots[int(seen.slot[row])]
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
                self._owner.note_zero_window(connection, stream, ts_ns)
                stream.zero_since_ns = None

    def acked_before(self) -> Ints:
        """Per slot and side, the offset that was acknowledged when the window began, -1 for none."""
        table = []
        for connection, saved in zip(self.slots, self._acked_before, strict=True):
            for stream, acked in zip(connection.sides, saved, strict=True):
                known = acked is not None and stream.base is not None
                table.append(stream.offset_of(acked) + ZERO if known and acked is not None else -1)
        return np.array(table, np.int64).reshape(-1, 2)

    def top_before(self) -> tuple[Ints, Ints]:
        """Per slot and side, the highest offset that was sent when the window began (0: none), and by how much offsets
        of that time differ from those of now."""
        table, shifts = [], []
        for connection, (low_base, low, high_base, high) in zip(self.slots, self._top_before, strict=True):
            for stream, base, top in zip(connection.sides, (low_base, high_base), (low, high), strict=True):
                moved = 0 if base is None or stream.base is None else distance(base, stream.base)
                table.append(top + moved + ZERO if top else 0)
                shifts.append(moved)
        return np.array(table, np.int64).reshape(-1, 2), np.array(shifts, np.int64).reshape(-1, 2)


def _heard(connection: Connection) -> tuple[int | None, ...]:
    """What each side was told to have arrived, by acknowledgements: a reset is none."""
    told = [s.acked_seq if s.heard_seq is None else s.heard_seq for s in connection.sides]
    return tuple(None if seq is not None and seq < 0 else seq for seq in told)


class _Directions:
    """The rows that go through in columns, cut into directions, with what each direction needs summed up."""

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
        advance = np.where(has_ack, _signed(acks - reference[self._run]), -_HALF)
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
        """Per row, the stream offset behind its payload; -1 where there is none."""
        return np.where(self._length > 0, before[self._run] + self._within + self._length, -1)

    def note(self, low: int, high: int, connection: Connection) -> None:
        """The beginnings before the ends: a connection is known by its first packet."""
        if True in self._back_in_time[low:high] and not connection.named:
            self._note_opening(low, high, connection)
        else:
            for at in range(low, high):
                connection.note(self.sides[at], self._first_frame[at], self._first_ts[at], self._vlan[at])
        for at in range(low, high):
            connection.note_last(self._last_frame[at], self._last_ts[at])

    def _note_opening(self, low: int, high: int, connection: Connection) -> None:
        """One by one, up to the first that says something."""
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

    def continue_stream(self, at: int, connection: Connection, stream: Stream, out: list[Item]) -> None:
        side = stream.side
        stream.note(self._first_frame[at], self._first_ts[at], self._last_frame[at], self._last_ts[at])
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
                view = self._view  # whose slices are no copies
                joined = b"".join([view[a:b] for a, b in zip(self._from[low:high], self._to[low:high], strict=True)])
            begins = stream.next_offset
            offsets = self._offsets[low:high] + begins
            stream.take(joined, int(self._times[high - 1]))
            run = Run(
                connection, stream.direction, begins, joined, offsets, self._frames[low:high], self._times[low:high]
            )
            out.append(run)
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
