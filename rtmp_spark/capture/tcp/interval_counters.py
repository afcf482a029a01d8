"""Counters of every direction per second: bytes, retransmissions, windows, bytes in flight, round trip times.

They are computed for a whole batch of packets at once. Round trip times and bytes in flight need the data that was
not yet acknowledged at the end of the batch: it is carried over, so that batches may be cut anywhere. The rows of one
second may come in parts; `merge` adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from rtmp_spark.capture.packet_block import Flags, Ints
from rtmp_spark.codec.limits import ROUND_TRIP_NS, UNACKED_SEGMENTS, UNHEARD_BYTES

SECOND_NS = 1_000_000_000
_SPAN = 1 << 42  # larger than any stream offset; separates connections in running maxima
NO_WINDOW = np.int64(1 << 40)
ZERO = 1 << 32  # added to stream offsets, which may be negative if the start of a stream is a guess


@dataclass
class Intervals:
    """One row per connection, side and second, as columns.

    `side` is the sender of the data; windows and acknowledgements came from its receiver. Which direction that is may
    be known later.
    """

    connection: Ints
    side: Ints
    second: Ints
    packets: Ints
    bytes: Ints
    retransmitted_bytes: Ints
    gap_bytes: Ints
    zero_window_ns: Ints
    window_min: Ints  # -1: none
    in_flight_max: Ints  # -1: unknown
    rtt_sum_ns: Ints
    rtt_samples: Ints

    def __len__(self) -> int:
        return len(self.connection)


_ADDED = ("packets", "bytes", "retransmitted_bytes", "gap_bytes", "zero_window_ns", "rtt_sum_ns", "rtt_samples")


def empty() -> Intervals:
    return Intervals(*(np.zeros(0, np.int64) for _ in fields(Intervals)))


def rare_events(rows: Sequence[tuple[int, int, int, int, int]]) -> Intervals:
    """Rows of (connection, side, second, gap bytes, zero window in ns)."""
    connection, side, second, gap_bytes, zero_window_ns = np.array(rows, np.int64).T
    none = np.zeros(len(rows), np.int64)
    return Intervals(
        connection, side, second, none, none, none, gap_bytes, zero_window_ns, none - 1, none - 1, none, none
    )  # fmt: skip


def merge(parts: Iterable[Intervals]) -> Intervals:
    """One row per (connection, side, second), sorted."""
    present = [part for part in parts if len(part)]
    if not present:
        return empty()
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in present]) for f in fields(Intervals)}
    order = np.lexsort((columns["second"], columns["side"], columns["connection"]))
    columns = {name: column[order] for name, column in columns.items()}
    changes = np.zeros(len(order), bool)
    changes[0] = True
    for name in ("connection", "side", "second"):
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.flatnonzero(changes)
    joined = {name: columns[name][starts] for name in ("connection", "side", "second")}
    for name in _ADDED:
        joined[name] = np.add.reduceat(columns[name], starts)
    windows = np.where(columns["window_min"] < 0, NO_WINDOW, columns["window_min"])
    lowest = np.minimum.reduceat(windows, starts)
    joined["window_min"] = np.where(lowest == NO_WINDOW, -1, lowest)
    joined["in_flight_max"] = np.maximum.reduceat(columns["in_flight_max"], starts)
    return Intervals(**joined)


@dataclass
class Observed:
    """Packets of a batch, grouped by connection and in packet order within a connection.

    `slot` numbers the connections of the batch and ascends; `end` is the stream offset after a packet's payload (-1:
    no payload); `ack` is the offset it acknowledges in the other stream (-1: none). Both have `ZERO` added. Rows that
    are `carried` were counted in an earlier batch.
    """

    slot: Ints
    side: Ints
    ts_ns: Ints
    end: Ints
    ack: Ints
    size: Ints
    retransmitted: Ints
    window: Ints  # advertised, scaled; NO_WINDOW: none
    carried: Flags

    def select(self, wanted: Flags | Ints) -> Observed:
        return Observed(*(getattr(self, f.name)[wanted] for f in fields(Observed)))


@dataclass
class Carry:
    """Data segments without an acknowledgement so far; it may come in a later batch."""

    connection: Ints
    side: Ints
    ts_ns: Ints
    end: Ints

    @classmethod
    def nothing(cls) -> Carry:
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    def select(self, wanted: Flags | Ints) -> Carry:
        return Carry(self.connection[wanted], self.side[wanted], self.ts_ns[wanted], self.end[wanted])

    def plus(self, other: Carry) -> Carry:
        """Both, without rows that are too old for their direction, and only the newest if there are too many."""
        joined = Carry(*(np.concatenate((getattr(self, f.name), getattr(other, f.name))) for f in fields(Carry)))
        if not len(joined.ts_ns):
            return joined
        numbers, place = np.unique(joined.connection * 2 + joined.side, return_inverse=True)
        last = np.zeros(len(numbers), np.int64)
        last[place] = joined.ts_ns  # the last in packet order, not the newest: the clock may have been set back
        joined = joined.select(joined.ts_ns >= last[place] - ROUND_TRIP_NS)
        return joined.select(np.arange(len(joined.ts_ns))[-UNACKED_SEGMENTS:])


def retransmissions(seen: Observed, number: Ints) -> Intervals:
    """The seconds of a batch with retransmissions, if no other counters are wanted."""
    again = seen.select(seen.retransmitted > 0)
    none = np.zeros(len(again.slot), np.int64)
    return _rows(again, number, none - 1, none, none) if len(none) else empty()


def of_batch(seen: Observed, number: Ints, acked_before: Ints, top_before: Ints) -> tuple[Intervals, Carry]:
    """The counters of one batch, and the data to carry over.

    `number` has the connection number per slot. `acked_before` and `top_before` have, per slot and side, the offsets
    that were acknowledged (-1: none) and sent before the batch.
    """
    total = len(seen.slot)
    if not total:
        return empty(), Carry.nothing()
    in_flight = np.full(total, -1, np.int64)
    rtt_sum = np.zeros(total, np.int64)
    rtt_count = np.zeros(total, np.int64)
    first = np.ones(total, bool)
    first[1:] = seen.slot[1:] != seen.slot[:-1]
    carries = []
    for side in (0, 1):
        flow = _Flow(seen, side, first, acked_before)
        in_flight[(seen.side == side) & (flow.acked >= 0) & ~seen.carried] = 0
        if not len(flow.rows):
            continue
        in_flight[flow.rows], timed = flow.in_flight(top_before)
        source, round_trips = flow.round_trips(timed)
        np.add.at(rtt_sum, source, round_trips)
        np.add.at(rtt_count, source, 1)
        carries.append(flow.unacked(timed, number))
    carry = Carry.nothing()
    for one in carries:
        carry = carry.plus(one)
    return _rows(seen, number, in_flight, rtt_sum, rtt_count), carry


class _Flow:
    """The data of one side of every connection in a batch, and the acknowledgements of it."""

    def __init__(self, seen: Observed, side: int, first: Flags, acked_before: Ints) -> None:
        self._seen = seen
        self._side = side
        self._first = first  # rows that are the first of their connection
        self._acked_before = acked_before
        self._shift = seen.slot * _SPAN
        acks = np.where((seen.side != side) & (seen.ack >= 0), seen.ack, -1)
        acks[first] = np.maximum(acks[first], acked_before[seen.slot[first], side])
        self.acked: Ints = np.maximum.accumulate(acks + self._shift) - self._shift
        self.rows = np.flatnonzero((seen.side == side) & (seen.end >= 0))
        # A retransmission in flight makes every waiting acknowledgement ambiguous (Karn).
        self._retransmissions = np.cumsum((seen.side == side) & (seen.retransmitted > 0))

    def in_flight(self, top_before: Ints) -> tuple[Ints, Ints]:
        """Bytes in flight at each data row (-1: unknown), and the rows whose acknowledgement gives a round trip."""
        seen, rows, shift = self._seen, self.rows, self._shift[self.rows]
        own_ends = seen.end[rows] + shift
        sent_before = np.where(seen.carried[rows], 0, top_before[seen.slot[rows], self._side]) + shift
        ends = np.maximum.accumulate(np.maximum(own_ends, sent_before))
        new_data = (own_ends == ends) & (own_ends > sent_before)
        new_data[1:] &= ends[1:] > ends[:-1]
        acked = self.acked[rows]
        flying = ends - shift - acked
        heard = (acked >= 0) | (seen.end[rows] <= ZERO + UNHEARD_BYTES)
        timed = rows[new_data & heard & (seen.retransmitted[rows] == 0)]
        return np.where((acked >= 0) & ~seen.carried[rows], np.maximum(flying, 0), -1), timed

    def round_trips(self, timed: Ints) -> tuple[Ints, Ints]:
        """Data rows that were acknowledged, and after which time."""
        seen, shift, acked = self._seen, self._shift, self.acked
        advances = np.flatnonzero((seen.side != self._side) & (seen.ack >= 0))
        at_start = self._acked_before[seen.slot[advances], self._side]
        before = np.where(self._first[advances], at_start, acked[np.maximum(advances - 1, 0)])
        # The newest data recorded before the acknowledgement: later data might as well be in the next batch.
        known = np.searchsorted(timed, advances)
        timed_ends = seen.end[timed] + shift[timed]
        newest = np.minimum(np.searchsorted(timed_ends, seen.ack[advances] + shift[advances], "right"), known) - 1
        forward = (seen.ack[advances] > before) & (before >= 0) & (newest >= 0)
        advances, before, source = advances[forward], before[forward], timed[newest[forward]]
        sound = (
            (seen.slot[source] == seen.slot[advances])
            & (self._retransmissions[source] == self._retransmissions[advances])
            & (seen.end[source] > before)
            & (seen.ts_ns[advances] >= seen.ts_ns[source])
            & (seen.ts_ns[advances] <= seen.ts_ns[source] + ROUND_TRIP_NS)
        )
        return source[sound], (seen.ts_ns[advances] - seen.ts_ns[source])[sound]

    def unacked(self, timed: Ints, number: Ints) -> Carry:
        """The data rows that are still unacknowledged at the end of the batch."""
        seen = self._seen
        last_of_slot = np.append(np.flatnonzero(self._first)[1:], len(seen.slot)) - 1
        slots = int(seen.slot[-1]) + 1
        finally_acked = np.full(slots, -1, np.int64)
        finally_acked[seen.slot[last_of_slot]] = self.acked[last_of_slot]
        retransmissions = np.zeros(slots, np.int64)
        retransmissions[seen.slot[last_of_slot]] = self._retransmissions[last_of_slot]
        slot = seen.slot[timed]
        ambiguous = self._retransmissions[timed] != retransmissions[slot]
        waiting = timed[(seen.end[timed] > finally_acked[slot]) & ~ambiguous]
        return Carry(number[seen.slot[waiting]], seen.side[waiting], seen.ts_ns[waiting], seen.end[waiting] - ZERO)


def _rows(seen: Observed, number: Ints, in_flight: Ints, rtt_sum: Ints, rtt_count: Ints) -> Intervals:
    """Sums per side and second; a window belongs to the side that it restricts."""
    second = seen.ts_ns // SECOND_NS
    earliest = int(second.min())
    span = int(second.max()) - earliest + 1
    key = (seen.slot * 2 + seen.side) * span + second - earliest

    def part(keys: Ints, **columns: Ints) -> Intervals:
        which, when = np.divmod(keys, span)
        nothing = np.zeros(len(keys), np.int64)
        given = {name: columns.get(name, nothing) for name in _ADDED}
        given |= {name: columns.get(name, nothing - 1) for name in ("window_min", "in_flight_max")}
        return Intervals(number[which >> 1], which & 1, when + earliest, **given)

    order, starts, keys = _grouped(key)
    new = ~seen.carried
    own = part(
        keys,
        packets=np.add.reduceat(new[order].astype(np.int64), starts),
        bytes=np.add.reduceat(seen.size[order], starts),
        retransmitted_bytes=np.add.reduceat((seen.retransmitted * new)[order], starts),
        in_flight_max=np.maximum.reduceat(in_flight[order], starts),
        rtt_sum_ns=np.add.reduceat(rtt_sum[order], starts),
        rtt_samples=np.add.reduceat(rtt_count[order], starts),
    )
    heard = np.flatnonzero(seen.window < NO_WINDOW)
    if not len(heard):
        return own
    order, starts, keys = _grouped(key[heard] + np.where(seen.side[heard], -span, span))
    return merge((own, part(keys, window_min=np.minimum.reduceat(seen.window[heard][order], starts))))


def _grouped(key: Ints) -> tuple[Ints, Ints, Ints]:
    """An order that puts equal keys together, the start of each group in it, and the key of each group."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.ones(len(key), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    return order, starts, ordered[starts]
