"""Segments -> directed streams of every connection, window by window.

Connections whose packets continue in order are handled in columns: one comparison for the whole window, one join
of slices per direction. From the first packet that does not simply continue its stream, the rest of its
connection's window is taken packet by packet (connection.py), with the same outcome. Memory is bounded by the
limits; what they throw away is counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from rtmp_spark.capture import intervals
from rtmp_spark.capture.block import Ints, Problem, often
from rtmp_spark.capture.connection import LINGER_NS, Connection, Key
from rtmp_spark.capture.flows import group
from rtmp_spark.capture.intervals import NO_WINDOW, ZERO, Carry, Intervals, Observed
from rtmp_spark.capture.items import FRAME_BITS, Closed, Conflict, End, Gap, Item, Run, file_no, frame_no
from rtmp_spark.capture.packet import Segments
from rtmp_spark.capture.stream import Stream
from rtmp_spark.capture.window import Window
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "FRAME_BITS",
    "Closed",
    "Conflict",
    "Connection",
    "End",
    "Gap",
    "Intervals",
    "Item",
    "Reassembler",
    "Run",
    "Stream",
    "file_no",
    "frame_no",
]

_NS = 1_000_000_000
_HISTORY_TOTAL = 64 << 20
_LONGEST_WAIT = 600  # seconds of one closed window that are told one by one: clocks jump by years
_NEVER = 1 << 63
_BATCH_SEGMENTS = 1 << 14  # so many packets can begin no more connections than memory has room for


class Reassembler:
    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, per_second: bool = True) -> None:
        """Without `per_second` nobody wants the facts of each second: only signs of trouble are told."""
        self.limits = limits
        self.per_second = per_second
        self._open: dict[Key, Connection] = {}
        self._numbers = 0
        self._carry = Carry.nothing()
        self._intervals: list[Intervals] = []
        self._latest_ns = 0
        self._lingering: dict[Key, Connection] = {}
        self._first_closed_ns = _NEVER  # of those that linger; some may have gone since
        self._departed: list[Stream] = []
        self._held = 0
        self._remembered = 0
        self.counts: Counter[str] = Counter()

    @property
    def connections(self) -> Iterable[Connection]:
        return self._open.values()

    def resume(self, state: list[Any]) -> Connection:
        """Go on with a connection that was saved; before its packets are fed."""
        connection = Connection.resume(state, self._numbers)
        self._numbers += 1
        self._open[connection.key] = connection
        self._weigh(connection)
        return connection

    def take_intervals(self) -> Intervals:
        """The per-second facts since the last call; seconds still open come again in parts."""
        taken, self._intervals = intervals.merge(self._intervals), []
        return taken

    def take_problems(self) -> list[Problem]:
        """Which limits acted since the last call."""
        acted = [(name, self.counts.pop(name, 0)) for name in ("connections_evicted", "holds_released")]
        return [
            Problem(ViolationCode.CAPTURE_LIMIT, f"{often(count)}: {name.replace('_', ' ')}", count=count)
            for name, count in acted
            if count
        ]

    def finish(self) -> list[Item]:
        """The recording is over: holes become gaps and every connection ends."""
        out: list[Item] = []
        for connection in self._open.values():
            self._close(connection, out)
        self._note_gaps(out)
        self._open = {}
        return out

    def feed(self, segments: Segments, file_no: int = 0) -> list[Item]:
        """Take the packets of one window; gives what became deliverable."""
        out: list[Item] = []
        for stream in self._departed:  # a connection and its streams know each other: let them go at once
            stream.leave()
        self._departed = []
        for at in range(0, len(segments), _BATCH_SEGMENTS):
            batch = segments.select(slice(at, at + _BATCH_SEGMENTS))
            batch.frame = batch.frame | (file_no << FRAME_BITS)
            self._feed(batch, out)
        return out

    def _feed(self, segments: Segments, out: list[Item]) -> None:
        begun = len(out)
        self._latest_ns = max(self._latest_ns, int(segments.ts_ns.max()))
        window = Window(self, segments, group(segments), out)
        window.run()
        self._observe(window)
        self._tidy(window.slots, out)
        self._note_gaps(out[begun:])

    def connection_of(self, key: Key) -> Connection:
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = Connection(key, self._numbers)
            self._numbers += 1
            self.counts["connections"] += 1
        return connection

    def replace(self, connection: Connection, out: list[Item]) -> Connection:
        """The next connection between the same endpoints."""
        self._close(connection, out)
        del self._open[connection.key]
        return self.connection_of(connection.key)

    def _close(self, connection: Connection, out: list[Item]) -> None:
        for stream in connection.sides:
            self._end_of_zero_window(connection, stream)
        connection.finish(out)
        self._forget(connection)
        self._departed += connection.sides

    def _forget(self, connection: Connection) -> None:
        self._weigh(connection, gone=True)
        self._lingering.pop(connection.key, None)

    def _weigh(self, connection: Connection, *, gone: bool = False) -> None:
        held, remembered = connection.weigh(gone=gone)
        self._held += held
        self._remembered += remembered

    def _end_of_zero_window(self, connection: Connection, stream: Stream) -> None:
        if stream.zero_since_ns is not None and connection.ts_last_ns is not None and not connection.dropped:
            self.note_zero_window(connection, stream, connection.ts_last_ns)
            stream.zero_since_ns = None

    def note_zero_window(self, connection: Connection, stream: Stream, until_ns: int) -> None:
        """`stream`'s side advertised no window from its `zero_since_ns` on: its peer had to wait."""
        since = stream.zero_since_ns
        if since is None or until_ns <= since:
            return
        waiting = connection.sides[1 - stream.side]
        waiting.zero_window_ns += until_ns - since
        seconds = np.arange(since // _NS, min((until_ns - 1) // _NS, since // _NS + _LONGEST_WAIT) + 1)
        lengths = np.minimum((seconds + 1) * _NS, until_ns) - np.maximum(seconds * _NS, since)
        self._add(connection, waiting.side, seconds, zero_window_ns=lengths)

    def _note_gaps(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Gap):
                side = item.direction ^ item.connection.origin
                self._add(item.connection, side, np.array([item.ts_ns // _NS]), gap_bytes=np.array([item.length]))

    def _add(self, connection: Connection, side: int, seconds: Ints, **columns: Ints) -> None:
        part = intervals.empty()
        for name in part.__dataclass_fields__:
            setattr(part, name, columns.get(name, np.zeros(len(seconds), np.int64)))
        part.connection = np.full(len(seconds), connection.number)
        part.side = np.full(len(seconds), side)
        part.second = seconds
        part.window_min = part.in_flight_max = np.full(len(seconds), -1)
        self._intervals.append(part)

    def _observe(self, window: Window) -> None:
        seen = window.observed()
        if seen is None:
            return
        number = np.array([c.number for c in window.slots], np.int64)
        if not self.per_second:
            self._intervals.append(intervals.retransmissions(seen, number))
            return
        top_before, moved = window.top_before()
        here = np.isin(self._carry.connection, number)
        waiting = self._carry.select(here)
        if len(waiting.ts_ns):
            seen = _with_carried(seen, waiting, number, moved)
        facts, carry = intervals.of_window(seen, number, window.acked_before(), top_before)
        self._intervals.append(facts)
        self._carry = self._carry.select(~here).plus(carry)

    def _tidy(self, touched: list[Connection], out: list[Item]) -> None:
        """End what lingered long enough; keep the number of connections and of kept bytes inside the limits."""
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
        before = self._latest_ns - LINGER_NS
        if self._first_closed_ns < before:
            for connection in [c for c in self._lingering.values() if (c.closed_ts_ns or 0) < before]:
                self._remove(connection, out)
            self._first_closed_ns = min([c.closed_ts_ns or 0 for c in self._lingering.values()], default=_NEVER)
        self._evict(out)
        if self._held > self.limits.tcp_hold_bytes_total:
            self._release_holds(out)
        if self._remembered > _HISTORY_TOTAL:
            self._forget_histories()

    def _remove(self, connection: Connection, out: list[Item]) -> None:
        self._close(connection, out)
        del self._open[connection.key]

    def _release_holds(self, out: list[Item]) -> None:
        for connection in self._open.values():  # some may have been dropped since they were weighed
            self._weigh(connection)
        streams = [stream for connection in self._open.values() for stream in connection.sides if stream.held]
        for stream in sorted(streams, key=lambda s: -s.held_cost):
            if self._held <= self.limits.tcp_hold_bytes_total:
                return
            stream.release(-1, out)
            stream.flush(out)
            self._weigh(stream.connection)
            self.counts["holds_released"] += 1

    def _forget_histories(self) -> None:
        for connection in sorted(self._open.values(), key=lambda c: c.ts_last_ns or 0):
            if self._remembered <= _HISTORY_TOTAL // 2:
                return
            for stream in connection.sides:
                stream.history = b""
            self._weigh(connection)

    def _evict(self, out: list[Item]) -> None:
        excess = len(self._open) - self.limits.half_open_flows
        if excess <= 0:
            return

        def worth(connection: Connection) -> tuple[int, int]:
            if connection.closed_ts_ns is not None:
                rank = 0
            else:
                rank = 1 if connection.dropped else 2
            return rank, connection.ts_last_ns or 0

        unheard = list(itertools.islice((c for c in self._open.values() if c.unheard), excess))  # oldest first
        for connection in unheard:  # nobody was told of these, so nobody is told of their end
            self._forget(connection)
            for stream in connection.sides:
                stream.leave()
            del self._open[connection.key]
        if excess > len(unheard):
            for connection in sorted(self._open.values(), key=worth)[: excess - len(unheard)]:
                self._remove(connection, out)
        self.counts["connections_evicted"] += excess


def _with_carried(seen: Observed, waiting: Carry, number: Ints, moved: Ints) -> Observed:
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
