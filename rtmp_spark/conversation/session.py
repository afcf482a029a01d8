"""What both directions together mean: which answer belongs to which request, and which streams begin and end.

A session receives the facts of a conversation in the order of time. It matches answers to requests, ties message stream
ids to names and roles, and keeps the handshake. It reports facts about the exchange; what is wrong with them is decided
by the rules in forensics/. Its state is a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

from rtmp_spark.codec.errors import Severity
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import MAX_GUESSED_STREAMS, MAX_STREAMS
from rtmp_spark.codec.message import OF_STREAMS
from rtmp_spark.conversation.command_arguments import (
    NO_STATUS,
    Status,
    connect_arguments,
    fields,
    server_version,
    status,
    text,
)
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.facts import (
    OTHER_DIRECTION,
    CommandFact,
    ControlFact,
    FaultFact,
    GapFact,
    HandshakeFact,
    Notable,
    Row,
)
from rtmp_spark.conversation.handshakes import Handshakes, HandshakesState
from rtmp_spark.conversation.media_row import STREAM_ID, TS
from rtmp_spark.conversation.pending_requests import ANSWERED_BY_STATUS, PendingRequests, PendingState, Request
from rtmp_spark.conversation.stream_span import StreamSpan
from rtmp_spark.known_secrets import KnownSecrets

_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
BAD_NAME: Final = "NetStream.Publish.BadName"
_NONE_YET: Final[Mapping[str, int]] = {"c2s": 0, "s2c": 0}  # shared by all connections without gaps or faults
_ANSWERS: Final = frozenset({"_result", "_error", "onStatus", "onFCPublish", "onFCUnpublish", "onFCSubscribe"})
_TEARDOWN: Final = frozenset({"deleteStream", "closeStream", "FCUnpublish"})
_TEARDOWN_CODES: Final = frozenset(
    {"NetStream.Play.Stop", "NetStream.Play.UnpublishNotify", "NetStream.Unpublish.Success"}
)  # fmt: skip
_NOTED_REQUESTS: Final = ANSWERED_BY_STATUS | _TEARDOWN | {"connect"}
_REFUSABLE: Final = frozenset({"connect", "createStream", "publish", "play", "play2"})
# Error codes that refuse none of these.
_OTHER_TROUBLE: Final = (
    "NetStream.Record.", "NetStream.Seek.", "NetStream.Pause.", "NetStream.Unpause.", "SharedObject.",
    "NetConnection.Connect.AppShutdown", "NetConnection.Connect.Closed", "NetConnection.Connect.IdleTimeOut",
)  # fmt: skip


class SessionState(TypedDict):
    handshake: HandshakesState
    app: str | None
    tc_url: str | None
    flash_ver: str | None
    server_ver: str | None
    spans: list[list[Json]]
    open: list[SavedFields]  # stream id and index of its span
    latest: list[SavedFields]  # direction, stream id and index of its span
    pending: PendingState
    created: SavedFields  # stream ids, and whether some could not be read
    refused_ts: int | None
    teardown_ts: dict[str, int]
    gaps: Mapping[str, int]
    gap_ts: Mapping[str, int]
    framing_errors: Mapping[str, int]


class Exchange(NamedTuple):
    """A command, the request that it answers, and what it says about it.

    `response_ms` is None if the times contradict each other (two clocks). `refuses` names what the command refuses.
    """

    direction: str
    fact: CommandFact
    request: Request | None
    response_ms: float | None
    status: Status
    refuses: str | None


class SpanMedia(NamedTuple):
    """Media rows of one stream."""

    span: StreamSpan
    rows: Sequence[Row]
    known_at: Sequence[int]


class Session:
    """`spans` are the streams of the connection, in the order in which they began."""

    __slots__ = (
        "_guessed", "_latest", "_not_left", "_open", "_pending", "app", "created", "flash_ver", "framing_errors",
        "gap_ts", "gaps", "handshake", "ids_unread", "last_data_no", "refused_ts", "server_ver", "spans", "tc_url",
        "teardown_ts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handshake = Handshakes()
        self.app: str | None = None
        self.tc_url: str | None = None
        self.flash_ver: str | None = None
        self.server_ver: str | None = None
        self.spans: list[StreamSpan] = []
        self._open: dict[int, StreamSpan] = {}  # by stream id
        self._guessed: dict[int, StreamSpan] = {}  # the open ones whose media is on another stream id
        self._not_left: dict[int, StreamSpan] = {}  # the open ones that began since the last FCUnpublish
        self._latest: dict[tuple[str, int], StreamSpan] = {}  # the last span that used an id, ended or not
        self._pending = PendingRequests()
        self.created: set[int] = set()  # stream ids that createStream returned
        self.ids_unread = False  # an answer to createStream had no readable id
        self.refused_ts: int | None = None  # of the last refusal
        self.teardown_ts: dict[str, int] = {}  # direction -> time at which it last ended a stream
        self.gaps: Mapping[str, int] = _NONE_YET
        self.gap_ts: Mapping[str, int] = _NONE_YET  # when the last gap was known
        self.framing_errors: Mapping[str, int] = _NONE_YET
        self.last_data_no = -1  # the server's last data message; faults in it follow it

    # -- facts in the order of time ---------------------------------------------------------------------------

    def receive(self, direction: str, fact: Notable) -> None:
        """Take a fact that is not a command."""
        kind = type(fact)
        if kind is HandshakeFact:
            self.handshake.receive(direction, fact)  # type: ignore[arg-type]
        elif kind is ControlFact:
            if fact.kind == "stream_eof":  # type: ignore[union-attr]
                self.teardown_ts[direction] = fact.ts
        elif kind is FaultFact:
            if fact.severity is Severity.ERROR and fact.code.startswith("CHUNK_"):  # type: ignore[union-attr]
                self.framing_errors = {**self.framing_errors, direction: self.framing_errors[direction] + 1}
        elif kind is GapFact:
            self.gaps = {**self.gaps, direction: self.gaps[direction] + 1}
            self.gap_ts = {**self.gap_ts, direction: fact.ts}

    def receive_media(self, direction: str, rows: Sequence[Row], known_at: Sequence[int]) -> list[SpanMedia]:
        """Count media rows in the streams they belong to."""
        if len({row[STREAM_ID] for row in rows}) == 1:
            parts = [(rows[0][STREAM_ID], rows, known_at)]
        else:
            by_stream: dict[int, tuple[list[Row], list[int]]] = {}
            for row, at in zip(rows, known_at):
                own = by_stream.setdefault(row[STREAM_ID], ([], []))
                own[0].append(row)
                own[1].append(at)
            parts = [(stream_id, *own) for stream_id, own in by_stream.items()]
        media = []
        for stream_id, own_rows, own_at in parts:
            span = self._span_for(direction, stream_id, own_rows[0][TS])
            span.add(own_rows)
            media.append(_new(SpanMedia, (span, own_rows, own_at)))
        return media

    def note_teardown(self, ts: int) -> None:
        """The client ended its session by other means than RTMP messages (RTMPT: /close)."""
        self.teardown_ts.setdefault("c2s", ts)

    def settle(self) -> None:
        """Free memory: no more commands will come."""
        self._pending.settle()

    def open_spans(self) -> list[StreamSpan]:
        """The open streams; none if there are too many to guess which one is meant."""
        return list(self._open.values()) if len(self._open) <= MAX_GUESSED_STREAMS else []

    def open_spans_on(self, stream_id: int) -> list[StreamSpan]:
        """The open streams with this stream id, or with media on it."""
        own = self._open.get(stream_id)
        if not self._guessed:
            return [] if own is None else [own]
        others = [s for s in self._guessed.values() if s.media_stream_id == stream_id and s is not own]
        return others if own is None else [own, *others]

    def gaps_in(self, span: StreamSpan) -> int:
        """How many gaps its direction had while it was open."""
        return (span.gaps_after if span.ended else self.gaps[span.direction]) - span.gaps_before

    def unanswered(self) -> list[Request]:
        """Requests that need an answer and have none."""
        return self._pending.unanswered()

    # -- streams ------------------------------------------------------------------------------------------------

    def is_uncreated(self, stream_id: int) -> bool:
        """Whether it is certain that no createStream returned this id: all answers to createStream were captured and
        have been read."""
        if not self.created or stream_id in self.created or self.ids_unread or self.gaps["s2c"] or self.gaps["c2s"]:
            return False
        from_start = all(0 in self.handshake.parts[direction] for direction in OTHER_DIRECTION)
        return from_start and not self._pending.awaits_stream()

    def _span_for(self, direction: str, stream_id: int, ts: int) -> StreamSpan:
        """The stream that media belongs to; if its command was not captured, the direction decides the role."""
        span = self.find_span(direction, stream_id)
        if span is None:
            return self._begin(stream_id, "publish" if direction == "c2s" else "play", None, ts, start_known=False)
        if stream_id != span.stream_id:
            span.media_stream_id = stream_id
            self._guessed[span.stream_id] = span
            self._latest[direction, stream_id] = span
        return span

    def find_span(self, direction: str, stream_id: int) -> StreamSpan | None:
        """The stream that a message on this stream id belongs to."""
        span = self._open.get(stream_id)
        if span is not None and span.direction == direction:
            return span
        known = self._latest.get((direction, stream_id))  # media after the teardown of a stream still belongs to it
        if known is not None and (stream_id == known.stream_id or not known.ended):
            return known
        if len(self._open) > MAX_GUESSED_STREAMS:
            return known
        # Media on an id that was not requested belongs to the only stream that still waits for media. If the id was
        # used by an earlier stream, that stream must have been granted first.
        waiting = [
            s for s in self._open.values()
            if s.direction == direction and not s.has_media and (known is None or s.answered)
        ]  # fmt: skip
        return waiting[0] if len(waiting) == 1 else known

    def _begin(self, stream_id: int, role: str, name: str | None, ts: int, *, start_known: bool = True) -> StreamSpan:
        listed = len(self.spans) < MAX_STREAMS
        span = StreamSpan(len(self.spans) if listed else -1, stream_id, role, name, ts, start_known=start_known)
        span.gaps_before = self.gaps[span.direction]
        self._not_left[stream_id] = span
        if listed:
            self.spans.append(span)
            self._latest[span.direction, stream_id] = span
        self._open[stream_id] = span
        return span

    def _end_span(self, stream_id: int, ts: int) -> None:
        span = self._open.pop(stream_id, None)
        if span is not None:
            self._guessed.pop(stream_id, None)
            self._not_left.pop(stream_id, None)
            span.ended = True
            span.gaps_after = self.gaps[span.direction]
            span.left_at = span.left_at or ts
            span.ts_end = max(span.ts_end, ts)

    # -- commands -----------------------------------------------------------------------------------------------

    def receive_command(self, direction: str, fact: CommandFact) -> Exchange:
        """Take a command, and return the exchange that it is part of."""
        if direction == "s2c" and fact.type_id in OF_STREAMS:
            self.last_data_no = fact.msg_no
        if fact.name in _ANSWERS:
            return self._receive_answer(direction, fact)
        self._request(direction, fact)
        return _new(Exchange, (direction, fact, None, None, NO_STATUS, None))

    def _receive_answer(self, direction: str, fact: CommandFact) -> Exchange:
        name = fact.name
        given = NO_STATUS
        request: Request | None = None
        if name in ("_result", "_error"):
            given = status(fact.args)
            request = self._pending.answer(OTHER_DIRECTION[direction], fact)
            if request is not None and request.name == "connect" and name == "_result":
                self.server_ver = self.server_ver or server_version(fact.args)
            elif request is not None and request.name == "createStream" and name == "_result":
                returned = fact.args[1] if len(fact.args) > 1 else None
                if isinstance(returned, (int, float)) and 0 <= returned < 1 << 32 and len(self.created) < MAX_STREAMS:
                    self.created.add(int(returned))
                else:
                    self.ids_unread = True
        elif name == "onStatus":
            given = status(fact.args)
            request = self._status(fact, given)
        else:
            given = status(fact.args)
        response_ms = None
        if request is not None and fact.ts >= request.ts:
            response_ms = (fact.ts - request.ts) / 1000
        refuses = None
        if given.level == "error" or name == "_error":
            refuses = self._refusal(fact, request, given.code)
        if given.code in _TEARDOWN_CODES:
            self.teardown_ts[direction] = fact.ts
        return _new(Exchange, (direction, fact, request, response_ms, given, refuses))

    def _status(self, fact: CommandFact, given: Status) -> Request | None:
        """The request that an onStatus answers; its stream is granted or refused."""
        answer = self._pending.status(fact, given)
        if answer is None:
            return None
        stream_id, request = answer
        span = self._open.get(stream_id)
        if span is not None and request.name in ("publish", "play", "play2"):
            span.answered = True
            span.refused = span.refused or given.level == "error"
        return request

    def _request(self, direction: str, fact: CommandFact) -> None:
        name = fact.name
        if fact.transaction_id:
            self._pending.add(direction, fact.transaction_id, fact)
        if name not in _NOTED_REQUESTS:
            return
        args = fact.args
        if direction != "c2s":
            if name in _TEARDOWN:  # of a server that is itself a publisher: ffmpeg -listen
                self.teardown_ts[direction] = fact.ts
            return
        nameless = False
        if name == "connect":
            self.app, self.tc_url, self.flash_ver = connect_arguments(args)
        elif name in ("publish", "play", "play2"):
            stream_name = args[1] if len(args) > 1 else None
            if isinstance(stream_name, dict):  # play2 takes an object
                stream_name = fields(stream_name).get("streamName")
            self._end_span(fact.stream_id, fact.ts)
            if stream_name is False:  # publish(false) stops publishing
                self.teardown_ts[direction] = fact.ts
                return
            role = "publish" if name == "publish" else "play"
            self._begin(fact.stream_id, role, text(stream_name), fact.ts)
            nameless = stream_name in (None, "") or stream_name == {"$undefined": True}
        elif name in _TEARDOWN:
            self._teardown(direction, fact)
        if name in ANSWERED_BY_STATUS:
            self._pending.add_for_stream(fact, nameless)

    def _teardown(self, direction: str, fact: CommandFact) -> None:
        self.teardown_ts[direction] = fact.ts
        closed: Json = fact.stream_id
        if fact.name == "deleteStream" and len(fact.args) > 1:
            closed = fact.args[1]
        if fact.name == "FCUnpublish":
            for span in self._not_left.values():
                span.left_at = span.left_at or fact.ts
            self._not_left = {}
        elif isinstance(closed, (int, float)):
            self._end_span(int(closed), fact.ts)

    def _refusal(self, fact: CommandFact, request: Request | None, code: str | None) -> str | None:
        """The command that is refused; None if the error is harmless, as for releaseStream and FCPublish."""
        what = self._refused_without_request(fact, code or "") if request is None else request.name
        if what not in _REFUSABLE and code != BAD_NAME:
            return None
        self.refused_ts = fact.ts
        return what or "a request"

    def _refused_without_request(self, fact: CommandFact, code: str) -> str | None:
        """What an error refuses if no request waits for an answer: it was answered before, or was not captured."""
        if code.startswith(_OTHER_TROUBLE):
            return None
        if code.startswith("NetConnection.Connect."):
            return "connect"
        if fact.name == "_error":
            return "publish" if code == BAD_NAME else None
        span = self._open.get(fact.stream_id)
        if span is None:
            return "play" if code.startswith("NetStream.Play.") else "publish"
        span.refused = span.refused or not span.has_media
        return span.role

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self, secrets: ConnectionSecrets) -> SessionState:
        """Stream names, URL parameters and known secrets are saved as their hashes."""
        redactor, hide = secrets.redactor, secrets.hide
        numbers = {id(span): span.number for span in self.spans}
        return {
            "handshake": self.handshake.state(),
            "app": self.app and redactor.url(self.app, KnownSecrets()),
            "tc_url": self.tc_url and redactor.url(self.tc_url, KnownSecrets()),
            "flash_ver": self.flash_ver and hide(self.flash_ver),
            "server_ver": self.server_ver and hide(self.server_ver),
            "spans": [span.state(span.name and redactor.stream_name(span.name)) for span in self.spans],
            "open": [(i, numbers[id(span)]) for i, span in self._open.items() if id(span) in numbers],
            "latest": [(*of, numbers[id(span)]) for of, span in self._latest.items() if id(span) in numbers],
            "pending": self._pending.state(secrets.command_name),
            "created": (sorted(self.created), self.ids_unread),
            "refused_ts": self.refused_ts,
            "teardown_ts": self.teardown_ts,
            "gaps": self.gaps,
            "gap_ts": self.gap_ts,
            "framing_errors": self.framing_errors,
        }

    @classmethod
    def resume(cls, state: SessionState) -> Session:
        own = cls()
        own.handshake = Handshakes.resume(state["handshake"])
        own.app, own.tc_url = state["app"], state["tc_url"]
        own.flash_ver, own.server_ver = state["flash_ver"], state["server_ver"]
        own.spans = [StreamSpan.resume(span) for span in state["spans"]]
        own._open = {stream_id: own.spans[number] for stream_id, number in state["open"]}
        own._guessed = {i: span for i, span in own._open.items() if span.media_stream_id != i}
        own._not_left = {i: span for i, span in own._open.items() if not span.left_at}
        own._latest = {(direction, i): own.spans[number] for direction, i, number in state["latest"]}
        created, own.ids_unread = state["created"]
        own.created = set(created)
        own._pending = PendingRequests.resume(state["pending"])
        own.refused_ts = state["refused_ts"]
        own.teardown_ts = dict(state["teardown_ts"])
        own.gaps = dict(state["gaps"])
        own.gap_ts = dict(state["gap_ts"])
        own.framing_errors = dict(state["framing_errors"])
        return own
