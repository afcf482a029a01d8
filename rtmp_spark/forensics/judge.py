"""All rules of one connection, brought together: the fold that a recording runs beside its session.

It is given what the session is given, in the same order, plus the places of messages and the settled seconds of TCP;
at the end it adds its findings, takes back those that another one explains, and fills the measured columns. Its state
is a value, so a connection can go on in another file or process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.capture.facts import (
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
from rtmp_spark.capture.findings import CLIENT, SENDER, Finding, FindingFold, lasting
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics import streams
from rtmp_spark.forensics.declared import absent_tracks, contradictions, declaration
from rtmp_spark.forensics.exchange import OTHER_WAY, ExchangeRules, not_negotiated
from rtmp_spark.forensics.fingerprint import CLIENTS, SERVERS, Verdict, recognise
from rtmp_spark.forensics.flow import FlowRules
from rtmp_spark.forensics.habits import HabitFold
from rtmp_spark.forensics.measure import StreamMeasure
from rtmp_spark.forensics.prediction import extension_break
from rtmp_spark.schema import column_names

STATE_VERSION = 4
_INTERVALS = column_names("intervals")
_SECOND, _AGAIN, _ZERO = (_INTERVALS.index(name) for name in ("ts_second", "retransmitted_bytes", "zero_window_ms"))
_MOST_TROUBLED = 100_000
_NO_MEDIA_US = 1_000_000
_STOPPED_US = 1_000_000
_ANSWER_US = 1_000_000  # a refusal this soon after an error answers it
_CLOSE_US = 5_000_000  # so does a reset
_STREAM_COMMANDS = frozenset({"publish", "play", "play2", "pause", "pauseRaw", "seek"})
_CHOICES = frozenset({"receiveAudio", "receiveVideo"})  # a player may do without one of them
_WATCHED = _STREAM_COMMANDS | _CHOICES | {"connect", "onMetaData", "@setDataFrame", "onStatus"}
# What the same fault would be told as once more.
_EXPLAINS = {
    ViolationCode.CHUNK_LIMIT: (ViolationCode.MSG_TRUNCATED,),
}
# What spoils the time of the message it is in, so that no rule of time is told of it as well.
_SPOILS_TIME = (ViolationCode.CHUNK_EXT_DELTA_ABSOLUTE, ViolationCode.CHUNK_DELTA_NEGATIVE)
# What a close in answer to an error leaves behind, and what a message that breaks off is not told for as well.
_AFTERMATH = (
    ViolationCode.CMD_NO_RESPONSE,
    ViolationCode.SESSION_NO_MEDIA,
    ViolationCode.MSG_TRUNCATED,
)


class Judge:
    """`session` is the fold it runs beside; its spans carry the measures that this object makes. The habits of a server
    matter only to those who look at its connection."""

    __slots__ = (
        "_connected", "_ended", "_first", "_found", "_from_start", "_omitted", "_server_closed", "_session",
        "_closed", "_troubled", "connect_ts", "exchange", "flow", "habits",
    )  # fmt: skip

    def __init__(self, session: Any) -> None:
        self._session = session
        self.flow = FlowRules()
        self.exchange = ExchangeRules()
        self.habits = HabitFold(session.sealed)
        self.connect_ts: int | None = None
        self._connected: list[int] = []  # message, packet and time of connect
        self._from_start = {"c2s": False, "s2c": False}
        self._troubled: dict[str, set[int]] = {}  # seconds in which TCP sent again
        self._closed: dict[str, dict[int, float]] = {}  # seconds, and how many ms of each the window was closed
        self._omitted: dict[str, list[int | None]] = {}  # direction -> place where an extended timestamp was left out
        self._found: list[Finding] = []
        self._ended: tuple[str | None, str | None] | None = None  # why, and by whom
        self._server_closed = 0
        self._first: dict[tuple[str, int], Any] = {}  # of all streams that had one id, once it ended

    def measure(self, direction: str, stream_id: int, start_known: bool) -> StreamMeasure:
        """For a stream that begins."""
        return StreamMeasure(direction, stream_id, start_known)

    # -- in the order of time -------------------------------------------------------------------------------------

    def passed(self, direction: str, messages: Sequence[Place], firsts: Sequence[Place] = ()) -> None:
        self.flow.passed(direction, messages)
        if direction == "c2s" or self._session.shown:
            self.habits.began(direction, firsts)

    def notable(self, direction: str, fact: Notable) -> None:
        """After the session has seen it."""
        kind = type(fact)
        if kind is CommandFact:
            self._command(direction, fact)  # type: ignore[arg-type]
        elif kind is ControlFact:
            self._control(direction, fact)  # type: ignore[arg-type]
        elif kind is HandshakeFact:
            if fact.part == 0:  # type: ignore[union-attr]
                self._from_start[direction] = True
            if direction == "c2s" or self._session.shown:
                self.habits.handshake(direction, fact)  # type: ignore[arg-type]
        elif kind is GapFact:
            self.flow.gap(direction)
            self.exchange.gap(direction, fact.ts)
            for measure in self._measures(direction):
                measure.gap()
        elif kind is LagFact:
            self._lag(direction, fact)  # type: ignore[arg-type]
        elif kind is FaultFact:
            self._fault(direction, fact)  # type: ignore[arg-type]

    def advance(self, at: int | None) -> list[Finding]:
        """Everything known at packet `at` was told; what was found by it."""
        self.flow.advance(at)
        found, self._found = self._found, []
        if self._both_from_start:  # else what was sent before is not counted
            found += self.flow.found
        self.flow.found = []
        for span in self._session.spans:
            if span.measure is not None and span.measure.found:
                found += _of(span, span.measure.found)
                span.measure.found = []
        return found

    def settle(self) -> None:
        """No message will come any more: what only messages need is let go of."""
        self.habits.settle()
        self.exchange.settle()

    def seconds(self, direction: str, rows: Sequence[Row]) -> None:
        """Rows of `intervals` that will not change any more."""
        for row in rows:
            second = row[_SECOND] // 1_000_000
            # Where the answers had to be sent again, the way was out for both: a stall may be all that is seen of it.
            for way in ("c2s", "s2c") if row[_AGAIN] else ():
                troubled = self._troubled.setdefault(way, set())
                if len(troubled) < _MOST_TROUBLED:
                    troubled.add(second)
            if row[_ZERO]:
                closed = self._closed.setdefault(direction, {})
                if len(closed) < _MOST_TROUBLED:
                    closed[second] = closed.get(second, 0.0) + row[_ZERO]  # told in parts where it was long

    def _measures(self, direction: str, stream_id: int | None = None) -> list[StreamMeasure]:
        return [
            span.measure
            for span in self._session.open_spans()
            if span.direction == direction
            and span.measure is not None
            and (stream_id is None or stream_id in (span.stream_id, span.media_stream_id))
        ]

    @property
    def _both_from_start(self) -> bool:
        return self._from_start["c2s"] and self._from_start["s2c"]

    def _command(self, direction: str, fact: CommandFact) -> None:
        self._found += self.exchange.command(direction, fact, self._from_start)
        if direction == "c2s" or self._session.shown:
            self.habits.command(direction, fact)
        name = fact.name
        if name not in _WATCHED:
            return
        if name == "connect" and direction == "c2s" and self.connect_ts is None:
            self.connect_ts = fact.ts
            self._connected = [fact.msg_no, fact.frame, fact.ts]
        elif name in ("onMetaData", "@setDataFrame"):
            self._metadata(direction, fact)
        elif direction == "c2s" and name in _STREAM_COMMANDS:
            for measure in self._measures("c2s", fact.stream_id) + self._measures("s2c", fact.stream_id):
                if not measure.asked:
                    measure.asked = [fact.msg_no, fact.frame]
                elif measure.direction == "s2c":
                    measure.suspend()
        elif direction == "c2s" and name in _CHOICES:
            for measure in self._measures("s2c", fact.stream_id):
                measure.interrupt()
        elif direction == "s2c" and name == "onStatus":
            for measure in self._measures("s2c", fact.stream_id):
                measure.go_on()

    def _fault(self, direction: str, fact: FaultFact) -> None:
        if fact.code is ViolationCode.CHUNK_EXT_TS_MISSING:
            self._omitted.setdefault(direction, [fact.msg_no, fact.frame, fact.ts])
        elif fact.code in _SPOILS_TIME and fact.msg_no is not None:
            for measure in self._measures(direction):
                measure.excuse(fact.msg_no)

    def _lag(self, direction: str, fact: LagFact) -> None:
        for measure in self._measures(direction, fact.stream_id):
            measure.lag(fact.csid, fact.over)

    def _control(self, direction: str, fact: ControlFact) -> None:
        self._found += self.flow.control(direction, fact)
        if direction == "c2s" or self._session.shown:
            self.habits.control(direction, fact)
        if fact.kind in ("stream_eof", "stream_begin", "stream_dry"):
            for measure in self._measures(direction, fact.event_stream_id):
                measure.go_on()
        elif fact.kind == "stream_is_recorded":
            for measure in self._measures(direction, fact.event_stream_id):
                measure.recorded = True

    def _metadata(self, direction: str, fact: CommandFact) -> None:
        declared = declaration(fact.args)
        if declared is None:
            return
        for measure in self._measures(direction, fact.stream_id) or self._measures(direction):
            if not measure.declared:
                measure.declared = {"msg_no": fact.msg_no, "frame": fact.frame, "ts": fact.ts}
            measure.declared |= declared

    # -- the end --------------------------------------------------------------------------------------------------

    def close_cause(self, ending: Any, cause: str) -> str:
        """Why it ended, where flow control tells more than the packets do."""
        if cause in ("idle_timeout", "unknown", "peer_vanished") and self._both_from_start and ending.closed_by:
            for direction in ("c2s", "s2c"):
                media = [span.ts_end for span in self._session.spans if span.direction == direction]
                if media and ending.ts_end - max(media) >= _STOPPED_US and self.flow.starving(direction):
                    return "ack_stall"
        return cause

    def end(self, ending: Any, cause: str, findings: FindingFold) -> None:
        """Add what the whole connection shows, and take back what another finding explains."""
        session = self._session
        self._ended = cause, ending.closed_by
        self._server_closed = ending.streams["s2c"].fin_ts_ns // 1000
        findings.extend(self._found + self.exchange.end())
        self._found = []
        heard = ending.recorded("c2s") and ending.recorded("s2c") and not ending.midstream
        if heard and self._both_from_start:
            silence = {d: ending.silence_us(d) for d in ("c2s", "s2c")}
            total = {d: s.delivered_bytes + s.missed_bytes for d, s in ending.streams.items()}
            until = {d: ending.streams[OTHER_WAY[d]].fin_ts_ns // 1000 or ending.ts_end for d in OTHER_WAY}
            findings.extend(self.flow.end(until, silence, total, bool(session.torn_down)))
        for direction, place in self._omitted.items():
            findings.extend(extension_break(direction, place))
        software = self.client().software if "c2s" not in self._omitted and self._publishes() else None
        if software is not None:
            findings.extend(extension_break("c2s", self._connected or [None] * 3, software))
        for span in session.spans:
            self._first.setdefault((span.direction, span.stream_id), span)
            if span.measure is not None:
                findings.extend(_of(span, self._stream(span, ending, heard)))
        if ending.close_kind == "open":  # not the stream but the recording ended inside the message
            findings.drop(ViolationCode.MSG_TRUNCATED)
        self._take_back_what_nobody_awaited(findings, ending)
        self._take_back(findings, ending)

    def _take_back_what_nobody_awaited(self, findings: FindingFold, ending: Any) -> None:
        """A message that was begun after its receiver had closed, by the times or because it was never acknowledged
        (there may be two clocks): what cuts it is that close."""
        if ViolationCode.MSG_TRUNCATED not in findings.codes():
            return
        for cut in [f for f in findings.first_ones() if f.code is ViolationCode.MSG_TRUNCATED]:
            closed = ending.streams["s2c" if cut.direction == "c2s" else "c2s"].fin_ts_ns
            late = cut.ts is not None and closed and cut.ts * 1000 >= closed
            if late or (closed and ending.streams[cut.direction].unacked_bytes):
                findings.drop(cut.code, cut.direction)

    def _take_back(self, findings: FindingFold, ending: Any) -> None:
        """One cause, one finding; and a close or a refusal that answers an error raises nothing of its own."""
        if findings.codes().isdisjoint(_EXPLAINS) and Severity.ERROR not in findings.severities():
            return
        known = findings.first_ones()
        for cause in known:
            for code in _EXPLAINS.get(cause.code, ()):
                findings.drop(code, cause.direction)
        errors = [f for f in known if f.severity is Severity.ERROR]
        closed_by = ending.closed_by
        if closed_by is not None and any(f.at_fault not in (None, closed_by) for f in errors):
            for code in _AFTERMATH:
                findings.drop(code)
            if findings.errors_since(ending.ts_end - _CLOSE_US) - {None, closed_by}:
                findings.drop(ViolationCode.TCP_RESET)
        for refusal in known:
            if refusal.code is ViolationCode.CMD_REFUSED and refusal.ts is not None:
                since = refusal.ts - _ANSWER_US
                if any(f.at_fault == CLIENT and f.ts is not None and since <= f.ts <= refusal.ts for f in errors):
                    findings.drop(ViolationCode.CMD_REFUSED)

    def _publishes(self) -> bool:
        return any(span.role == "publish" and span.audio + span.video for span in self._session.spans)

    def _stream(self, span: Any, ending: Any, heard: bool) -> list[Finding]:
        measure: StreamMeasure = span.measure
        found, measure.found = measure.found, []
        found += measure.gop_finding() + streams.skew_finding(measure)
        found += contradictions(measure) + absent_tracks(measure)
        found += not_negotiated(measure, self.exchange.offered)
        way = measure.direction
        measure.end()
        found += measure.stalls.track_findings(way, measure.stream_id, measure.author)
        troubled, closed = self._troubled.get(way, ()), self._closed.get(way, {})
        found += measure.stalls.findings(way, measure.stream_id, troubled, self.flow.waits(way), closed)
        if heard and span.answered and not span.refused and not measure.frames("video") + measure.frames("audio"):
            found += _no_media(span, measure, ending)
        return found

    def foresee(self, name: str, redacted: str) -> None:
        self.habits.foresee(name, redacted)

    def client(self) -> Verdict:
        return recognise(self.habits.known("c2s"), CLIENTS)

    def server(self) -> Verdict:
        return recognise(self.habits.known("s2c"), SERVERS)

    def stream_columns(self, span: Any, findings: FindingFold) -> dict[str, Any]:
        if span.measure is None:
            return {}
        return streams.columns(span.measure, self.connect_ts) | self._verdict(span, findings)

    def _verdict(self, span: Any, findings: FindingFold) -> dict[str, Any]:
        if span.measure is None:
            return {}
        too_late = 0 < self._server_closed < span.left_at  # a goodbye to a server that had closed
        broken_off = self._ended if span.role == "publish" and (too_late or not span.ended) else None
        own: set[int | None] = {span.ts_start}  # what had this id before or after is another stream
        if span is self._first[span.direction, span.stream_id]:
            own.add(None)  # told before the recording showed a stream of this id
        known = findings.first_ones(frozenset(own))
        word, rule, text = streams.verdict(span.measure, span.refused, known, broken_off)
        return {"verdict": word, "verdict_rule_id": rule, "verdict_text": text}

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "flow": self.flow.state(),
            "exchange": self.exchange.state(),
            "habits": self.habits.state(),
            "connect_ts": self.connect_ts,
            "connected": self._connected,
            "from_start": self._from_start,
            "troubled": {d: sorted(seconds) for d, seconds in self._troubled.items()},
            "closed": {d: sorted(seconds.items()) for d, seconds in self._closed.items()},
            "omitted": self._omitted,
            "found": [finding.plain() for finding in self._found],
        }

    def resume(self, state: dict[str, Any]) -> None:
        if state["version"] != STATE_VERSION:
            raise ValueError(f"state of the rules, version {state['version']}")
        self.flow.resume(state["flow"])
        self.exchange.resume(state["exchange"])
        self.habits.resume(state["habits"])
        self.connect_ts, self._connected = state["connect_ts"], list(state["connected"])
        self._from_start = dict(state["from_start"])
        self._troubled = {d: set(seconds) for d, seconds in state["troubled"].items()}
        self._closed = {d: dict(seconds) for d, seconds in state.get("closed", {}).items()}
        self._omitted = dict(state["omitted"])
        self._found = [Finding.from_plain(finding) for finding in state["found"]]

    def resume_measure(self, state: dict[str, Any]) -> StreamMeasure:
        return StreamMeasure.resume(state)


def _of(span: Any, found: list[Finding]) -> list[Finding]:
    return [finding._replace(stream_ts=span.ts_start) for finding in found]


def _no_media(span: Any, measure: StreamMeasure, ending: Any) -> list[Finding]:
    """Of a stream that was accepted and stayed empty: long enough, or until the side that was to receive closed."""
    sender = SENDER[span.direction]
    waited = (span.ts_end if span.ended else ending.ts_end) - span.ts_start
    cut = not span.ended and ending.closed_by not in (None, sender) and not span.audio + span.video
    if not measure.start_known or measure.gaps or not (cut or waited >= _NO_MEDIA_US):
        return []
    words = "published" if span.role == "publish" else "played"
    detail = f"{words} for {lasting(waited)}, and no media came"
    if cut:
        detail += f" before the {ending.closed_by} closed"
    msg_no, frame = measure.asked or (None, None)
    at_fault = None if cut or span.role == "play" else sender  # a server may have nothing to play
    actual = "only configurations" if span.audio + span.video else "none"
    return [
        Finding(
            ViolationCode.SESSION_NO_MEDIA, detail, None, at_fault, span.direction, span.stream_id, msg_no, frame,
            span.ts_start, expected="audio or video", actual=actual,
        )
    ]  # fmt: skip
