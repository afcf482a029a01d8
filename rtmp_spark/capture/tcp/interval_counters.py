"""Per-second facts of every direction: volume, retransmissions, windows, bytes in flight, round trips.

Computed over whole windows of packets at once. Round trips and bytes in flight need the data that was not yet
acknowledged when the window ended: it is carried on, so that windows may be cut anywhere. Rows of one second may
come in parts; `merge` joins them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.block import Ints

Flags = npt.NDArray[np.bool_]
_NS = 1_000_000_000
_SPAN = 1 << 42  # more than any stream offset of one connection; separates connections in running maxima
_CARRY_ROWS = 1 << 18
_CARRY_NS = 60 * _NS
_UNHEARD_BYTES = 1 << 16  # of a stream wait for its first acknowledgement; where none was recorded, none need wait
NO_WINDOW = np.int64(1 << 40)
ZERO = 1 << 32


@dataclass
class Intervals:
    """Columns. `side` is that of the data: windows and acknowledgements came from its receiver. Which direction it is
    may turn out later."""

    connection: Ints
    side: Ints
    second: Ints
    packets: Ints
    bytes: Ints
    retransmitted_bytes: Ints
    gap_bytes: Ints
    zero_window_ns: Ints
    window_min: Ints  # -1: none seen
    in_flight_max: Ints  # -1: not known
    rtt_sum_ns: Ints
    rtt_samples: Ints

    def __len__(self) -> int:
        return len(self.connection)


_ADDED = ("packets", "bytes", "retransmitted_bytes", "gap_bytes", "zero_window_ns", "rtt_sum_ns", "rtt_samples")


def empty() -> Intervals:
    return Intervals(*(np.zeros(0, np.int64) for _ in fields(Intervals)))


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
    """Packets of a window, grouped by connection and in packet order within it.

    `slot` numbers the connections of the window and ascends; `end` is the stream offset behind a packet's payload
    (-1: no payload); `ack` the offset it acknowledges in the other stream (-1: none). Offsets count from `ZERO`: where
    they begin is a guess in a stream that was joined, and what was sent before is acknowledged, too. Rows that are
    `carried` were counted in an earlier window.
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
    """Data rows still unacknowledged: they wait for their acknowledgement in a later window."""

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
        """Both, the newest rows only when there are too many or too old ones."""
        joined = Carry(*(np.concatenate((getattr(self, f.name), getattr(other, f.name))) for f in fields(Carry)))
        if not len(joined.ts_ns):
            return joined
        joined = joined.select(joined.ts_ns >= joined.ts_ns.max() - _CARRY_NS)
        return joined.select(np.arange(len(joined.ts_ns))[-_CARRY_ROWS:])


def retransmissions(seen: Observed, number: Ints) -> Intervals:
    """Of one window, where nobody asks for more: the seconds in which something was sent again."""
    again = seen.select(seen.retransmitted > 0)
    none = np.zeros(len(again.slot), np.int64)
    return _rows(again, number, none - 1, none, none) if len(none) else empty()


def of_window(seen: Observed, number: Ints, acked_before: Ints, top_before: Ints) -> tuple[Intervals, Carry]:
    """Facts of one window. Per slot: connection number; per slot and side: the offsets that were acknowledged (-1:
    none) and sent before it."""
    total = len(seen.slot)
    if not total:
        return empty(), Carry.nothing()
    in_flight = np.full(total, -1, np.int64)
    rtt_sum = np.zeros(total, np.int64)
    rtt_count = np.zeros(total, np.int64)
    first = np.ones(total, bool)
    first[1:] = seen.slot[1:] != seen.slot[:-1]
    shift = seen.slot * _SPAN
    carries = []
    for side in (0, 1):
        is_data = (seen.side == side) & (seen.end >= 0)
        acks = np.where((seen.side != side) & (seen.ack >= 0), seen.ack, -1)
        acks[first] = np.maximum(acks[first], acked_before[seen.slot[first], side])
        acked = np.maximum.accumulate(acks + shift) - shift
        in_flight[(seen.side == side) & (acked >= 0) & ~seen.carried] = 0
        rows = np.flatnonzero(is_data)
        if not len(rows):
            continue
        own_ends = seen.end[rows] + shift[rows]
        sent_before = np.where(seen.carried[rows], 0, top_before[seen.slot[rows], side]) + shift[rows]
        ends = np.maximum.accumulate(np.maximum(own_ends, sent_before))
        new_data = (own_ends == ends) & (own_ends > sent_before)
        new_data[1:] &= ends[1:] > ends[:-1]
        flying = ends - shift[rows] - acked[rows]
        in_flight[rows] = np.where((acked[rows] >= 0) & ~seen.carried[rows], np.maximum(flying, 0), -1)
        # A retransmission in flight makes every waiting acknowledgement ambiguous (Karn).
        doubts = np.cumsum((seen.side == side) & (seen.retransmitted > 0))
        heard = (acked[rows] >= 0) | (seen.end[rows] <= ZERO + _UNHEARD_BYTES)
        timed = rows[new_data & heard & (seen.retransmitted[rows] == 0)]
        timed_ends = seen.end[timed] + shift[timed]
        advances = np.flatnonzero((seen.side != side) & (seen.ack >= 0))
        before = np.where(first[advances], acked_before[seen.slot[advances], side], acked[np.maximum(advances - 1, 0)])
        # The newest that was sent before: one that is recorded later may as well stand in the next window.
        known = np.searchsorted(timed, advances)
        newest = np.minimum(np.searchsorted(timed_ends, seen.ack[advances] + shift[advances], "right"), known) - 1
        forward = (seen.ack[advances] > before) & (before >= 0) & (newest >= 0)
        advances, before, source = advances[forward], before[forward], timed[newest[forward]]
        sound = (
            (seen.slot[source] == seen.slot[advances])
            & (doubts[source] == doubts[advances])
            & (seen.end[source] > before)
            & (seen.ts_ns[advances] >= seen.ts_ns[source])
            & (seen.ts_ns[advances] <= seen.ts_ns[source] + _CARRY_NS)
        )
        np.add.at(rtt_sum, source[sound], (seen.ts_ns[advances] - seen.ts_ns[source])[sound])
        np.add.at(rtt_count, source[sound], 1)
        last_of_slot = np.append(np.flatnonzero(first)[1:], total) - 1
        finally_acked = np.full(int(seen.slot[-1]) + 1, -1, np.int64)
        finally_acked[seen.slot[last_of_slot]] = acked[last_of_slot]
        finally_doubted = np.zeros(len(finally_acked), np.int64)
        finally_doubted[seen.slot[last_of_slot]] = doubts[last_of_slot]
        reached, doubted = finally_acked[seen.slot[timed]], finally_doubted[seen.slot[timed]]
        waiting = timed[(seen.end[timed] > reached) & (doubts[timed] == doubted)]
        ends_at = seen.end[waiting] - ZERO
        carries.append(Carry(number[seen.slot[waiting]], seen.side[waiting], seen.ts_ns[waiting], ends_at))
    carry = Carry.nothing()
    for one in carries:
        carry = carry.plus(one)
    return _rows(seen, number, in_flight, rtt_sum, rtt_count), carry


def _rows(seen: Observed, number: Ints, in_flight: Ints, rtt_sum: Ints, rtt_count: Ints) -> Intervals:
    """Sums per side and second; windows count for the side that they hold back."""
    second = seen.ts_ns // _NS
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
    """An order that puts equal keys together, where each group starts in it, and the keys."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.ones(len(key), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    return order, starts, ordered[starts]
