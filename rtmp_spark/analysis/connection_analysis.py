"""Analyzes one connection: passes each fact to the session, then to the rules, and emits rows.

Rows of messages are emitted as soon as they are decoded; rows that summarise the connection, at its end. Redaction,
filters and the choice of tables are applied here.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias, TypedDict

from rtmp_spark.analysis.observer import Observer
from rtmp_spark.analysis.row_filter import TS_COLUMNS, ConnectionRows
from rtmp_spark.analysis.row_sink import RowSink
from rtmp_spark.analysis.rows.command_rows import CommandRows
from rtmp_spark.analysis.rows.interval_rows import OpenSeconds, SecondsState, TcpSecond
from rtmp_spark.analysis.rows.summary_rows import connection_row, ended_connection, handshake_rows, stream_row
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.tcp.stream_items import Item
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import Tunnels
from rtmp_spark.capture.unwrap.wrapping import Wrapping
from rtmp_spark.codec.limits import OPEN_SECONDS, SETTLED_SECONDS
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets, PendingFactRedaction
from rtmp_spark.conversation.conversation import Conversation, ConversationOptions, ConversationState, Progress
from rtmp_spark.conversation.decoding.decode_options import DecodeOptions
from rtmp_spark.conversation.decoding.direction_decoder import DirectionDecoder
from rtmp_spark.conversation.ending import Ending, close_cause
from rtmp_spark.conversation.fact_order import Release
from rtmp_spark.conversation.facts import CommandFact, Facts, MediaRows
from rtmp_spark.conversation.session import Session, SessionState
from rtmp_spark.forensics.answer_rules import answer_findings
from rtmp_spark.forensics.connection_rules import ConnectionRules, RulesState
from rtmp_spark.forensics.deliveries.delivery_matching import Deliveries
from rtmp_spark.forensics.ending_rules import end_findings, wrapping_findings
from rtmp_spark.forensics.fact_rules import FACTS_WITH_FINDINGS, fact_findings
from rtmp_spark.forensics.findings import Finding, FindingFold, SavedKind
from rtmp_spark.forensics.streams.stream_verdict import StreamColumns
from rtmp_spark.known_secrets import KnownSecrets, SavedSecrets
from rtmp_spark.redact import may_have_secrets

_ALL_TIME: Final = 1 << 62  # later than every packet

ConnectionObserver: TypeAlias = Observer["ConnectionAnalysis"]


class AnalysisState(TypedDict):
    conversation: ConversationState
    session: SessionState
    secrets: SavedSecrets
    rules: RulesState | None
    findings: list[SavedKind]
    seconds: list[SecondsState]


class AnalysisContext(NamedTuple):
    """What all connections of an analysis share."""

    settings: Settings
    options: ConversationOptions
    sink: RowSink
    tunnels: Tunnels
    observer: ConnectionObserver
    deliveries: Deliveries | None = None

    def commands_wanted(self) -> bool:
        """Whether rows or the first commands of another connection are wanted."""
        wanted = self.sink.wants("commands") or self.settings.filter.by_content
        return wanted or self.observer.first_commands_wanted()


class ConnectionAnalysis:
    """One connection. Call `receive` for each item, `advance` after each window and `close` at its end."""

    __slots__ = (
        "_commands_wanted", "_context", "_rows", "commands", "conversation", "findings", "gave_seconds", "rules",
        "seconds", "secrets", "session",
    )  # fmt: skip

    def __init__(self, connection: Connection, context: AnalysisContext) -> None:
        settings = context.settings
        self._context = context
        self.conversation = Conversation(connection, context.options, context.tunnels)
        self.secrets = ConnectionSecrets(settings.redactor)
        self.session = Session()
        self.rules = self._new_rules()
        self.findings = FindingFold()
        self.commands = CommandRows(self.secrets, table_wanted=context.sink.wants("commands"))
        self._commands_wanted: bool | None = None  # asked when there are facts
        self.seconds: list[OpenSeconds] = []  # of both directions, from the first second on
        self.gave_seconds = False  # whether rows of `intervals` were emitted
        self._rows = ConnectionRows(context.sink, settings)
        if not settings.filter.admits_ends(self.conversation.ends):
            self.conversation.refuse("filtered")

    def _new_rules(self) -> ConnectionRules | None:
        settings = self._context.settings
        if not settings.measured:
            return None
        return ConnectionRules(self.session, self.secrets)

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        return self.conversation.connection

    @property
    def uid(self) -> str:
        """Empty until it is known."""
        return self.conversation.uid or ""

    @property
    def refusal(self) -> str | None:
        """Why the connection gives no rows."""
        return self.conversation.refusal

    @property
    def wrapping(self) -> Wrapping | None:
        return self.conversation.wrapping

    @wrapping.setter
    def wrapping(self, wrapping: Wrapping) -> None:
        """An RTMPT session on a connection that carried another one before."""
        self.conversation.probe.wrapping = wrapping

    @property
    def directions(self) -> list[DirectionDecoder | None]:
        return self.conversation.directions.decoders

    def direction_name(self, number: int) -> str:
        return self.conversation.direction_name(number)

    # -- what arrives -------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> None:
        self.conversation.receive(item)

    def receive_unwrapped(self, item: Item) -> None:
        self.conversation.receive_unwrapped(item)

    def receive_second(self, side: int, second: int, figures: TcpSecond) -> None:
        """Figures of TCP about one side in one second."""
        if self.refusal is None:
            self._open_seconds(side ^ self.connection.origin).add_tcp(second, figures)

    def _open_seconds(self, number: int) -> OpenSeconds:
        if not self.seconds:
            self.seconds = [OpenSeconds(), OpenSeconds()]
        return self.seconds[number]

    def advance(self, at: int, second: int) -> bool:
        """After a window whose last packet is `at`: emit the rows that are final. No packet is older than `second`, in
        this window and in later files. Returns whether both sides are done."""
        if not self._identify(final=False):
            return False
        progress = self.conversation.advance(at, second)
        self._take(progress)
        self._emit_final_seconds(second - SETTLED_SECONDS)
        return progress.is_over

    def write_to(self, context: AnalysisContext) -> None:
        """Emit later rows there. The context differs only in where rows and notes go."""
        self._context = context
        self._rows = ConnectionRows(context.sink, context.settings)

    def wait_for_helpers(self) -> None:
        """Wait for all that helper processes decode."""
        self.conversation.directions.catch_up(_ALL_TIME)

    def rest(self) -> None:
        """No window follows for now: emit what helper processes still decode."""
        for number, facts in self.conversation.rest():
            self._emit_decoded(number, facts)

    def _identify(self, final: bool) -> bool:
        """Whether the connection is RTMP, is known by its uid, and is wanted."""
        conversation = self.conversation
        if not conversation.identify(final=final):
            return False
        wanted = self._context.settings.filter
        if wanted.uid not in (None, conversation.uid):
            if final or self.wrapping is None or not self.wrapping.carriers:  # else it may carry the wanted connection
                conversation.refuse("filtered")
            conversation.directions.take_facts()
            return False
        return True

    # -- facts ----------------------------------------------------------------------------------------------------

    def _take(self, progress: Progress) -> None:
        for number, facts in progress.decoded:
            self._emit_decoded(number, facts)
        if progress.released is not None:
            self._apply(progress.released)
        if progress.is_over:
            self.session.settle()
            if self.rules is not None:
                self.rules.settle()

    def _emit_decoded(self, number: int, facts: Facts) -> None:
        context, wanted = self._context, self._context.settings.filter
        direction, uid, rows = self.direction_name(number), self.uid, self._rows
        rows.add("messages", uid, direction, facts.messages)
        rows.add("controls", uid, direction, facts.controls)
        rows.add("media_tags", uid, direction, facts.media)
        if facts.payloads:
            in_time = {place.msg_no for place in facts.passed if wanted.admits_time(place.ts)}
            kept = [row for row in self.secrets.payloads_without_secrets(facts) if row[0] in in_time]
            rows.add("payloads", uid, direction, kept)
        if self.rules is not None:
            self.rules.passed(direction, facts.passed, facts.firsts)
        if context.deliveries is not None and facts.media:  # only rows inside the time filter, as in a lake
            messages = wanted.rows_in_time(facts.messages, TS_COLUMNS["messages"])
            media = wanted.rows_in_time(facts.media, TS_COLUMNS["media_tags"])
            context.deliveries.collect(uid, direction, messages, media)
        if facts.seconds:
            self._open_seconds(number).add_media(facts.seconds)

    def _apply(self, released: Release) -> None:
        """Pass facts to the session, then to the rules."""
        if self._commands_wanted is None:
            self._commands_wanted = self._context.commands_wanted()
        session, rules, secrets = self.session, self.rules, self.secrets
        shows_commands = self._commands_wanted
        names = (self.direction_name(0), self.direction_name(1))
        found: list[Finding] = []
        for _, number, _, fact in released.facts:
            direction = names[number]
            if type(fact) is CommandFact:
                if may_have_secrets(fact.name):
                    secrets.learn(fact)
                exchange = session.receive_command(direction, fact)
                if exchange.request is not None or exchange.refuses is not None:
                    found += answer_findings(session, exchange, secrets)
                if rules is not None:
                    rules.receive_command(direction, fact)
                if shows_commands:
                    self.commands.add(exchange)
            elif isinstance(fact, MediaRows):
                for media in session.receive_media(direction, fact.rows, fact.known_at):
                    if rules is not None:
                        rules.receive_media(media)
            else:
                session.receive(direction, fact)
                if type(fact) in FACTS_WITH_FINDINGS:
                    found += fact_findings(session, direction, fact)
                if rules is not None:
                    rules.receive(direction, fact)
        if rules is not None:
            found = rules.advance(released.up_to) + found
        if found:
            self.findings.extend([finding.without_secrets(secrets.hide) for finding in found])
        if shows_commands:
            for direction, rows in sorted(self.commands.take().items()):
                self._rows.add("commands", self.uid, direction, rows)
        self._rows.release(self.uid, session.spans)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _emit_final_seconds(self, before: int) -> None:
        first = self.provisional_second()
        if first is None or first >= before:
            return
        since_ns = self.conversation.unsettled_ns
        if since_ns is not None:
            before = min(before, since_ns // 1_000_000_000)
        before = max(before, *(seconds.latest(OPEN_SECONDS) for seconds in self.seconds))
        self._emit_seconds(before)

    def _emit_seconds(self, before: int | None) -> None:
        if self._rows.are_held:
            return
        for number, seconds in enumerate(self.seconds):
            if seconds.empty:
                continue
            direction = self.direction_name(number)
            rows = seconds.take(self.uid, direction, before)
            if rows:
                self.gave_seconds = True
                if self.rules is not None:
                    self.rules.receive_seconds(direction, rows)
                self._rows.add_seconds(rows)

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """The connection is over, its counters are final; returns whether it gave rows."""
        conversation = self.conversation
        conversation.finish()
        if not self._identify(final=True):
            return False
        self._take(conversation.release_all())
        ending = conversation.ending()
        if self._rows.are_held or not self._context.settings.filter.admits_span(ending.ts_start, ending.ts_end):
            conversation.refuse("filtered")
            return False
        goodbye_ns = conversation.wrapping_facts.goodbye_ns
        if goodbye_ns is not None:
            self.session.note_teardown(goodbye_ns // 1000)
        cause = close_cause(ending, self.session)
        if self.rules is not None:
            cause = self.rules.close_cause(ending, cause)
        self.findings.extend(wrapping_findings(conversation, conversation.wrapping_notes()))
        self.findings.extend(end_findings(ending, self.session, cause))
        self._emit_seconds(None)
        if self.rules is not None:
            self.rules.end(ending, cause, self.findings)
        self._emit_summary(ending, cause)
        self._context.observer.closed(self)
        return True

    def _emit_summary(self, ending: Ending, cause: str) -> None:
        sink, settings, session, uid = self._context.sink, self._context.settings, self.session, self.uid
        if sink.wants("handshakes"):
            sink.add("handshakes", handshake_rows(uid, session.handshake))
        app = session.app and self.secrets.address(session.app)
        for span in session.spans:
            if self.rules is None:
                columns = StreamColumns(gaps=session.gaps[span.direction])
            else:
                columns = self.rules.stream_columns(span, self.findings)
            row = stream_row(uid, app, span, self.secrets, columns, ending.streams[span.direction])
            sink.add_late("streams", [row])
        sink.add_late("endings", [ended_connection(self.conversation, ending, cause)])
        self._rows.add_findings(self.findings.rows(uid, self.secrets.hide))
        if sink.wants("connections"):
            row = connection_row(
                self.conversation, session, self.rules, self.secrets, settings.sensor, ending, cause, app
            )  # fmt: skip
            sink.add("connections", [row])

    # -- state ----------------------------------------------------------------------------------------------------

    def provisional_second(self) -> int | None:
        """The first second whose row of `intervals` may change if the connection continues; None: no row may."""
        return min([seconds.first for seconds in self.seconds if not seconds.empty], default=None)

    def state(self) -> AnalysisState:
        """The state between two windows, as JSON and without secrets."""
        redaction = PendingFactRedaction(self.secrets)
        conversation = self.conversation.state(redaction.fact, redaction.facts)
        if self.rules is not None:
            for name, redacted in redaction.stream_names:
                self.rules.expect_redacted_name(name, redacted)
        return {
            "conversation": conversation,
            "session": self.session.state(self.secrets),
            "secrets": self.secrets.known.state(redaction.secrets.forms),
            "rules": None if self.rules is None else self.rules.state(),
            "findings": self.findings.state(self.secrets.hide),
            "seconds": [seconds.state() for seconds in self.seconds],
        }

    @classmethod
    def resume(cls, state: AnalysisState, connection: Connection, context: AnalysisContext) -> ConnectionAnalysis:
        own = cls(connection, context)
        saved = state["conversation"]
        own.conversation = Conversation.resume(saved, connection, context.options, context.tunnels)
        own.secrets.known = KnownSecrets.resume(state["secrets"])
        own.session = Session.resume(state["session"])
        own.rules = own._new_rules()
        if own.rules is not None and state["rules"] is not None:
            own.rules.resume(state["rules"])
        own.findings = FindingFold.resume(state["findings"])
        own.seconds = [OpenSeconds.resume(seconds) for seconds in state["seconds"]]
        return own


def single_connection(connection: Connection) -> ConnectionAnalysis:
    """The analysis of a connection of which only the findings are wanted, not the rows."""
    decode = DecodeOptions(message_types=frozenset(), interval_rows=False)
    options, sink = ConversationOptions(decode=decode), RowSink(())
    return ConnectionAnalysis(
        connection, AnalysisContext(Settings(), options, sink, Tunnels(), ConnectionObserver())
    )  # fmt: skip
