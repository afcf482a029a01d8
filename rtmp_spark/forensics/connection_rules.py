"""The rules of one connection that need more than single facts, and the measures of its streams.

`ConnectionRules` receives the facts after its session has received them, in the same order, plus the places of all
messages and the final seconds of TCP. It returns findings as facts show them. At the end it adds the findings that only
the whole connection shows, drops those that others explain, and gives the measured columns. Its state is a value, so a
connection can continue in another file or process. The rules that judge single facts are in fact_rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.ending import Ending
from rtmp_spark.conversation.facts import (
    CLIENT,
    OTHER_DIRECTION,
    SENDER,
    STREAM_STARTS,
    CommandFact,
    ControlFact,
    FaultFact,
    GapFact,
    HandshakeFact,
    LagFact,
    Notable,
    Place,
    Row,
)
from rtmp_spark.conversation.session import Session, SpanMedia
from rtmp_spark.conversation.stream_span import StreamSpan
from rtmp_spark.forensics.acknowledgement_rules import FlowRules, FlowState
from rtmp_spark.forensics.command_rules import ExchangeRules, ExchangeState, not_negotiated
from rtmp_spark.forensics.explained_findings import drop_explained
from rtmp_spark.forensics.findings import Finding, FindingFold, SavedFinding, lasting, stream_key
from rtmp_spark.forensics.position import NO_POSITION, Position
from rtmp_spark.forensics.software.fingerprint import Fingerprint, recognise
from rtmp_spark.forensics.software.known_software import CLIENTS, ENDS_WITH_FIN, SERVERS
from rtmp_spark.forensics.software.traits import TraitCollector, TraitState
from rtmp_spark.forensics.stream_id_rules import StreamIdRules, StreamIdState
from rtmp_spark.forensics.streams import stream_verdict
from rtmp_spark.forensics.streams.declared_media import absent_tracks, contradictions, declaration
from rtmp_spark.forensics.streams.keyframe_interval import long_gop_findings
from rtmp_spark.forensics.streams.pace import TcpTrouble, fast_finding, slow_finding
from rtmp_spark.forensics.streams.stalls import receiver_waited
from rtmp_spark.forensics.streams.stream_measure import MeasureState, StreamMeasure
from rtmp_spark.forensics.streams.stream_verdict import StreamColumns, StreamVerdict
from rtmp_spark.forensics.thresholds import NO_MEDIA_US, STOPPED_US
from rtmp_spark.forensics.timestamp_rollover import extension_break
from rtmp_spark.forensics.zero_window_seconds import ZeroWindowSeconds

STATE_VERSION: Final = 7
_STREAM_COMMANDS: Final = STREAM_STARTS | {"pause", "pauseRaw", "seek"}
_TRACK_CHOICES: Final = frozenset({"receiveAudio", "receiveVideo"})  # a player may switch one of them off
_WATCHED: Final = _STREAM_COMMANDS | _TRACK_CHOICES | {"connect", "onMetaData", "@setDataFrame", "onStatus"}
_RESTARTING: Final = frozenset({"stream_eof", "stream_begin", "stream_dry"})
# Faults that make the timestamp of their message meaningless: rules of time ignore it.
_WRONG_TIMESTAMP: Final = (ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE, ViolationCode.CHUNK_DELTA_NEGATIVE)


class RulesState(TypedDict):
    version: int
    flow: FlowState
    exchange: ExchangeState
    stream_ids: StreamIdState
    traits: TraitState
    connect_ts: int | None
    connected: SavedFields
    from_start: dict[str, bool]
    zero_windows: Mapping[str, SavedFields]  # pairs of second and ms
    omitted: Mapping[str, SavedFields]
    found: list[SavedFinding]
    measures: list[MeasureState]


class _Close(NamedTuple):
    cause: str
    closed_by: str | None
    server_closed_us: int  # when the server sent its FIN; 0 if it did not


class ConnectionRules:
    """`session` must receive every fact before this object does. `secrets` are those of the connection, for texts in
    traits and saved states."""

    __slots__ = (
        "_client", "_close", "_connected", "_first_spans", "_found", "_from_start", "_measures", "_omitted", "_secrets",
        "_session", "_stream_ids", "_troubled", "_zero_windows", "connect_ts", "exchange", "flow", "traits",
    )  # fmt: skip

    def __init__(self, session: Session, secrets: ConnectionSecrets) -> None:
        self._session = session
        self._secrets = secrets
        self.flow = FlowRules()
        self.exchange = ExchangeRules()
        self._stream_ids = StreamIdRules()
        self.traits = TraitCollector(secrets.redactor.sealed, secrets.hide)
        self.connect_ts: int | None = None
        self._connected = NO_POSITION
        self._from_start = {"c2s": False, "s2c": False}
        self._zero_windows = ZeroWindowSeconds()
        self._omitted: dict[str, Position] = {}  # direction -> where an extended timestamp was first left out
        self._found: list[Finding] = []
        self._measures: list[StreamMeasure] = []  # of session.spans, by their numbers
        self._close: _Close | None = None
        self._client: Fingerprint | None = None  # at the end
        self._first_spans: dict[tuple[str, int], StreamSpan] = {}  # of all streams that had one id, at the end
        self._troubled: frozenset[int] | None = None  # seconds in which TCP retransmitted, at the end

    # -- in the order of time -------------------------------------------------------------------------------------

    def passed(self, direction: str, messages: Sequence[Place], firsts: Sequence[Place] = ()) -> None:
        """Places of messages; `firsts` are the first of each type."""
        self.flow.passed(direction, messages)
        self.traits.began(direction, firsts)

    def receive(self, direction: str, fact: Notable) -> None:
        """A fact that is not a command."""
        kind = type(fact)
        if kind is HandshakeFact:
            if fact.part == 0:  # type: ignore[union-attr]
                self._from_start[direction] = True
            elif fact.part == 1:  # type: ignore[union-attr]
                self.traits.handshake(direction, fact)  # type: ignore[arg-type]
        elif kind is ControlFact:
            self._control(direction, fact)  # type: ignore[arg-type]
        elif kind is GapFact:
            self._gap(direction, fact)  # type: ignore[arg-type]
        elif kind is LagFact:
            self._lag(direction, fact)  # type: ignore[arg-type]
        elif kind is FaultFact:
            self._fault(direction, fact)  # type: ignore[arg-type]

    def receive_media(self, media: SpanMedia) -> None:
        self._stream_ids.media(media)
        if media.span.number >= 0:
            self._measure(media.span).add(media.rows, media.known_at)

    def advance(self, at: int | None) -> list[Finding]:
        """All facts up to packet `at` were received; returns what they show."""
        self.flow.advance(at)
        found, self._found = self._found, []
        if self._both_from_start:  # otherwise bytes sent before the capture are not counted
            found += self.flow.found
        self.flow.found = []
        for span, measure in zip(self._session.spans, self._measures):
            if measure.found:
                found += _of(span, measure.found)
                measure.found = []
        return found

    def settle(self) -> None:
        """No message follows: drop what only messages need."""
        self.traits.settle()
        self.exchange.settle()

    def receive_seconds(self, direction: str, rows: Sequence[Row]) -> None:
        """Rows of `intervals` that will not change any more."""
        self._zero_windows.add(direction, rows)

    def _measure(self, span: StreamSpan) -> StreamMeasure:
        measures = self._measures
        while len(measures) <= span.number:
            new = self._session.spans[len(measures)]
            measures.append(StreamMeasure(new.direction, new.stream_id, new.start_known))
        measure = measures[span.number]
        gaps = self._session.gaps_in(span)
        if gaps > measure.gaps:  # noted when it is used: there may be thousands of gaps and of streams
            measure.gap(gaps)
        return measure

    def _open_measures(self, direction: str | None, stream_id: int | None = None) -> list[StreamMeasure]:
        """Of one direction or of both, and of one stream id or of all."""
        session, found = self._session, []
        for span in session.open_spans() if stream_id is None else session.open_spans_on(stream_id):
            if direction in (None, span.direction) and span.number >= 0:
                found.append(self._measure(span))
        return found

    @property
    def _both_from_start(self) -> bool:
        return self._from_start["c2s"] and self._from_start["s2c"]

    def receive_command(self, direction: str, fact: CommandFact) -> None:
        found = self.exchange.command(direction, fact, self._from_start)
        if found:
            self._found += found
        self.traits.command(direction, fact)
        if fact.name in _WATCHED:
            self._watched_command(direction, fact)

    def _watched_command(self, direction: str, fact: CommandFact) -> None:
        name = fact.name
        if name == "onMetaData" or name == "@setDataFrame":
            self._metadata(direction, fact)
        elif direction == "s2c":
            if name == "onStatus":
                for measure in self._open_measures("s2c", fact.stream_id):
                    measure.restart()
        elif name == "connect":
            if self.connect_ts is None:
                self.connect_ts = fact.ts
                self._connected = Position(fact.msg_no, fact.frame, fact.ts)
        elif name in _STREAM_COMMANDS:
            self._stream_ids.command(fact)
            for measure in self._open_measures(None, fact.stream_id):
                if not measure.asked:
                    measure.asked = [fact.msg_no, fact.frame]
                elif measure.direction == "s2c":
                    measure.suspend()
        elif name in _TRACK_CHOICES:
            for measure in self._open_measures("s2c", fact.stream_id):
                measure.interrupt()

    def _fault(self, direction: str, fact: FaultFact) -> None:
        if fact.code is ViolationCode.CHUNK_EXT_TS_MISSING:
            self._omitted.setdefault(direction, Position(fact.msg_no, fact.frame, fact.ts))
        elif fact.code in _WRONG_TIMESTAMP and fact.msg_no is not None:
            for measure in self._open_measures(direction, fact.stream_id) or self._open_measures(direction):
                measure.ignore_timestamp(fact.msg_no)

    def _gap(self, direction: str, fact: GapFact) -> None:
        self.flow.gap(direction, fact.at)
        self.exchange.gap(direction, fact.ts)

    def _lag(self, direction: str, fact: LagFact) -> None:
        for measure in self._open_measures(direction, fact.stream_id):
            measure.lag(fact.csid, fact.over)

    def _control(self, direction: str, fact: ControlFact) -> None:
        found = self.flow.control(direction, fact)
        if found:
            self._found += found
        self.traits.control(direction, fact)
        if fact.kind in _RESTARTING:
            for measure in self._open_measures(direction, fact.event_stream_id):
                measure.restart()
        elif fact.kind == "stream_is_recorded":
            for measure in self._open_measures(direction, fact.event_stream_id):
                measure.recorded = True

    def _metadata(self, direction: str, fact: CommandFact) -> None:
        declared = declaration(fact.args)
        if declared is None:
            return
        for measure in self._open_measures(direction, fact.stream_id) or self._open_measures(direction):
            if not measure.declared:
                measure.declared = {"msg_no": fact.msg_no, "frame": fact.frame, "ts": fact.ts}
            measure.declared |= declared

    # -- the end --------------------------------------------------------------------------------------------------

    def close_cause(self, ending: Ending, cause: str) -> str:
        """`cause`, unless flow control or what is known of the client explains the end better than TCP does."""
        if cause in ("idle_timeout", "unknown", "peer_vanished") and self._both_from_start and ending.closed_by:
            for direction in ("c2s", "s2c"):
                media = [span.ts_end for span in self._session.spans if span.direction == direction]
                if media and ending.ts_end - max(media) >= STOPPED_US and self.flow.starving(direction):
                    return "ack_stall"
        if cause == "peer_vanished" and (ending.closed_by, ending.close_kind) == (CLIENT, "fin"):
            if self.client().software in ENDS_WITH_FIN:
                return "teardown"
        return cause

    def end(self, ending: Ending, cause: str, findings: FindingFold) -> None:
        """Add what the whole connection shows, and drop what another finding explains."""
        session = self._session
        self._close = _Close(cause, ending.closed_by, ending.streams["s2c"].fin_ts_ns // 1000)
        findings.extend(self._found + self.exchange.end() + self._stream_ids.end(session, findings))
        self._found = []
        both_captured = ending.recorded("c2s") and ending.recorded("s2c") and not ending.midstream
        if both_captured and self._both_from_start and not self.flow.is_settled:
            silence = {d: ending.silence_us(d) for d in ("c2s", "s2c")}
            total = {d: s.delivered_bytes + s.missed_bytes for d, s in ending.streams.items()}
            until = {d: ending.peer_closed_ns(d) // 1000 or ending.ts_end for d in OTHER_DIRECTION}
            findings.extend(self.flow.end(until, silence, total, bool(session.teardown_ts)))
        for direction, position in self._omitted.items():
            findings.extend(extension_break(direction, position))
        self._client = self.client()
        software = self._client.software
        if software is not None and "c2s" not in self._omitted and self._publishes():
            findings.extend(extension_break("c2s", self._connected, software))
        for span in session.spans:
            self._first_spans.setdefault((span.direction, span.stream_id), span)
            findings.extend(_of(span, self._stream_findings(span, ending, both_captured)))
        played = [measure.recorded for measure in self._measures if measure.direction == "s2c"]
        if played and all(played):  # a player of a file reads it at the speed of playback
            findings.lower_to_info(ViolationCode.TCP_ZERO_WINDOW, "s2c")
        drop_explained(findings, ending, session)

    def _publishes(self) -> bool:
        return any(span.role == "publish" and span.has_media for span in self._session.spans)

    def _stream_findings(self, span: StreamSpan, ending: Ending, both_captured: bool) -> list[Finding]:
        measure = self._measure(span)
        found, measure.found = measure.found, []
        found += long_gop_findings(measure) + stream_verdict.skew_finding(measure)
        found += contradictions(measure) + absent_tracks(measure)
        found += not_negotiated(measure, self.exchange.offered)
        direction, stream_id = measure.direction, measure.stream_id
        measure.close(ending.peer_closed_ns(direction) // 1000)
        found += measure.stalls.track_findings(direction, stream_id, measure.author)
        if measure.stalls.kept or any(track.parts for track in measure.paced_tracks()):
            if self._troubled is None:  # a lossy link is bad for both directions: of one only a stall may be visible
                self._troubled = frozenset().union(*[s.loss.troubled_seconds for s in ending.streams.values()])
            tcp = TcpTrouble(self._troubled, self._zero_windows.closed_ms(direction))
            found += self._delivery_findings(measure, tcp)
        if both_captured and span.answered and not span.refused and not measure.has_frames:
            found += _no_media(span, measure, ending)
        return found

    def _delivery_findings(self, measure: StreamMeasure, tcp: TcpTrouble) -> list[Finding]:
        """Stalls, and media that is slower or faster than real time."""
        direction, stream_id, stalls = measure.direction, measure.stream_id, measure.stalls
        if measure.recorded:
            stalls.forget(lambda stall: receiver_waited(stall, tcp.zero_window_ms))
        tracks, waits = measure.paced_tracks(), self.flow.waits(direction)
        slow = slow_finding(tracks, direction, stream_id, measure.recorded, tcp)
        fast = fast_finding(tracks, direction, stream_id, measure.recorded)
        return slow + fast + stalls.findings(direction, stream_id, *tcp, waits, is_slow=bool(slow))

    # -- columns ----------------------------------------------------------------------------------------------------

    def client(self) -> Fingerprint:
        return self._client or recognise(self.traits.found("c2s"), CLIENTS, self._secrets.hide_all)

    def server(self) -> Fingerprint:
        return recognise(self.traits.found("s2c"), SERVERS, self._secrets.hide_all)

    def stream_columns(self, span: StreamSpan, findings: FindingFold) -> StreamColumns:
        """Measured columns of `streams` and the verdict; after `end`."""
        measure = self._measure(span)
        return stream_verdict.columns(measure, self.connect_ts, self._verdict(span, measure, findings))

    def _verdict(self, span: StreamSpan, measure: StreamMeasure, findings: FindingFold) -> StreamVerdict:
        close = self._close or _Close("unknown", None, 0)
        too_late = 0 < close.server_closed_us < span.left_at  # a teardown sent to a server that had closed
        is_broken = span.role == "publish" and (too_late or not span.ended)
        known: list[Finding] = []
        if span.refused or not measure.has_frames or not findings.has_only_infos():  # else infos say nothing about it
            own = {stream_key(span.ts_start, span.stream_id)}  # earlier and later streams may have the same id
            if span is self._first_spans[span.direction, span.stream_id]:  # reported before this stream was known
                own |= {stream_key(None, stream_id) for stream_id in (span.stream_id, span.media_stream_id)}
            known = findings.first_ones(own)
        return stream_verdict.verdict(
            measure, span.refused, known, (close.cause, close.closed_by) if is_broken else None
        )

    # -- state ----------------------------------------------------------------------------------------------------

    def expect_redacted_name(self, name: str, redacted: str) -> None:
        """A saved state calls this stream by its redacted name; traits compare names with what servers answer."""
        self.traits.add_redacted_name(name, redacted)

    def state(self) -> RulesState:
        """Call `advance` first and take its findings."""
        return {
            "version": STATE_VERSION,
            "flow": self.flow.state(),
            "exchange": self.exchange.state(self._secrets.hide),
            "stream_ids": self._stream_ids.state(),
            "traits": self.traits.state(),
            "connect_ts": self.connect_ts,
            "connected": self._connected,
            "from_start": self._from_start,
            "zero_windows": self._zero_windows.state(),
            "omitted": self._omitted,
            "found": [finding.without_secrets(self._secrets.hide).plain() for finding in self._found],
            "measures": [self._measure(span).state() for span in self._session.spans],
        }

    def resume(self, state: RulesState) -> None:
        if state["version"] != STATE_VERSION:
            raise ValueError(f"state of connection rules has version {state['version']}, expected {STATE_VERSION}")
        self.flow.resume(state["flow"])
        self.exchange.resume(state["exchange"])
        self._stream_ids.resume(state["stream_ids"])
        self.traits.resume(state["traits"])
        self.connect_ts, self._connected = state["connect_ts"], Position(*state["connected"])
        self._from_start = dict(state["from_start"])
        self._zero_windows = ZeroWindowSeconds.resume(state["zero_windows"])
        self._omitted = {direction: Position(*position) for direction, position in state["omitted"].items()}
        self._found = [Finding.from_plain(finding) for finding in state["found"]]
        self._measures = [StreamMeasure.resume(measure) for measure in state["measures"]]


def _of(span: StreamSpan, found: list[Finding]) -> list[Finding]:
    return [finding._replace(stream_ts=span.ts_start) for finding in found] if found else found


def _no_media(span: StreamSpan, measure: StreamMeasure, ending: Ending) -> list[Finding]:
    """A stream that was accepted and stayed empty: for long enough, or until its receiver closed."""
    sender = SENDER[span.direction]
    waited = (span.ts_end if span.ended else ending.ts_end) - span.ts_start
    cut = not span.ended and ending.closed_by not in (None, sender) and not span.has_media
    if not measure.start_known or measure.gaps or not (cut or waited >= NO_MEDIA_US):
        return []
    action = "published" if span.role == "publish" else "played"
    detail = f"{action} for {lasting(waited)} without any media"
    if cut:
        detail += f" before the {ending.closed_by} closed"
    msg_no, frame = measure.asked or (None, None)
    at_fault = None if cut or span.role == "play" else sender  # a server may have nothing to play
    actual = "only configurations" if span.has_media else "none"
    return [
        Finding(
            ViolationCode.SESSION_NO_MEDIA, detail, None, at_fault, span.direction, span.stream_id, msg_no, frame,
            span.ts_start, expected="audio or video", actual=actual,
        )
    ]  # fmt: skip
