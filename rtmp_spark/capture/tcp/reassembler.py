"""Reassemble the TCP segments of a recording into the directed streams of its connections, window by window.

Connections whose packets continue in order are handled in columns: one comparison for the whole window, one join of
slices per direction. From the first packet that does not simply continue its stream, the rest of its connection's
window is taken packet by packet (tcp_connection.py), with the same result. The limits bound the memory; data that
they drop is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from rtmp_spark.capture.packets.connection_groups import Flows, group
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.capture.problem import Problem, often
from rtmp_spark.capture.tcp.brief_flows import BriefFlow, BriefFlows, SavedBriefFlow
from rtmp_spark.capture.tcp.connection_share import ConnectionShare
from rtmp_spark.capture.tcp.connection_table import ConnectionTable
from rtmp_spark.capture.tcp.duplicate_packets import count_duplicates, find_duplicates
from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS
from rtmp_spark.capture.tcp.interval_collector import IntervalCollector
from rtmp_spark.capture.tcp.interval_counters import Carry, Intervals
from rtmp_spark.capture.tcp.segment_batch import SegmentBatch
from rtmp_spark.capture.tcp.stream_items import Item
from rtmp_spark.capture.tcp.tcp_connection import Connection, Key
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import BATCH_SEGMENTS, BRIEF_FLOWS_AT_ONCE, DEFAULT_LIMITS, Limits

_NEVER: Final = 1 << 63
_LIMITS_REACHED: Final = {
    "connections_evicted": "the limit of open connections was reached and a connection was closed",
    "flows_evicted": "the limit of connections with only a few packets was reached and a connection was closed",
    "holds_released": "the limit of bytes held after missing TCP data was reached and a gap was declared",
}


class Reassembler:
    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        *,
        per_second: bool = True,
        wanted: Callable[[BriefFlow], bool] = lambda flow: True,
        share: ConnectionShare | None = None,
    ) -> None:
        """Without `per_second`, only those counters per second are collected that show trouble. `wanted` is asked at
        the end of a connection of a few packets; if it is not wanted, nothing is delivered for it. With a `share`, only
        its connections are reassembled."""
        self._limits = limits
        self._wanted = wanted
        self._share = share
        self._brief = BriefFlows()
        self._intervals = IntervalCollector(per_second, share)
        self._table = ConnectionTable(limits, self._intervals, share)
        self._now_ns = 0  # no packet of the current batch is older
        self._next_head_ns = _NEVER
        self.remembered_packets = 0  # of each connection, for comparison with later files

    @property
    def connections(self) -> Iterable[Connection]:
        """The open connections, without those of only a few packets."""
        return self._table.connections

    @property
    def counts(self) -> Counter[str]:
        return self._table.counts

    def resume(self, state: list[Any]) -> Connection:
        """Continue a saved connection; call it before its packets are fed."""
        return self._table.resume(state)

    def unacknowledged(self, connection: Connection) -> list[list[int]]:
        """Columns of the data whose acknowledgement the per-second figures wait for, to be saved with a connection."""
        carry = self._intervals.carry
        waiting = carry.select(carry.connection == connection.number)
        return [waiting.side.tolist(), waiting.ts_ns.tolist(), waiting.end.tolist()]

    def resume_unacknowledged(self, connection: Connection, columns: list[list[int]]) -> None:
        arrays = [np.array(column, np.int64) for column in columns]
        carry = Carry(np.full(len(arrays[0]), connection.number), *arrays)
        self._intervals.carry = self._intervals.carry.plus(carry)

    def take_intervals(self) -> Intervals:
        """The counters per second since the last call; a second that is not over comes again in parts."""
        return self._intervals.take()

    def take_problems(self) -> list[Problem]:
        """The limits that were reached since the last call."""
        reached = [(text, self.counts.pop(name, 0)) for name, text in _LIMITS_REACHED.items()]
        return [
            Problem(ViolationCode.CAPTURE_LIMIT, f"{text} ({often(count)})", count=count)
            for text, count in reached
            if count
        ]

    def begin_file(self, next_head_ns: int | None) -> None:
        """The next windows are from another file; the one after it begins at this time and may hold late packets."""
        self._next_head_ns = _NEVER if next_head_ns is None else next_head_ns

    def feed(self, segments: Segments, file_no: int = 0) -> list[Item]:
        """Take the packets of one window; returns what became deliverable."""
        out: list[Item] = []
        for at in range(0, len(segments), BATCH_SEGMENTS):
            batch = segments.select(slice(at, at + BATCH_SEGMENTS))
            batch.frame = batch.frame | (file_no << FRAME_BITS)
            begun = len(out)
            self._feed(batch, out)
            self._intervals.add_gaps(out[begun:])
        return out

    def finish(self) -> list[Item]:
        """The recording is over: holes become gaps and every connection ends."""
        out = [item for items in self.finish_brief_flows() for item in items]
        begun = len(out)
        self._table.finish(out)
        self._intervals.add_gaps(out[begun:])
        return out

    @property
    def brief_flows(self) -> int:
        """How many connections have only a few packets so far."""
        return len(self._brief)

    def finish_brief_flows(self) -> Iterator[list[Item]]:
        """End the connections of a few packets, some at a time."""
        while len(self._brief):
            out: list[Item] = []
            self._end_brief_flows(self._brief.oldest(BRIEF_FLOWS_AT_ONCE), out)
            self._intervals.add_gaps(out)
            yield out

    def brief_flows_to_save(
        self, newest_ns: int, wanted: Callable[[BriefFlow], bool]
    ) -> tuple[list[SavedBriefFlow], list[Item]]:
        """The flows of a few packets that may continue after `newest_ns` and are not `wanted` so far. The others that
        may continue become connections, which are saved like any other."""
        saved = list(self._brief.packed_to_save(newest_ns, wanted))
        kept = {one.flow.key for one in saved}
        out: list[Item] = []
        self._wake([key for key in self._brief.lasting(newest_ns) if key not in kept], out)
        self._intervals.add_gaps(out)
        return saved, out

    def resume_brief_flow(self, key: Key, packed: bytes) -> None:
        """Continue a saved flow of a few packets; call it before its packets are fed."""
        self._brief.resume(key, packed)

    def _feed(self, segments: Segments, out: list[Item]) -> None:
        self._now_ns = int(segments.ts_ns.min())  # not the newest packet so far: the clock may have been set back
        flows = group(segments)
        if self._share is not None:
            segments, flows = self._share.select(segments, flows)
        now = self._brief.sift(segments, flows, self._table) if len(segments) else segments
        if len(now):
            self._reassemble(now, flows if now is segments else group(now), out)
        else:
            self._table.tidy((), min(self._now_ns, self._next_head_ns), out)
        if self._share is not None:
            self._share.require(self._brief.bytes, self._limits.brief_flow_bytes)
        while self._brief.bytes > self._limits.brief_flow_bytes:
            oldest = self._brief.oldest(BRIEF_FLOWS_AT_ONCE)
            self._table.counts["flows_evicted"] += len(self._brief.lasting(self._now_ns, oldest))
            self._end_brief_flows(oldest, out)

    def _end_brief_flows(self, keys: list[Key], out: list[Item]) -> None:
        self._table.close(self._wake(self._brief.end(keys, self._wanted), out), out)

    def _wake(self, keys: list[Key], out: list[Item]) -> list[Key]:
        if keys:
            segments = self._brief.wake(keys)
            self._reassemble(segments, group(segments), out)
        return keys

    def _reassemble(self, segments: Segments, flows: Flows, out: list[Item]) -> None:
        by_flow = np.argsort(flows.group * 2 + flows.side, kind="stable")
        connections = [self._table.connection_of(key) for key in flows.keys]
        repeated = find_duplicates(segments, flows, connections, by_flow, self.remembered_packets)
        if repeated is not None:
            plain = repeated.duplicates.copy()
            plain[flows.order] &= ~repeated.eventful[flows.group]
            if plain.any():
                count_duplicates(segments, flows, connections, plain)
                segments, repeated = segments.select(~plain), repeated.select(~plain)
                if not len(segments):
                    self._table.tidy(connections, min(self._now_ns, self._next_head_ns), out)
                    return
                flows = group(segments)
                by_flow = np.argsort(flows.group * 2 + flows.side, kind="stable")
        batch = SegmentBatch(self._table, self._intervals, segments, flows, out, by_flow, repeated)
        batch.run()
        batch.observe()
        self._table.tidy(batch.slots, min(self._now_ns, self._next_head_ns), out)
