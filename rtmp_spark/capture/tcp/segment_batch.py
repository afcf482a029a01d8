"""Delivers the packets of one batch to their connections.

There are two paths with the same result. Packets that simply continue their streams are delivered in columns. From
the first packet of a connection that does not (after a loss, late, retransmitted, truncated, reset, midstream), the
rest of the connection's packets in this batch are taken one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rtmp_spark.capture.packet_block import Flags, Ints
from rtmp_spark.capture.packets.connection_groups import Flows
from rtmp_spark.capture.packets.tcp_segments import ACK, FIN, RST, SYN, Segments
from rtmp_spark.capture.tcp.batch_observation import BatchObservation
from rtmp_spark.capture.tcp.connection_table import ConnectionTable
from rtmp_spark.capture.tcp.duplicate_packets import Repeated
from rtmp_spark.capture.tcp.in_order_segments import InOrderSegments
from rtmp_spark.capture.tcp.interval_collector import IntervalCollector
from rtmp_spark.capture.tcp.loss_counter import Retransmitted
from rtmp_spark.capture.tcp.sequence_numbers import MASK
from rtmp_spark.capture.tcp.stream_items import Conflict, Item, ItemList
from rtmp_spark.capture.tcp.tcp_connection import Connection, Packet
from rtmp_spark.codec.limits import BRIEF_NS

_NOT_SIMPLE, _FRESH = -1, -2  # instead of an expected sequence number


class _Opening(NamedTuple):
    """A SYN that is the first packet of its direction."""

    packet: int
    seq: int
    ack: int
    flags: int

    def acknowledges(self, other: _Opening) -> bool:
        return self.ack == (other.seq + 1) & MASK


class _OneByOne:
    """The packets of a batch that are taken one by one, by connection."""

    def __init__(self, segments: Segments, flows: Flows, rows: Ints) -> None:
        packet = flows.order[rows]
        s = segments
        columns = (s.frame, s.ts_ns, s.seq, s.ack, s.flags, s.window, s.missing, s.vlan, s.wscale, s.ip_id)
        values = zip(flows.side[rows].tolist(), *(column[packet].tolist() for column in columns), strict=True)
        self.packets = list(map(Packet._make, values))
        self.rows = rows.tolist()
        start = s.start[packet]
        self.payload = list(zip(start.tolist(), (start + s.length[packet]).tolist(), strict=True))
        group, numbers = flows.group[rows], np.arange(len(flows.keys))
        self.first = np.searchsorted(group, numbers).tolist()
        self.last = np.searchsorted(group, numbers, "right").tolist()


class SegmentBatch:
    """Rows are packets sorted by connection; `slots` are the connections that they belong to."""

    def __init__(
        self,
        table: ConnectionTable,
        intervals: IntervalCollector,
        segments: Segments,
        flows: Flows,
        out: list[Item],
        by_flow: Ints,
        repeated: Repeated | None = None,
    ) -> None:
        """`by_flow`: rows sorted by direction within connection."""
        self._table = table
        self._intervals = intervals
        self._segments = segments
        self._flows = flows
        self._out = out
        self._by_flow = by_flow
        self._repeated = repeated
        self.slots: list[Connection] = [table.connection_of(key) for key in flows.keys]
        self._seen = BatchObservation(segments, flows, self.slots, intervals.per_second)
        self._after_silence = self._silences()
        self._replaced: list[Connection] = []

    def run(self) -> None:
        """Deliver all packets."""
        flows, out = self._flows, self._out
        simple = self._simple_rows(self._by_flow)
        fast = self._by_flow[simple[self._by_flow]]
        in_order = InOrderSegments(self._segments, flows, fast)
        one_by_one = _OneByOne(self._segments, flows, np.flatnonzero(~simple & ~self._unwanted_rows()))
        bounds = np.searchsorted(in_order.flow, np.arange(2 * len(flows.keys) + 1)).tolist()
        before = np.zeros(len(in_order.flow), np.int64)
        for number in range(len(flows.keys)):
            connection = self.slots[number]
            low, high = bounds[2 * number], bounds[2 * number + 2]
            if low < high:
                in_order.note(low, high, connection)
                items = ItemList(connection, out)
            for at in range(low, high):
                stream = connection.sides[in_order.sides[at]]
                before[at] = stream.next_offset
                in_order.continue_stream(at, connection, stream, items)
            for at in range(low, high):
                in_order.note_window(at, connection)  # scaled only once both SYNs are known
            if one_by_one.first[number] < one_by_one.last[number]:
                self._take_one_by_one(number, one_by_one)
        self._seen.end[fast] = in_order.ends(before)

    def observe(self) -> None:
        """Add the packets to the counters per second."""
        self._seen.report(self._intervals)
        for connection in self._replaced:
            self._intervals.end_zero_windows(connection)

    def _silences(self) -> Flags:
        """Rows after a pause so long that they may belong to the next connection."""
        times, starts = self._segments.ts_ns[self._flows.order], self._flows.starts
        before = np.empty_like(times)
        before[1:] = times[:-1]
        known = [times[at] if c.ts_last_ns is None else c.ts_last_ns for at, c in zip(starts.tolist(), self.slots)]
        before[starts] = known
        return times - before > BRIEF_NS

    def _unwanted_rows(self) -> Flags:
        """Rows of connections that the consumer dropped, unless one has a SYN, FIN or RST; they are counted here."""
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
        self._seen.wanted[rows] = False
        return unwanted

    def _simple_rows(self, by_flow: Ints) -> Flags:
        """Rows that continue their stream, up to the first row of their connection that does not."""
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
        if self._repeated is not None:
            in_rows &= ~self._repeated.duplicates[flows.order]
        places = np.arange(len(flow))
        cut = np.minimum.reduceat(np.where(in_rows, len(flow), places), flows.starts)
        return places < cut[flows.group]

    def _expectations(self, flow: Ints, packet: Ints) -> tuple[Ints, Ints]:
        """Per direction: the sequence number that continues it (or _FRESH, _NOT_SIMPLE), and whether it had its FIN."""
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
        opening: dict[int, _Opening] = {}
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
                opening[one] = _Opening(index, seq, ack, flags)
            else:
                expected[one] = _NOT_SIMPLE
        for one, syn in opening.items():
            other = self.slots[one >> 1].sides[1 - (one & 1)]
            other_syn = opening.get(one ^ 1)
            if syn.flags & ACK:
                if other_syn is not None:
                    sound = syn.acknowledges(other_syn) and other_syn.packet < syn.packet and not other_syn.flags & ACK
                else:
                    sound = other.syn and other.base == syn.ack
            else:
                sound = not other.packets and (other_syn is not None or one ^ 1 not in expected)
                sound = sound and (other_syn is None or bool(other_syn.flags & ACK))
            if not sound:
                expected[one] = _NOT_SIMPLE
        values = list(expected)
        return (
            np.array([expected[one] for one in values], np.int64),
            np.array([ended[one] for one in values], np.int64),
        )

    def _take_one_by_one(self, slot: int, careful: _OneByOne) -> None:
        data, flows, seen, out = self._segments.data, self._flows, self._seen, self._out
        connection = self.slots[slot]
        slot_now = slot
        items = ItemList(connection, out)
        most = self._table.limits.tcp_hold_bytes
        for at in range(careful.first[slot], careful.last[slot]):
            packet, (start, end), row = careful.packets[at], careful.payload[at], careful.rows[at]
            is_over = connection.is_over_at(packet.ts_ns)
            if not is_over and self._repeated is not None and self._repeated.duplicates[flows.order[row]]:
                connection.count_duplicates(packet.side, 1, end - start, packet.frame, packet.ts_ns)
                seen.wanted[row] = False
                continue
            if is_over or connection.begins_anew(packet):
                connection.flush(items)
                self._replaced.append(connection)
                connection = self._table.replace(connection, out)
                if is_over:
                    again = connection.seen.restart(careful.last[slot] - at)
                    if self._repeated is not None:
                        self._repeated.mark(self._segments, flows.order[row : row + len(again[0])], *again)
                items = ItemList(connection, out)
                slot_now = seen.add_slot(connection)
            delivered = len(out)
            reached, retransmitted = connection.receive(packet, data[start:end], items)
            stream = connection.sides[packet.side]
            if retransmitted and not self._is_needless(connection, packet, row):
                stream.loss.note_retransmission(packet.seq, packet.ts_ns)
                if stream.acked_offset is None or stream.acked_offset < reached:
                    end_seq = (packet.seq + end - start + packet.missing) & MASK
                    stream.loss.add_loss(
                        Retransmitted(packet.seq, end_seq, retransmitted, packet.frame, packet.ts_ns)
                    )  # fmt: skip
            if len(out) > delivered:
                self._check_conflicts(delivered, packet.frame, row)
            if stream.held_cost > most:
                stream.release(most, items)
            elif stream.held:
                stream.give_up(packet.ts_ns, items)
            seen.slot[row] = slot_now
            if stream.synced or reached < 0:
                seen.end[row] = reached
            else:
                seen.end_seq[row] = (packet.seq + end - start + packet.missing) & MASK
            seen.retransmitted[row] = retransmitted
            seen.wanted[row] = not connection.dropped
        connection.flush(items)

    def _is_needless(self, connection: Connection, packet: Packet, row: int) -> bool:
        """Whether a retransmission probes a closed window, or is a copy that the network made."""
        if connection.sides[1 - packet.side].window == 0:
            return True
        return self._repeated is not None and bool(self._repeated.same_id[self._flows.order[row]])

    def _check_conflicts(self, delivered: int, frame: int, row: int) -> None:
        """Note in the items from index `delivered` on whether the packet with the other bytes was damaged."""
        for index, item in enumerate(self._out[delivered:], delivered):
            if isinstance(item, Conflict) and item.frame == frame:
                self._out[index] = item._replace(intact=self._segments.intact(int(self._flows.order[row])))
