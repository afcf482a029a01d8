"""What both directions together mean: who asked what, what was answered, which streams came and went.

A fold over the facts of a conversation in the order of time. It matches answers to commands, ties message stream ids
to names and roles, keeps the handshake, and reports what only the exchange can show. Its state is a value. It does
not decide who is client (conversation.py did) and knows nothing of packets beyond the numbers in the facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rtmp_spark.capture.arguments import connects, fields, server_version, status, text
from rtmp_spark.capture.causality import answered, questions_of
from rtmp_spark.capture.facts import (
    FRAME_MASK,
    Arguments,
    CommandFact,
    ConflictFact,
    ControlFact,
    FaultFact,
    GapFact,
    HandshakeFact,
    Notable,
    Row,
)
from rtmp_spark.capture.findings import CAPTURE, CLIENT, NETWORK, SENDER, SERVER, Finding
from rtmp_spark.capture.handshakes import Handshakes
from rtmp_spark.capture.judging import Judge, JudgeFactory
from rtmp_spark.capture.redact import Redactor
from rtmp_spark.capture.spans import StreamSpan
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.message import OF_STREAMS

OTHER_WAY = {"c2s": "s2c", "s2c": "c2s"}
_NONE_YET: Mapping[str, int] = {"c2s": 0, "s2c": 0}  # of all connections to which nothing happens
RESPONSE_LIMIT_US = 5_000_000
_MAX_PENDING = 1024
LADDER = 24  # commands that are kept for show where no rows are wanted
_MAX_STREAMS = 4096
_MOST_GUESSED = 64  # open streams among which the one that waits is looked for
_MAX_EVER = 4096
_TEARDOWN = frozenset({"deleteStream", "closeStream", "FCUnpublish"})
_STREAM_COMMANDS = frozenset({"publish", "play", "play2", "pause", "seek"})
_OTHER_TROUBLE = (
    "NetStream.Record.", "NetStream.Seek.", "NetStream.Pause.", "NetStream.Unpause.", "SharedObject.",
    "NetConnection.Connect.AppShutdown", "NetConnection.Connect.Closed", "NetConnection.Connect.IdleTimeOut",
)  # fmt: skip
_BAD_NAME = "NetStream.Publish.BadName"
_REFUSABLE = frozenset({"connect", "createStream", "publish", "play", "play2"})
_AFTER_RESET = frozenset({"NetStream.Play.Start", "NetStream.Play.Reset", "NetStream.Data.Start"})
_STARTS = frozenset({"NetStream.Play.Start", "NetStream.Publish.Start"})
_BY_RECEIVER = {
    None: "whether they arrived cannot be told, the receiver was not recorded",
    True: "the receiver acknowledged them, so the recorder lost them",
    False: "nobody acknowledged them",
}
_BY_CHECKSUM = {
    None: "",
    True: "; the TCP checksum of the later packet is right: its sender sent it so",
    False: "; the TCP checksum of the later packet is wrong: it was damaged on the way or by the recorder",
}
_PLACED_BY_OTHERS = ("HS_",)  # judged from both sides at the end, not from one direction's faults


class Exchange(NamedTuple):
    """A command and what it answers."""

    direction: str
    fact: CommandFact
    response_to: int | None
    response_ms: float | None
    level: str | None
    code: str | None
    description: str | None


class Session:
    """The fold. `commands` collects rows of the table `commands` (without `command_rows` only the first of them are
    kept, in `ladder`); `found` what is worth telling."""

    __slots__ = (
        "_asked", "_command_rows", "_data_no", "_ever", "_latest", "_open", "_redactor", "_stream_asked", "app",
        "commands", "commands_seen", "faults", "flash_ver", "found", "gap_ts", "gaps", "handshake", "judge",
        "known_secrets", "ladder", "refused", "sealed", "server_ver", "shown", "spans", "tc_url", "torn_down",
    )  # fmt: skip

    def __init__(self, redactor: Redactor, command_rows: bool = True) -> None:
        self._redactor = redactor
        self.sealed = redactor.sealed
        self._command_rows = command_rows
        self.shown = True  # whether anybody will look at the ladder
        self.ladder: list[Exchange] = []
        self.commands_seen = 0
        self.known_secrets: set[str] = set()
        self.handshake = Handshakes()
        self.app: str | None = None
        self.tc_url: str | None = None
        self.flash_ver: str | None = None
        self.server_ver: str | None = None
        self.spans: list[StreamSpan] = []
        self._open: dict[int, StreamSpan] = {}
        self._latest: dict[tuple[str, int], StreamSpan] = {}  # that an id was used for, ended or not
        self._asked: dict[str, dict[float, list[Any]]] = {"c2s": {}, "s2c": {}}
        self._stream_asked: dict[int, list[list[Any]]] = {}
        self._ever: set[tuple[str, bool, float]] = set()  # asked: by whom, about a stream or not, its number
        self.refused: int | None = None  # time of the last refusal
        self.torn_down: dict[str, int] = {}  # direction -> time of the last goodbye
        self.gaps: Mapping[str, int] = _NONE_YET
        self.gap_ts: Mapping[str, int] = _NONE_YET  # when the last was known
        self.faults: Mapping[str, int] = _NONE_YET  # errors of framing
        self._data_no = -1  # the server's last data message; its faults follow it
        self.commands: dict[str, list[Row]] = {}
        self.found: list[Finding] = []
        self.judge: Judge | None = None

    # -- facts in the order of time ---------------------------------------------------------------------------

    def notable(self, direction: str, fact: Notable) -> None:
        kind = type(fact)
        if kind is CommandFact:
            self._command(direction, fact)  # type: ignore[arg-type]
        elif kind is ControlFact:
            self._control(direction, fact)  # type: ignore[arg-type]
        elif kind is FaultFact:
            self._fault(direction, fact)  # type: ignore[arg-type]
        elif kind is GapFact:
            self._gap(direction, fact)  # type: ignore[arg-type]
        elif kind is HandshakeFact:
            self.handshake.receive(direction, fact)  # type: ignore[arg-type]
        elif kind is ConflictFact:
            self._conflict(direction, fact)  # type: ignore[arg-type]

    def media(self, direction: str, rows: Sequence[Row], known_at: Sequence[int]) -> None:
        ids = {row[4] for row in rows}
        if len(ids) == 1:
            self._span_for(direction, ids.pop(), rows[0][2]).add(rows, known_at)
            return
        by_stream: dict[int, tuple[list[Row], list[int]]] = {}
        for row, at in zip(rows, known_at):
            own = by_stream.setdefault(row[4], ([], []))
            own[0].append(row)
            own[1].append(at)
        for stream_id, (own_rows, own_at) in by_stream.items():
            self._span_for(direction, stream_id, own_rows[0][2]).add(own_rows, own_at)

    def open_spans(self) -> list[StreamSpan]:
        return list(self._open.values())

    def _span_for(self, direction: str, stream_id: int, ts: int) -> StreamSpan:
        """The stream that media belongs to; where its command was not seen, the direction tells the role."""
        span = self._known_span(direction, stream_id)
        if span is None:
            return self._begin(stream_id, "publish" if direction == "c2s" else "play", None, ts, start_known=False)
        if stream_id != span.stream_id:
            span.media_stream_id = stream_id
            self._latest[direction, stream_id] = span
        return span

    def _known_span(self, direction: str, stream_id: int) -> StreamSpan | None:
        span = self._open.get(stream_id)
        if span is not None and span.direction == direction:
            return span
        known = self._latest.get((direction, stream_id))  # media behind a goodbye still belongs to its stream
        if known is not None and (stream_id == known.stream_id or not known.ended):
            return known
        if len(self._open) > _MOST_GUESSED:
            return known
        # On an id that nobody asked for comes what was asked for; where it came for an earlier one, once it is granted.
        waiting = [
            s for s in self._open.values()
            if s.direction == direction and not s.audio + s.video and (known is None or s.answered)
        ]  # fmt: skip
        return waiting[0] if len(waiting) == 1 else known

    def _begin(self, stream_id: int, role: str, name: str | None, ts: int, start_known: bool = True) -> StreamSpan:
        span = StreamSpan(stream_id, role, name, ts)
        if self.judge is not None:
            span.measure = self.judge.measure(span.direction, stream_id, start_known)
        if len(self.spans) < _MAX_STREAMS:
            self.spans.append(span)
            self._latest[span.direction, stream_id] = span
        self._open[stream_id] = span
        return span

    def _end_span(self, stream_id: int, ts: int) -> None:
        span = self._open.pop(stream_id, None)
        if span is not None:
            span.ended = True
            span.left_at = span.left_at or ts
            span.ts_end = max(span.ts_end, ts)

    # -- control, faults, gaps ------------------------------------------------------------------------------------

    def _control(self, direction: str, fact: ControlFact) -> None:
        if fact.kind == "stream_eof":
            self.torn_down[direction] = fact.ts

    def _fault(self, direction: str, fact: FaultFact) -> None:
        code = fact.code
        if code.startswith(_PLACED_BY_OTHERS):
            return
        at_fault: str | None = SENDER[direction]
        if code is ViolationCode.CHUNK_RESYNC:
            if fact.offset == 0 and not self.handshake.parts[direction]:
                return  # the recording starts inside the stream: TCP_MIDSTREAM says so
            at_fault = at_fault if self.handshake.parts[direction] and not self.gaps[direction] else None
        elif code is ViolationCode.MSG_TRUNCATED or code.startswith(("TLS_", "RTMPT_")):
            at_fault = None
        elif direction == "s2c" and (
            code.startswith("MEDIA_") or (code.startswith("AMF_") and fact.msg_no == self._data_no)
        ):
            at_fault = None  # a server passes on what its publishers made
        if fact.severity is Severity.ERROR and code.startswith("CHUNK_"):
            self.faults = {**self.faults, direction: self.faults[direction] + 1}
        about = began = None
        if code.startswith("MEDIA_"):  # other faults spoil what comes after them
            about = fact.stream_id
            span = None if about is None else self._known_span(direction, about)
            if span is not None:
                about, began = span.stream_id, span.ts_start
        self.found.append(
            Finding(
                code, fact.detail, fact.severity, at_fault, direction, about, fact.msg_no, fact.frame, fact.ts,
                stream_ts=began,
            )
        )  # fmt: skip

    def _gap(self, direction: str, fact: GapFact) -> None:
        self.gaps = {**self.gaps, direction: self.gaps[direction] + 1}
        self.gap_ts = {**self.gap_ts, direction: fact.ts}
        if fact.cut:
            return  # CAPTURE_SNAPLEN tells it once for the file
        lost_by = CAPTURE if fact.acked else NETWORK
        words = _BY_RECEIVER[fact.acked]
        self.found.append(
            Finding(
                ViolationCode.TCP_GAP, f"{fact.length} bytes at offset {fact.offset} are in no packet: {words}", None,
                lost_by, direction, None, None, fact.frame, fact.ts,
            )
        )  # fmt: skip

    def _conflict(self, direction: str, fact: ConflictFact) -> None:
        self.found.append(
            Finding(
                ViolationCode.TCP_CONFLICT,
                f"{fact.length} bytes at offset {fact.offset} came twice with different content "
                f"(crc32 {fact.crc_first:08x}, then {fact.crc_second:08x}){_BY_CHECKSUM[fact.intact]}",
                None, None, direction, None, None, fact.frame, fact.ts,
            )
        )  # fmt: skip

    # -- commands -----------------------------------------------------------------------------------------------

    def _command(self, direction: str, fact: CommandFact) -> None:
        name = fact.name
        if direction == "s2c" and fact.type_id in OF_STREAMS:
            self._data_no = fact.msg_no
        response_to: int | None = None
        response_ms: float | None = None
        level = code = description = None
        asked: list[Any] | None = None
        if name in ("_result", "_error"):
            asked = self._asked[OTHER_WAY[direction]].pop(fact.transaction_id or 0.0, None)
            level, code, description = status(fact.args)
            if asked is not None:
                self._answered(direction, fact, asked)
        elif name == "onStatus":
            level, code, description = status(fact.args)
            asked = self._status_for(fact, code, level)
        elif name in ("onFCPublish", "onFCUnpublish", "onFCSubscribe"):
            level, code, description = status(fact.args)
        else:
            self._request(direction, fact)
            self._redactor.learn(name, fact.args, self.known_secrets)
        if asked is not None:
            response_to = asked[0]
            response_ms = (fact.ts - asked[1]) / 1000 if fact.ts >= asked[1] else None  # else by two clocks
        if level == "error" or name == "_error":
            self._refusal(direction, fact, asked, code, description)
        if code in ("NetStream.Play.Stop", "NetStream.Play.UnpublishNotify", "NetStream.Unpublish.Success"):
            self.torn_down[direction] = fact.ts
        if not self.shown:
            return
        exchange = Exchange(direction, fact, response_to, response_ms, level, code, description)
        if self._command_rows:
            self.commands.setdefault(direction, []).append(self.command_row(exchange))
        else:
            self.commands_seen += 1
            if len(self.ladder) < LADDER:
                self.ladder.append(exchange)

    def command_row(self, exchange: Exchange) -> Row:
        """The row of the table `commands`, without secrets."""
        _, fact, response_to, response_ms, level, code, description = exchange
        args_json, description = self._without_secrets(fact, description)
        return (
            fact.msg_no, fact.ts, fact.frame & FRAME_MASK, fact.stream_id, fact.type_id, fact.name,
            fact.transaction_id, fact.amf_version, args_json, response_to, response_ms, level, code, description,
        )  # fmt: skip

    def _without_secrets(self, fact: CommandFact, description: str | None) -> tuple[str, str | None]:
        """Arguments and description; commands of the same bytes share them where the same secrets are known."""
        redactor, known, args = self._redactor, self.known_secrets, fact.args
        notes = args.notes if type(args) is Arguments else {}
        noted = notes.get(Session)
        if noted is not None and noted[0] is redactor and noted[1] == known:
            return noted[2], noted[3]
        redacted = redactor.arguments(fact.name, args, known)
        if description is not None:
            description = redactor.text(description, known)
        args_json = json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
        notes[Session] = redactor, frozenset(known), args_json, description
        return args_json, description

    def _request(self, direction: str, fact: CommandFact) -> None:
        name, args = fact.name, fact.args
        for about in questions_of(fact):
            if len(self._ever) < _MAX_EVER:
                self._ever.add((direction, *about))
        if fact.transaction_id:
            asked = self._asked[direction]
            if len(asked) < _MAX_PENDING:
                asked[fact.transaction_id] = [fact.msg_no, fact.ts, name, fact.frame]
        if direction != "c2s":
            if name in _TEARDOWN:  # of a server that is a publisher itself: ffmpeg -listen
                self.torn_down[direction] = fact.ts
            return
        if name == "connect":
            self.app, self.tc_url, self.flash_ver = connects(args)
        elif name in ("publish", "play", "play2"):
            stream_name = args[1] if len(args) > 1 else None
            if isinstance(stream_name, dict):  # play2 takes an object
                stream_name = fields(stream_name).get("streamName")
            self._end_span(fact.stream_id, fact.ts)
            role = "publish" if name == "publish" else "play"
            if stream_name is False:  # publish(false) stops publishing
                self.torn_down[direction] = fact.ts
                return
            self._begin(fact.stream_id, role, text(stream_name), fact.ts)
        elif name in _TEARDOWN:
            self.torn_down[direction] = fact.ts
            closed: Any = fact.stream_id
            if name == "deleteStream" and len(args) > 1:
                closed = args[1]
            if name == "FCUnpublish":
                for span in self._open.values():
                    span.left_at = span.left_at or fact.ts
            elif isinstance(closed, (int, float)):
                self._end_span(int(closed), fact.ts)
        if name in _STREAM_COMMANDS:
            waiting = self._stream_asked.setdefault(fact.stream_id, [])
            if len(waiting) < _MAX_PENDING:
                waiting.append([fact.msg_no, fact.ts, name, fact.frame, False])

    def unasked(self, direction: str, fact: CommandFact) -> bool:
        """Whether it answers what nobody asked so far."""
        if len(self._ever) >= _MAX_EVER or (OTHER_WAY[direction], *answered(fact)) in self._ever:
            return False
        level, code, _ = status(fact.args)
        return fact.name != "onStatus" or level == "error" or code in _STARTS

    def _status_for(self, fact: CommandFact, code: Any, level: Any) -> list[Any] | None:
        """The command that an onStatus answers: the oldest of its stream without an answer, or a play after Reset."""
        stream_id = fact.stream_id
        waiting = self._stream_asked.get(stream_id)
        if not waiting:
            if stream_id:
                return None
            # Some servers answer on stream 0; then it can only be the one that waits.
            others = [other for other, w in self._stream_asked.items() if w and not w[0][4]]
            if len(others) != 1:
                return None
            stream_id = others[0]
            waiting = self._stream_asked[stream_id]
        asked = waiting[0]
        if not asked[4]:
            asked[4] = True
        elif len(waiting) > 1:
            waiting.pop(0)
            asked = waiting[0]
            asked[4] = True
        elif asked[2] not in ("play", "play2") or (code not in _AFTER_RESET and level != "error"):
            return None
        if code == "NetStream.Play.Start":
            waiting.pop(0)
        elif asked[2] not in ("play", "play2"):
            waiting.pop(0)
        self._late(fact, asked)
        span = self._open.get(stream_id)
        if span is not None and asked[2] in ("publish", "play", "play2"):
            span.answered = True
            span.refused = span.refused or level == "error"
        return asked

    def _answered(self, direction: str, fact: CommandFact, asked: list[Any]) -> None:
        if asked[2] == "connect" and fact.name == "_result":
            self.server_ver = self.server_ver or server_version(fact.args)
        if asked[2] in ("connect", "createStream"):
            self._late(fact, asked)

    def _late(self, fact: CommandFact, asked: list[Any]) -> None:
        lost = self.gap_ts["s2c"] >= asked[1]  # perhaps an earlier answer
        if fact.ts - asked[1] > RESPONSE_LIMIT_US and not lost:
            self._no_response(asked, f"{asked[2]} was answered after {(fact.ts - asked[1]) / 1e6:.1f} s")

    def _no_response(self, asked: list[Any], detail: str) -> None:
        self.found.append(
            Finding(ViolationCode.CMD_NO_RESPONSE, detail, None, SERVER, "c2s", None, asked[0], asked[3], asked[1])
        )

    def _refusal(self, direction: str, fact: CommandFact, asked: list[Any] | None, code: Any, description: Any) -> None:
        what = self._refused(fact, code) if asked is None else asked[2]
        if what not in _REFUSABLE and code != _BAD_NAME:
            return  # releaseStream, FCPublish and the like may fail without harm
        self.refused = fact.ts
        told = " ".join(str(x) for x in (code, description) if x)
        told = self._redactor.text(told, self.known_secrets)
        rule, at_fault = ViolationCode.CMD_REFUSED, None
        if "need auth" in told or "needauth" in told or ("authmod=" in told and "reason=" not in told):
            rule = ViolationCode.CMD_AUTH_ROUND  # any other reason is what came of it
        elif code == _BAD_NAME:
            rule, at_fault = ViolationCode.SESSION_BAD_NAME, CLIENT
        self.found.append(
            Finding(
                rule, f"{what} was refused: {told or 'no reason given'}", None, at_fault, direction, None, fact.msg_no,
                fact.frame, fact.ts,
            )
        )  # fmt: skip

    def _refused(self, fact: CommandFact, code: Any) -> str | None:
        """What is refused where no command waits for an answer: it was answered before, or was not recorded."""
        code = code if isinstance(code, str) else ""
        if code.startswith(_OTHER_TROUBLE):
            return None
        if code.startswith("NetConnection.Connect."):
            return "connect"
        if fact.name == "_error":
            return "publish" if code == _BAD_NAME else None
        span = self._open.get(fact.stream_id)
        if span is None:
            return "play" if code.startswith("NetStream.Play.") else "publish"
        span.refused = span.refused or not span.audio + span.video
        return span.role

    def unanswered(self) -> list[list[Any]]:
        """Commands that need an answer and have none: [msg_no, ts, name, frame]."""
        plain = [a for a in self._asked["c2s"].values() if a[2] in ("connect", "createStream")]
        streams = [
            a for w in self._stream_asked.values() for a in w if not a[4] and a[2] in ("publish", "play", "play2")
        ]
        return sorted(plain + streams, key=lambda a: (a[1], a[0]))

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Take `commands` and `found` first; names are kept only as their hashes."""
        redact = self._redactor
        numbers = {id(span): number for number, span in enumerate(self.spans)}
        return {
            "secrets": sorted(self.known_secrets),
            **self.handshake.state(),
            "words": [
                self.app and redact.parameters(self.app), self.tc_url and redact.parameters(self.tc_url),
                self.flash_ver, self.server_ver,
            ],
            "spans": [span.state(span.name and redact.stream_name(span.name)) for span in self.spans],
            "open": [[i, numbers[id(span)]] for i, span in self._open.items() if id(span) in numbers],
            "latest": [[*of, numbers[id(span)]] for of, span in self._latest.items() if id(span) in numbers],
            "asked": {d: [[tid, *asked] for tid, asked in pending.items()] for d, pending in self._asked.items()},
            "stream_asked": [[stream_id, waiting] for stream_id, waiting in self._stream_asked.items()],
            "ever": sorted(self._ever),
            "refused": self.refused,
            "torn_down": self.torn_down,
            "gaps": self.gaps,
            "gap_ts": self.gap_ts,
            "faults": self.faults,
        }  # fmt: skip

    @classmethod
    def resume(
        cls, state: dict[str, Any], redactor: Redactor, command_rows: bool = True, judge: JudgeFactory | None = None
    ) -> Session:
        """`judge` is made anew; its own state is given to it by whoever keeps it."""
        session = cls(redactor, command_rows)
        session.judge = judge(session) if judge is not None else None
        resume_measure = session.judge.resume_measure if session.judge is not None else None
        session.known_secrets = set(state["secrets"])
        session.handshake = Handshakes.resume(state)
        session.app, session.tc_url, session.flash_ver, session.server_ver = state["words"]
        session.spans = [StreamSpan.resume(span, resume_measure) for span in state["spans"]]
        session._open = {stream_id: session.spans[index] for stream_id, index in state["open"]}
        session._latest = {(direction, number): session.spans[index] for direction, number, index in state["latest"]}
        session._asked = {d: {entry[0]: entry[1:] for entry in entries} for d, entries in state["asked"].items()}
        session._stream_asked = dict(state["stream_asked"])
        session._ever = {(d, bool(about), number) for d, about, number in state["ever"]}
        session.refused = state["refused"]
        session.torn_down = dict(state["torn_down"])
        session.gaps = dict(state["gaps"])
        session.gap_ts = dict(state["gap_ts"])
        session.faults = dict(state["faults"])
        return session
