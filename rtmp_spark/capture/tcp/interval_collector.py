"""Collects the per-second counters of all connections of a recording, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.tcp import interval_counters
from rtmp_spark.capture.tcp.connection_share import ConnectionShare
from rtmp_spark.capture.tcp.half_stream import Stream
from rtmp_spark.capture.tcp.interval_counters import NO_WINDOW, SECOND_NS, ZERO, Carry, Intervals, Observed
from rtmp_spark.capture.tcp.stream_items import Gap, Item
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.limits import UNACKED_SEGMENTS, ZERO_WINDOW_SECONDS


class IntervalCollector:
    def __init__(self, per_second: bool, share: ConnectionShare | None = None) -> None:
        """Without `per_second` only retransmissions, gaps and zero windows are counted."""
        self.per_second = per_second
        self._share = share
        self.carry = Carry.nothing()
        self._parts: list[Intervals] = []
        self._rare: list[tuple[int, int, int, int, int]] = []  # number, side, second, gap bytes, zero window

    def take(self) -> Intervals:
        """The counters since the last call; a second that is not over comes again in parts."""
        parts, self._parts = self._parts, []
        if self._rare:
            parts.append(interval_counters.rare_events(self._rare))
            self._rare = []
        return interval_counters.merge(parts)

    def add_batch(
        self, seen: Observed, connections: Sequence[Connection], acked_before: Ints, top_before: Ints, moved: Ints
    ) -> None:
        """Count the packets of a batch. `moved` has, per slot and side, the change of offsets during the batch."""
        number = np.array([c.number for c in connections], np.int64)
        here = np.isin(self.carry.connection, number)
        waiting = self.carry.select(here)
        if len(waiting.ts_ns):
            seen = _with_carried(seen, waiting, number, moved)
        counters, carry = interval_counters.of_batch(seen, number, acked_before, top_before)
        self._parts.append(counters)
        self.carry = self.carry.select(~here).plus(carry)
        if self._share is not None:
            self._share.require(len(self.carry.ts_ns), UNACKED_SEGMENTS)

    def add_retransmissions(self, seen: Observed, connections: Sequence[Connection]) -> None:
        number = np.array([c.number for c in connections], np.int64)
        self._parts.append(interval_counters.retransmissions(seen, number))

    def add_zero_window(self, connection: Connection, stream: Stream, until_ns: int) -> None:
        """`stream`'s side advertised a window of 0 since `zero_since_ns`: the other side had to wait until now."""
        since = stream.zero_since_ns
        if since is None or until_ns <= since:
            return
        waiting = connection.sides[1 - stream.side]
        waiting.zero_window_ns += until_ns - since
        last = min((until_ns - 1) // SECOND_NS, since // SECOND_NS + ZERO_WINDOW_SECONDS)
        for second in range(since // SECOND_NS, last + 1):
            length = min((second + 1) * SECOND_NS, until_ns) - max(second * SECOND_NS, since)
            self._rare.append((connection.number, waiting.side, second, 0, length))

    def end_zero_windows(self, connection: Connection) -> None:
        """No more packets of this connection will come."""
        for stream in connection.sides:
            if stream.zero_since_ns is not None and connection.ts_last_ns is not None and not connection.dropped:
                self.add_zero_window(connection, stream, connection.ts_last_ns)
                stream.zero_since_ns = None

    def add_gaps(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Gap):
                side = item.direction ^ item.connection.origin
                self._rare.append((item.connection.number, side, item.ts_ns // SECOND_NS, item.length, 0))


def _with_carried(seen: Observed, waiting: Carry, number: Ints, moved: Ints) -> Observed:
    """The rows of a batch with unacknowledged rows of earlier ones put before them."""
    order = np.argsort(number)
    slot = order[np.searchsorted(number, waiting.connection, sorter=order)]
    none = np.zeros(len(slot), np.int64)
    columns = {
        "slot": slot,
        "side": waiting.side,
        "ts_ns": waiting.ts_ns,
        "end": waiting.end + moved[slot, waiting.side] + ZERO,
        "ack": none - 1,
        "size": none,
        "retransmitted": none,
        "window": none + NO_WINDOW,
        "carried": np.ones(len(slot), bool),
    }
    joined = {name: np.concatenate((column, getattr(seen, name))) for name, column in columns.items()}
    by_slot = np.argsort(joined["slot"], kind="stable")
    return Observed(**{name: column[by_slot] for name, column in joined.items()})
