"""Turns packets into rows: combines reassembly, the analysis of every connection and the row sink in one class.

The sequential analysis (recording.py) and the decoding of one bucket (ingest/decode/bucket_decoder.py) both use an
`AnalysisCore`. It does not open files: callers pass the packets of each window with the number of their file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, cast

from rtmp_spark.analysis.connection_analysis import (
    AnalysisContext,
    ConnectionAnalysis,
    ConnectionObserver,
)
from rtmp_spark.analysis.early_closing import ClosedEarly, EarlyClosing
from rtmp_spark.analysis.open_connection import ConnectionState, EarlySecond, OpenConnection, wrapping_kind
from rtmp_spark.analysis.recorded_rows import Recorded, RecordedRows, Stage
from rtmp_spark.analysis.row_sink import Batch, RowSink
from rtmp_spark.analysis.rows.interval_rows import TcpSecond
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.capture.problem import Problem
from rtmp_spark.capture.service import REFUSED
from rtmp_spark.capture.tcp.brief_flows import BriefFlow, SavedBriefFlow
from rtmp_spark.capture.tcp.connection_share import ConnectionShare
from rtmp_spark.capture.tcp.frame_numbers import FRAME_BITS
from rtmp_spark.capture.tcp.reassembler import Reassembler
from rtmp_spark.capture.tcp.stream_items import Closed, End, Item
from rtmp_spark.capture.tcp.tcp_connection import Connection, endpoint
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import NoTunnels, SessionWrapping, SharedConnection, Tunnels
from rtmp_spark.codec.limits import SETTLED_PER_WINDOW
from rtmp_spark.codec.message import EVERY_TYPE
from rtmp_spark.conversation.brief_flow_probe import brief_refusal
from rtmp_spark.conversation.conversation import ConversationOptions
from rtmp_spark.conversation.decoding.decode_options import DecodeOptions
from rtmp_spark.forensics.attempts import number_attempts
from rtmp_spark.forensics.deliveries.delivery_matching import Deliveries

_Analysis: TypeAlias = ConnectionAnalysis | ClosedEarly
_AFTER_ALL: Final = 1 << 62  # later than every packet
_SETTLED_TABLES: Final = ("connections", "streams", "findings")
_NO_SECOND: Final = 1 << 40  # later than every second


class AnalysisCore:
    """Feed it windows of packets, take batches in between, and `finish` at the end."""

    def __init__(
        self,
        settings: Settings,
        tables: Sequence[str],
        observer: ConnectionObserver | None = None,
        share: ConnectionShare | None = None,
        *,
        closes_early: bool = False,
    ) -> None:
        """With a `share`, only its connections are analyzed, and their rows are recorded for another process. If it
        `closes_early`, connections cannot be saved (`open_connections`)."""
        matches_deliveries = "deliveries" in tables and settings.rules_across_connections
        self.deliveries = Deliveries() if matches_deliveries else None
        self.sink = RowSink(tables)
        self._tunnels = Tunnels(self._separate)
        self._recorded: RecordedRows | None = None
        if share is not None:
            self.sink = self._recorded = RecordedRows(tables)
            self.deliveries = self._recorded.deliveries if matches_deliveries else None
            observer = self._recorded.observer(observer or ConnectionObserver())
            self._tunnels = NoTunnels()
        message_types = settings.message_types if "messages" in tables else frozenset()
        decode = DecodeOptions(
            settings.limits,
            settings.keep_payloads,
            message_types=EVERY_TYPE if matches_deliveries else message_types,
            interval_rows="intervals" in tables,
        )
        options = ConversationOptions(settings.sensor, decode, settings.keylog, settings.helpers, settings.hook)
        observer = observer or ConnectionObserver()
        self._context = AnalysisContext(settings, options, self.sink, self._tunnels, observer, self.deliveries)
        self._reassembler = Reassembler(
            settings.limits, per_second=decode.interval_rows, wanted=self._is_wanted_flow, share=share
        )  # fmt: skip
        self._early_closing: EarlyClosing | None = None
        if closes_early and EarlyClosing.applies(self._context):
            self._early_closing = EarlyClosing(self._context, tables)
        self._open: dict[int, _Analysis] = {}
        self._early: dict[int, list[EarlySecond]] = {}  # of connections that have no rows yet
        self._second = 0  # no packet of the current window is older
        self._next_head_ns: int | None = None
        self._next_head_second = _NO_SECOND
        self._at = 0  # the last packet of the newest window
        self._separated: list[ConnectionAnalysis] = []  # RTMPT sessions on connections that had another one before
        self._lingering: list[_Analysis] = []  # closed, but other connections continue their RTMPT sessions
        self._finished: dict[int, str] | None = None
        self._stage = Stage.WINDOW
        self.live = False  # whether the observer gets connections as soon as they are settled
        self._announced: set[int] = set()  # connections that the observer has
        self._announcements_left = SETTLED_PER_WINDOW  # in this window
        self.connections = 0
        self.refusals: Counter[str] = Counter()  # why connections gave no rows
        self.other_connections: Counter[int] = Counter()  # TCP connections that are not RTMP, by file number

    def remember_packets(self, count: int) -> None:
        """Compare packets with those of earlier files, of which this many of each connection are remembered."""
        self._reassembler.remembered_packets = count

    @property
    def brief_flows(self) -> int:
        """How many connections have only a few packets so far."""
        return self._reassembler.brief_flows

    def take_recorded(self) -> list[Recorded]:
        """With a share: its rows since the last call."""
        return [] if self._recorded is None else self._recorded.take()

    # -- packets and rows -----------------------------------------------------------------------------------------

    def begin_file(self, next_head_ns: int | None) -> None:
        """The next windows are from another file; the one after it begins at this time.

        Files may overlap: what is older than the packets of a window is final only if no later file begins before.
        """
        self._second = 0
        self._next_head_ns = next_head_ns
        self._next_head_second = _NO_SECOND if next_head_ns is None else next_head_ns // 1_000_000_000
        self._reassembler.begin_file(next_head_ns)

    def feed(self, block: PacketBlock, segments: Segments, file_no: int = 0) -> None:
        """The TCP segments of one window. Frame numbers that contain `file_no` already need none."""
        self._second = int(block.ts_ns.min()) // 1_000_000_000  # not the newest so far: clocks are set back
        self._at = file_no << FRAME_BITS | int(block.frame[-1])
        self._deliver(self._reassembler.feed(segments, file_no), self._at)

    def rest(self) -> None:
        """No window follows for now: wait for helper processes."""
        for analysis in self._open.values():
            if isinstance(analysis, ConnectionAnalysis):
                analysis.rest()

    def finish(self) -> dict[int, str]:
        """End every connection; returns the uids, by connection number, of those that gave rows."""
        self._finished = {}
        self._stage = Stage.BRIEF_FLOWS
        for items in self._reassembler.finish_brief_flows():
            self._deliver(items, _AFTER_ALL)
        self._stage = Stage.END
        self._deliver(self._reassembler.finish(), _AFTER_ALL, final=True)
        return self._finished

    def ready(self, *, all_rows: bool = False) -> list[Batch]:
        """Full batches that need no capture id, or all rows of these tables."""
        return self.sink.ready(all_rows=all_rows)

    def batches(self, capture_ids: Sequence[str | None]) -> Iterator[Batch]:
        """All rows so far; `capture_ids` are those of all files so far, by number."""
        return self.sink.flush(capture_ids)

    def take_problems(self) -> list[Problem]:
        """The limits of reassembly that were reached since the last call."""
        return self._reassembler.take_problems()

    # -- connections ----------------------------------------------------------------------------------------------

    def _begin(self, connection: Connection) -> ConnectionAnalysis:
        analysis = ConnectionAnalysis(connection, self._context)
        self._put(analysis)
        for early in self._early.pop(connection.number, ()):
            analysis.receive_second(*early)
        return analysis

    def _put(self, analysis: _Analysis) -> None:
        """It gets the following items of its connection."""
        analysis.connection.tag = self._open[analysis.connection.number] = analysis

    def _is_wanted_flow(self, flow: BriefFlow) -> bool:
        """Whether a connection of a few packets may be RTMP; if not, it is counted here."""
        why = self._brief_refusal(flow)
        if why is None:
            return True
        self._refuse(why, flow.files)
        return False

    def _brief_refusal(self, flow: BriefFlow) -> str | None:
        settings = self._context.settings
        if settings.filter.by_ends and not settings.filter.admits_ends((endpoint(flow.key), endpoint(flow.key[18:]))):
            return "filtered"
        if not flow.payloads:
            return REFUSED if flow.is_refused else "no data"
        return brief_refusal(flow, has_keys=len(settings.keylog) > 0)

    def _refuse(self, why: str, files: Iterable[int]) -> None:
        self.refusals[why] += 1
        if why != "filtered":
            for number in files:
                self.other_connections[number] += 1

    def _deliver(self, items: list[Item], at: int, *, final: bool = False) -> None:
        """Pass one window's items to their connections, and let these emit rows.

        Each connection emits its rows before the next one gets its items, while its facts are in the processor's
        cache. It waits until all connections have their items if one of them may decode what others carry (RTMPT), or
        if helper processes decode.
        """
        by_connection: dict[int, list[Item]] = {}
        for item in items:
            by_connection.setdefault(item.connection.number, []).append(item)
        items.clear()  # each connection's bytes are freed with its facts
        self._take_seconds()
        order = sorted(by_connection.values(), key=_first_frame)
        order.reverse()
        by_connection.clear()
        closed: list[_Analysis] = []
        waiting: dict[int, ConnectionAnalysis] | None = None
        if self._context.settings.helpers is not None or self._tunnels.any_sessions:
            waiting = {}
        while order:
            received = order.pop()
            analysis = self._receive(received, closed)
            if analysis is None:
                continue
            if waiting is None and analysis.wrapping is not None:
                waiting = {}
            if closed and closed[-1] is analysis:
                continue
            if waiting is None:
                is_over = self._advance(analysis, at)
                if self._early_closing is not None and not self.live:
                    early = self._early_closing.received(analysis, received, is_over=is_over)
                    if early is not None:
                        self._put(early)
            else:
                waiting[analysis.connection.number] = analysis
        if waiting is not None:
            self._advance_together(waiting, at)
        closed.sort(key=_frame_first)
        self._close_all(closed, final=final)

    def _receive(self, items: list[Item], closed: list[_Analysis]) -> ConnectionAnalysis | None:
        """Pass items to their connection; returns its analysis, None if it has none."""
        connection = items[0].connection
        analysis: _Analysis | None = connection.tag
        for item in items:
            if isinstance(item, Closed):
                if analysis is None:
                    self._close_unheard(connection)
                else:
                    closed.append(analysis)
                break
            if isinstance(analysis, ClosedEarly):
                if isinstance(item, End):
                    continue
                analysis = analysis.reopen()
                self._put(analysis)
            elif analysis is None:
                analysis = self._begin(connection)
            analysis.receive(item)
        return None if isinstance(analysis, ClosedEarly) else analysis

    def _advance(self, analysis: ConnectionAnalysis, at: int) -> bool:
        is_over = analysis.advance(at, min(self._second, self._next_head_second))
        if self._recorded is not None:
            self._recorded.mark(self._stage, False, analysis.connection.frame_first)
        return is_over

    def _advance_together(self, waiting: dict[int, ConnectionAnalysis], at: int) -> None:
        for session in self._tunnels.settle():
            if session.connection.tag is not None:
                waiting.setdefault(session.connection.number, session.connection.tag)
        if self._context.settings.in_order:
            for analysis in waiting.values():
                analysis.wait_for_helpers()
        for analysis in sorted(waiting.values(), key=_frame_first):
            self._advance(analysis, at)

    def _take_seconds(self) -> None:
        found = self._reassembler.take_intervals()
        columns = [
            column.tolist()
            for column in (
                found.connection, found.side, found.second, found.packets, found.bytes,
                found.retransmitted_bytes, found.gap_bytes, found.zero_window_ns, found.window_min,
                found.in_flight_max, found.rtt_sum_ns, found.rtt_samples,
            )
        ]  # fmt: skip
        for number, side, second, *values in zip(*columns):
            analysis = self._open.get(number)
            if analysis is None:
                self._early.setdefault(number, []).append(EarlySecond(side, second, TcpSecond(*values)))
            else:
                analysis.receive_second(side, second, TcpSecond(*values))

    def _close_all(self, closed: list[_Analysis], final: bool) -> None:
        """Close in order; a connection on which an RTMPT session began stays while others continue the session."""
        waiting, left = [*self._lingering, *closed], -1
        self._lingering = []
        closed.clear()
        while len(waiting) != left:
            left, stay = len(waiting), []
            waiting.reverse()
            while waiting:  # each is freed as soon as it is closed: thousands may end together
                analysis = waiting.pop()
                if self._tunnels.carried_on(analysis.connection):
                    stay.append(analysis)
                else:
                    self._close(analysis)
            waiting = stay
        for analysis in waiting if final else ():
            self._close(analysis)
        self._lingering = [] if final else waiting
        if self._separated:
            separated, self._separated = self._separated, []
            over: list[ConnectionAnalysis] = []
            for analysis in separated:
                (over if final or _session_finished(analysis) else self._separated).append(analysis)
            for analysis in over:
                self._close(analysis)

    def _separate(self, shared: SharedConnection) -> Callable[[Item], None]:
        """An RTMPT session on a connection that had another one before gets rows of its own."""
        analysis = shared.tag = ConnectionAnalysis(cast(Connection, shared), self._context)
        self._separated.append(analysis)
        return analysis.receive_unwrapped

    def _close(self, analysis: _Analysis) -> None:
        connection = analysis.connection
        if self.live and self._finished is None and isinstance(analysis, ConnectionAnalysis):
            self._tell(analysis)
        if self._early_closing is not None:
            self._early_closing.forget(connection.number)
        self._announced.discard(connection.number)
        self._open.pop(connection.number, None)
        self._early.pop(connection.number, None)
        connection.tag = None
        if isinstance(analysis, ClosedEarly) and not analysis.is_final:
            analysis = analysis.reopen()
        gave_rows = analysis.close()
        if self._recorded is not None:
            self._recorded.mark(self._stage, True, connection.frame_first)
        if gave_rows:
            self.connections += 1
            if self._finished is not None:
                self._finished[connection.number] = analysis.uid
            return
        self._refuse(analysis.refusal or "unknown", connection.files)

    def _close_unheard(self, connection: Connection) -> None:
        """A connection without any payload."""
        self._early.pop(connection.number, None)
        wanted = self._context.settings.filter.admits_ends((connection.a, connection.b))
        why = REFUSED if connection.is_refused else "no data"
        self._refuse(why if wanted else "filtered", connection.files)

    def tell_settled(self) -> None:
        """Show the observer the connections whose both sides have ended since the last call."""
        for analysis in self._open.values():
            if analysis.connection.closed_ts_ns is not None and isinstance(analysis, ConnectionAnalysis):
                self._tell(analysis)
        self._announcements_left = SETTLED_PER_WINDOW

    def _tell(self, analysis: ConnectionAnalysis) -> None:
        """Show the observer the rows that this connection would have if it were over: those of a copy."""
        connection = analysis.connection
        if (
            not self._announcements_left
            or connection.number in self._announced
            or analysis.refusal is not None
            or analysis.wrapping is not None
        ):
            return
        self._announced.add(connection.number)
        self._announcements_left -= 1
        saved = {
            "connection": connection.state(None),
            "analysis": analysis.state(),
            "unacknowledged": self._reassembler.unacknowledged(connection),
        }
        settings = replace(self._context.settings, rules_across_connections=False, helpers=None, hook=None)
        copy = AnalysisCore(settings, _SETTLED_TABLES)
        copy.resume(json.loads(json.dumps(saved)))
        copy.finish()
        copy.sink.add("streams", number_attempts(copy.sink.take_late("streams"), {}))
        batches = list(copy.batches([""]))  # a capture that is still being written has no id
        if batches:
            self._context.observer.settled(batches)

    # -- connections that continue --------------------------------------------------------------------------------

    def open_brief_flows(self, newest_ns: int) -> list[SavedBriefFlow]:
        """Connections of a few packets that give no rows so far and may continue in a later file; before
        `open_connections`, which has all others."""
        saved, items = self._reassembler.brief_flows_to_save(newest_ns, lambda flow: self._brief_refusal(flow) is None)
        self._deliver(items, self._at)
        return saved

    def open_connections(self, newest_ns: int) -> Iterator[OpenConnection]:
        """Every connection that may continue in a later file, before `finish`.

        `newest_ns` is the time of the newest packet of all files: the packets fed here may be older. A closed
        connection on which an RTMPT session began is among them while other connections continue the session.
        """
        for connection in (*self._reassembler.connections, *(a.connection for a in self._lingering)):
            over_ns = max(connection.over_ns, self._tunnels.carried_on(connection))
            if over_ns < newest_ns:
                continue
            analysis: ConnectionAnalysis | None = connection.tag
            saved = None if analysis is None else analysis.state()
            state: ConnectionState = {
                "connection": connection.state(self._next_head_ns),
                "analysis": saved,
                "unacknowledged": self._reassembler.unacknowledged(connection),
                "early": self._early.get(connection.number, []),
            }
            second = None if analysis is None else analysis.provisional_second()
            if second is None:
                second = 0 if analysis is None else _NO_SECOND
            yield OpenConnection(connection, over_ns, second, wrapping_kind(saved), state)

    def resume_brief_flow(self, key: bytes, packed: bytes) -> None:
        """Continue a connection of a few packets; before its packets are fed."""
        self._reassembler.resume_brief_flow(key, packed)

    def resume(self, state: ConnectionState) -> None:
        """Continue a connection of an earlier analysis; before its packets are fed. Connections on which RTMPT
        sessions began (`begins_tunnels`) come first, because others join them."""
        connection = self._reassembler.resume(state["connection"])
        if state["analysis"] is not None:
            analysis = ConnectionAnalysis.resume(state["analysis"], connection, self._context)
            connection.tag = analysis
            self._open[connection.number] = analysis
        elif state["early"]:
            self._early[connection.number] = [
                EarlySecond(side, second, TcpSecond(*figures)) for side, second, figures in state["early"]
            ]
        self._reassembler.resume_unacknowledged(connection, state["unacknowledged"])


def _first_frame(items: list[Item]) -> int:
    """Rows of one window are in this order, whichever process decoded them."""
    return items[0].connection.frame_first


def _frame_first(analysis: _Analysis) -> int:
    return analysis.connection.frame_first


def _session_finished(analysis: ConnectionAnalysis) -> bool:
    return isinstance(analysis.wrapping, SessionWrapping) and analysis.wrapping.session.finished
