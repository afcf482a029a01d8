"""The open connections of a recording, within the limits on their number and on the bytes kept for them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from rtmp_spark.capture.tcp.connection_share import ConnectionShare
from rtmp_spark.capture.tcp.interval_collector import IntervalCollector
from rtmp_spark.capture.tcp.stream_items import Closed, Item, ItemList
from rtmp_spark.capture.tcp.tcp_connection import Connection, Key
from rtmp_spark.codec.limits import LINGER_NS, TCP_HISTORY_BYTES_TOTAL, Limits

_NEVER: Final = 1 << 63


class ConnectionTable:
    def __init__(self, limits: Limits, intervals: IntervalCollector, share: ConnectionShare | None = None) -> None:
        self._share = share
        self.limits = limits
        self._intervals = intervals
        self._open: dict[Key, Connection] = {}
        self._numbers = 0
        self._lingering: dict[Key, Connection] = {}  # closed, but packets may still come
        self._first_closed_ns = _NEVER  # at most the earliest end of these
        self._held_bytes = 0
        self._history_bytes = 0
        self.counts: Counter[str] = Counter()

    @property
    def connections(self) -> Iterable[Connection]:
        return self._open.values()

    def resume(self, state: list[Any]) -> Connection:
        """Continue a saved connection."""
        connection = Connection.resume(state, self._numbers)
        self._numbers += 1
        self._open[connection.key] = connection
        self._weigh(connection)
        return connection

    def connection_of(self, key: Key) -> Connection:
        """The open connection between these endpoints, or a new one."""
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = Connection(key, self._numbers)
            self._numbers += 1
            self.counts["connections"] += 1
        return connection

    def replace(self, connection: Connection, out: list[Item]) -> Connection:
        """Close a connection and open the next one between the same endpoints; the zero windows of the packets that
        are fed at present are not known yet."""
        self._close(connection, out)
        del self._open[connection.key]
        following = self.connection_of(connection.key)
        following.seen = connection.seen
        return following

    def __contains__(self, key: object) -> bool:
        return key in self._open

    def close(self, keys: Iterable[Key], out: list[Item]) -> None:
        """Close those of these connections that are open."""
        for key in keys:
            if key in self._open:
                self._remove(self._open[key], out)

    def finish(self, out: list[Item]) -> None:
        """Close all connections."""
        for connection in self._open.values():
            self._intervals.end_zero_windows(connection)
            self._close(connection, out)
        self._open = {}

    def tidy(self, touched: Iterable[Connection], now_ns: int, out: list[Item]) -> None:
        """Close connections that lingered long enough and enforce the limits."""
        for connection in touched:
            if self._open.get(connection.key) is connection:
                for stream in connection.sides:
                    if stream.history and stream.settled:
                        stream.history = b""
                self._weigh(connection)
                closed_ns = connection.closed_ts_ns
                if closed_ns is not None:
                    self._lingering[connection.key] = connection
                    self._first_closed_ns = min(self._first_closed_ns, closed_ns)
        before = now_ns - LINGER_NS
        if self._first_closed_ns < before:
            for connection in [c for c in self._lingering.values() if (c.closed_ts_ns or 0) < before]:
                self._remove(connection, out)
            self._first_closed_ns = min([c.closed_ts_ns or 0 for c in self._lingering.values()], default=_NEVER)
        if self._share is not None:
            self._share.require(len(self._open), self.limits.open_connections)
            self._share.require(self._held_bytes, self.limits.tcp_hold_bytes_total)
            self._share.require(self._history_bytes, TCP_HISTORY_BYTES_TOTAL)
        self._evict(out)
        if self._held_bytes > self.limits.tcp_hold_bytes_total:
            self._release_holds(out)
        if self._history_bytes > TCP_HISTORY_BYTES_TOTAL:
            self._forget_histories()

    def _close(self, connection: Connection, out: list[Item]) -> None:
        if connection.tag is None and connection.unheard:
            out.append(Closed(connection))
        else:
            ItemList(connection, out).finish()
        self._forget(connection)

    def _remove(self, connection: Connection, out: list[Item]) -> None:
        self._intervals.end_zero_windows(connection)
        self._close(connection, out)
        del self._open[connection.key]

    def _forget(self, connection: Connection) -> None:
        self._weigh(connection, gone=True)
        self._lingering.pop(connection.key, None)

    def _weigh(self, connection: Connection, *, gone: bool = False) -> None:
        held, history = connection.weigh(gone=gone)
        self._held_bytes += held
        self._history_bytes += history

    def _release_holds(self, out: list[Item]) -> None:
        for connection in self._open.values():  # some may have been dropped since they were weighed
            self._weigh(connection)
        holding = [(stream, c) for c in self._open.values() for stream in c.sides if stream.held]
        for stream, connection in sorted(holding, key=lambda pair: -pair[0].held_cost):
            if self._held_bytes <= self.limits.tcp_hold_bytes_total:
                return
            items = ItemList(connection, out)
            stream.release(-1, items)
            stream.flush(items)
            self._weigh(connection)
            self.counts["holds_released"] += 1

    def _forget_histories(self) -> None:
        for connection in sorted(self._open.values(), key=lambda c: c.ts_last_ns or 0):
            if self._history_bytes <= TCP_HISTORY_BYTES_TOTAL // 2:
                return
            for stream in connection.sides:
                stream.history = b""
            connection.seen.forget_files()
            self._weigh(connection)

    def _evict(self, out: list[Item]) -> None:
        excess = len(self._open) - self.limits.open_connections
        if excess <= 0:
            return

        def worth(connection: Connection) -> tuple[int, int]:
            if connection.closed_ts_ns is not None:
                rank = 0
            else:
                rank = 1 if connection.dropped else 2
            return rank, connection.ts_last_ns or 0

        unheard = list(itertools.islice((c for c in self._open.values() if c.unheard), excess))  # oldest first
        for connection in unheard:  # no item was delivered for these, so none is delivered at their end
            self._forget(connection)
            del self._open[connection.key]
        if excess > len(unheard):
            for connection in sorted(self._open.values(), key=worth)[: excess - len(unheard)]:
                self._remove(connection, out)
        self.counts["connections_evicted"] += excess
