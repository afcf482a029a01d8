"""RTMPT taken off: RTMP in the bodies of HTTP requests and answers (POST /open, /send, /idle, /close, /fcs/ident2).

`RtmptConnection` reads one TCP connection: which request is which, which answer belongs to it, what is in their bodies
(without the byte that leads every answer and tells how often to ask). `Tunnels` knows the sessions of a recording: a
session may use several TCP connections, and a connection may carry other requests too. The rows of a session belong to
the connection on which it began. Nothing is answered, nothing is asked.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, NamedTuple

import numpy as np

from rtmp_spark.capture.connection import SILENT_NS
from rtmp_spark.capture.http_stream import (
    UNKNOWN,
    Body,
    Finished,
    First,
    HttpEvent,
    HttpReader,
    Missing,
    Skipped,
    Unsure,
)
from rtmp_spark.capture.items import End, Gap, Item, Lost, Run
from rtmp_spark.capture.rtmpt_session import (
    ANSWERS,
    REQUESTS,
    Entry,
    Piece,
    RtmptSession,
    Sink,
    piece_of,
    piece_state,
)
from rtmp_spark.capture.service import HTTP, RTMPT
from rtmp_spark.capture.wrapping import Noted, WrappingFacts
from rtmp_spark.codec.errors import ViolationCode

OTHER_REQUESTS = 16  # on a connection before its first request of a tunnel
OTHER_BYTES = 128 << 10  # of requests, and of answers to those that are none of a tunnel
AHEAD_BYTES = 16 << 20  # of answers whose requests are yet to be read: more than one window of a file
_ID_BYTES = 256
_MOST_ASKED = 1 << 16  # requests of one window of a file, of which the answers are read later
_MOST_UNANSWERED = 1024  # of those before it
_PIPELINED = 64  # requests that may wait for their answers at a time
_LOOKED_AT = 4096
_MOST_NOTED = 64
_HOST = re.compile(r"http://[^/]+(?=/)", re.IGNORECASE)  # before the path in requests to a proxy (RFC 9112 3.2.2)
_PATH = re.compile(r"/(open|send|idle|close)/([^/?]{1,256})(?:/(\d{1,9}))?")
_STATUS = re.compile(rb"HTTP/1\.[01] \d{3} ")
_OPEN, _SEND, _CLOSE, _OTHER, _IDENT = "open", "send", "close", "other", "ident"


class Asked:
    """A request, until it is answered."""

    __slots__ = ("answer", "body", "frame", "kind", "session", "ts_ns")

    def __init__(self, kind: str, frame: int, ts_ns: int) -> None:
        self.kind = kind
        self.frame = frame
        self.ts_ns = ts_ns
        self.session: RtmptSession | None = None
        self.body: Entry | None = None
        self.answer: Entry | None = None


class _Placed(NamedTuple):
    """An event of the answers, with where its bytes came from."""

    event: HttpEvent
    frame: int
    ts_ns: int
    piece: Piece | None = None


class SharedConnection:
    """The TCP connection of a session that was not the first on it: the same, but begun when the session was."""

    def __init__(self, connection: Any, number: int, frame: int, ts_ns: int) -> None:
        self._connection = connection
        self.number = number
        self.frame_first = frame
        self.ts_first_ns = ts_ns
        self.tag: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def drop(self) -> None:
        """The bytes of this session alone are nothing that TCP could leave out."""


class Tunnels:
    """The sessions of one recording, by server and id. `separate` gives the sink of a session with its own rows."""

    def __init__(self, separate: Callable[[SharedConnection], Sink] | None = None) -> None:
        self._separate = separate
        self._shared = 0
        self._sessions: dict[tuple[Any, str], RtmptSession] = {}
        self._changed: dict[int, RtmptSession] = {}
        self._asking: dict[int, RtmptConnection] = {}

    def find(self, server: Any, session_id: str, ts_ns: int) -> RtmptSession | None:
        """The session that this name means at this time; one that was silent for too long is over."""
        session = self._sessions.get((server, session_id))
        return None if session is not None and session.heard_ns + SILENT_NS < ts_ns else session

    def separate(self, connection: Any, frame: int, ts_ns: int) -> tuple[Any, Sink]:
        """For a session on a connection that has had another one."""
        self._shared += 1
        shared = SharedConnection(connection, -self._shared, frame, ts_ns)
        return shared, self._separate(shared) if self._separate is not None else _nowhere

    def begin(self, server: Any, session: RtmptSession) -> None:
        self._sessions[(server, session.session_id)] = session

    def touch(self, session: RtmptSession) -> None:
        self._changed[id(session)] = session

    def heard(self, connection: RtmptConnection) -> None:
        """There were requests in this window."""
        self._asking[id(connection)] = connection

    def settle(self) -> list[RtmptSession]:
        """After each window: the sessions that something came for, with what can be read in order read."""
        asking, self._asking = self._asking, {}
        for connection in asking.values():
            connection.settle()
        changed, self._changed = list(self._changed.values()), {}
        for session in changed:
            session.settle()
        return changed

    def leave(self, number: int) -> list[RtmptSession]:
        """A TCP connection is over; the sessions that no other one carries on."""
        over = []
        for key, session in list(self._sessions.items()):
            if number in session.members:
                session.members.discard(number)
                if not session.members:
                    over.append(session)
                    del self._sessions[key]
        return over

    def carried_on(self, connection: Any) -> int:
        """Up to when sessions that began on this connection can live on others; 0: there are none."""
        if not self._sessions:
            return 0
        began = (s for s in self._sessions.values() if s.connection is connection)
        heard = (s.heard_ns + SILENT_NS for s in began if s.members - {connection.number})
        return max(heard, default=0)


def _nowhere(item: Item) -> None:
    """What nobody asked for."""


def _facts(session: RtmptSession) -> WrappingFacts:
    return WrappingFacts(RTMPT, session.session_id, goodbye_ns=session.goodbye_ns)


class SessionWrapping:
    """How a conversation sees a session that has its rows for itself; others feed it."""

    refusal = HTTP
    readable = True

    def __init__(self, session: RtmptSession) -> None:
        self.session = session
        self.client_randoms: list[bytes] = []
        self.carriers = session.carriers

    @property
    def facts(self) -> WrappingFacts:
        return _facts(self.session)

    @property
    def joined(self) -> bool:
        return not self.session.from_start

    def receive(self, item: Item) -> list[Item]:
        return []

    def finish(self) -> list[Item]:
        self.session.flush("open", 0, 0)
        return []

    def take_noted(self) -> list[Noted]:
        return self.session.take_noted()

    def end_notes(self) -> list[Noted]:
        return []

    def state(self) -> dict[str, Any]:
        return self.session.state()


class RtmptConnection:
    """One TCP connection with HTTP on it. What it carries of sessions goes to their sinks."""

    refusal = HTTP

    def __init__(self, connection: Any, tunnels: Tunnels, sink: Sink) -> None:
        self._connection = connection
        self._tunnels = tunnels
        self._sink = sink
        self._requests: int | None = None if connection.midstream else 0
        self._readers: list[HttpReader | None] = [None, None]
        self._asked: deque[Asked] = deque()
        self._asking: Asked | None = None
        self._answers: deque[_Placed] = deque()
        self._answering: Asked | None = None
        self._status = 0
        self._stripped = False  # the leading byte of this answer
        self._id = b""
        self._unsure = False
        self._requests_high = 0  # the latest packet with requests
        self._requests_over = False
        self._others = 0
        self._bytes = 0
        self._noted: list[Noted] = []
        self._last = (0, 0)
        self.sessions: list[RtmptSession] = []

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool | None:
        if self.sessions or any(asked.kind in (_OPEN, _IDENT) for asked in self._asked):
            return True
        if self._others > OTHER_REQUESTS or self._bytes > OTHER_BYTES or self._ahead > AHEAD_BYTES:
            return False
        return None

    @property
    def _ahead(self) -> int:
        return sum(len(placed.piece.data) for placed in self._answers if placed.piece is not None)

    @property
    def facts(self) -> WrappingFacts:
        return _facts(self.sessions[0]) if self.sessions else WrappingFacts(RTMPT)

    @property
    def client_randoms(self) -> list[bytes]:
        return []

    @property
    def carriers(self) -> list[Any]:
        own = [session for session in self.sessions if session.connection is self._connection]
        return next((session.carriers for session in (*own, *self.sessions)), [])

    @property
    def joined(self) -> bool:
        return not all(session.from_start for session in self.sessions if session.connection is self._connection)

    def take_noted(self) -> list[Noted]:
        noted, self._noted = self._noted, []
        for session in self.sessions:
            if session.connection is self._connection:
                noted += session.take_noted()
        return noted

    def end_notes(self) -> list[Noted]:
        return []

    def state(self) -> dict[str, Any]:
        """Plain data. Sessions that began on other connections are joined again by name."""
        asked = list(self._asked)
        asking = [a for a in (self._asking, self._answering) if a is not None and a not in asked]
        return {
            "requests": self._requests,
            "readers": [None if reader is None else reader.state() for reader in self._readers],
            "sessions": [s.state() for s in self.sessions if s.connection is self._connection],
            "joined": [[s.session_id, s.goodbye_ns] for s in self.sessions if s.connection is not self._connection],
            "asked": [_asked_state(a) for a in (*asked, *asking)],
            "waiting": len(asked),
            "asking": None if self._asking is None else [*asked, *asking].index(self._asking),
            "answering": None if self._answering is None else [*asked, *asking].index(self._answering),
            "answers": [_placed_state(placed) for placed in self._answers],
            "answer": [self._status, self._stripped, self._id.decode("latin-1")],
            "unsure": [self._unsure, self._requests_high, self._requests_over],
            "noted": [note.state() for note in self._noted],
            "counted": [self._others, self._bytes, *self._last],
        }

    @classmethod
    def resume(cls, state: dict[str, Any], connection: Any, tunnels: Tunnels, sink: Sink) -> RtmptConnection:
        made = cls(connection, tunnels, sink)
        made._requests = state["requests"]
        made._readers = [None if reader is None else HttpReader.resume(reader) for reader in state["readers"]]
        for saved in state["sessions"]:
            session = RtmptSession.resume(saved, connection, sink)
            session.join(connection)
            tunnels.begin(made._server, session)
            made.sessions.append(session)
        for name, goodbye_ns in state["joined"]:
            session = made._join(name, opened=False)
            session.goodbye_ns = session.goodbye_ns or goodbye_ns  # the connection it began on may be over for good
        asked = [made._asked_of(saved) for saved in state["asked"]]
        made._asked = deque(asked[: state["waiting"]])
        made._asking = None if state["asking"] is None else asked[state["asking"]]
        made._answering = None if state["answering"] is None else asked[state["answering"]]
        made._answers = deque(_placed_of(saved) for saved in state["answers"])
        made._status, made._stripped, session_id = state["answer"]
        made._id = session_id.encode("latin-1")
        made._unsure, made._requests_high, made._requests_over = state["unsure"]
        made._noted = [Noted.resume(note) for note in state["noted"]]
        made._others, made._bytes = state["counted"][:2]
        made._last = (state["counted"][2], state["counted"][3])
        return made

    def _asked_of(self, saved: list[Any]) -> Asked:
        kind, frame, ts_ns, session_id, number = saved
        asked = Asked(kind, frame, ts_ns)
        if session_id is not None:
            asked.session = self._join(session_id, opened=False)
            asked.body = asked.session.again(REQUESTS, number)
            asked.answer = asked.session.again(ANSWERS, number)
        return asked

    # -- items --------------------------------------------------------------------------------------------------------

    def receive(self, item: Item) -> list[Item]:
        direction = item.direction
        if isinstance(item, Run):
            reader = self._readers[direction] or self._begin(direction, item)
            if direction == self._requests and not self.sessions:
                self._bytes += len(item.data)
            self._take(direction, reader.receive(item.data, item.offset), item)
            if direction == self._requests and len(item.seg_frames):
                self._requests_high = max(self._requests_high, int(item.seg_frames.max()))
            self._tunnels.heard(self)
        elif isinstance(item, (Gap, Lost)):
            for session in self.sessions:
                session.unsure = True
            self._last = (item.frame, item.ts_ns)
            gone = self._readers[direction]
            if gone is not None:
                exact = isinstance(item, Gap)
                events = gone.receive_gap(item.length) if exact else gone.receive_lost(item.length)
                self._take(direction, events, None)
            self._match()
            return [replace(item, outer=True)]
        elif isinstance(item, End):
            self._last = (item.frame, item.ts_ns)
            ended = self._readers[direction]
            if ended is not None:
                self._take(direction, ended.receive_end(), None)
            if direction == self._requests:
                self._requests_over = True
        self._match()
        return []

    def finish(self) -> list[Item]:
        """No more packets: what was asked and not answered never will be."""
        self._requests_over = True
        self._match()
        for asked in self._asked:
            self._unanswered(asked)
        self._asked.clear()
        own = [session for session in self.sessions if session.connection is self._connection]
        for session in (*self._tunnels.leave(self._connection.number), *own):
            session.flush(self._connection.close_kind, *self._last)
        return []

    def settle(self) -> None:
        """All answers up to now were seen: requests long before them have none."""
        while len(self._asked) > _MOST_UNANSWERED:
            self._unanswered(self._asked.popleft())
            self._unsure = True  # which answer is whose is told by time from now on

    def _begin(self, direction: int, run: Run) -> HttpReader:
        from_start = run.offset == 0 and bool(self._connection.streams[direction].syn)
        if self._requests is None:
            answers = _STATUS.search(run.data) is not None
            self._requests = 1 - direction if answers else direction
        reader = self._readers[direction] = HttpReader(direction == self._requests, from_start)
        self._unsure |= not from_start
        return reader

    def _take(self, direction: int, events: list[HttpEvent], run: Run | None) -> None:
        for event in events:
            frame, ts_ns = self._place(run, event.offset)
            piece = None
            if isinstance(event, Body) and run is not None:
                piece = _piece(run, event)
            elif isinstance(event, Missing):
                piece = _missing(event.length, *self._last)
            placed = _Placed(event, frame, ts_ns, piece)
            if isinstance(event, Unsure):
                self._unsure = True
            if isinstance(event, Skipped):
                self._note_skipped(direction, placed)
            elif direction == self._requests:
                self._request(placed)
            else:
                self._answers.append(placed)

    def _place(self, run: Run | None, offset: int) -> tuple[int, int]:
        if run is None or not len(run.seg_frames):
            return self._last
        index = max(int(np.searchsorted(run.seg_offsets, offset, "right")) - 1, 0)
        self._last = (int(run.seg_frames[index]), int(run.seg_ts_ns[index]))
        return self._last

    # -- requests -----------------------------------------------------------------------------------------------------

    def _request(self, placed: _Placed) -> None:
        event, asking = placed.event, self._asking
        if isinstance(event, First):
            self._asking = self._ask(event, placed.frame, placed.ts_ns)
        elif asking is None or asking.session is None or asking.body is None:
            return
        elif isinstance(event, (Body, Missing)):
            if placed.piece is not None and asking.kind == _SEND:
                asking.session.add(REQUESTS, asking.body, placed.piece)
                self._tunnels.touch(asking.session)
        elif isinstance(event, Finished):
            asking.session.finish(REQUESTS, asking.body)
            self._tunnels.touch(asking.session)
            self._asking = None

    def _ask(self, first: First, frame: int, ts_ns: int) -> Asked:
        host = _HOST.match(first.target)
        path = first.target[host.end() if host else 0 :].partition("?")[0]
        match = _PATH.fullmatch(path) if first.word == "POST" else None
        kind = _OTHER
        if match is not None:
            kind = match[1]
        elif path.startswith("/fcs/ident"):
            kind = _IDENT
        asked = Asked(kind, frame, ts_ns)
        if kind == _OTHER:
            self._others += 1
        elif match is not None and kind != _OPEN and match[3] is not None:
            session = self._join(match[2], opened=False)
            number = int(match[3])
            asked.session = session
            asked.body = session.begin(REQUESTS, number, frame, ts_ns)
            asked.answer = session.begin(ANSWERS, number, frame, ts_ns)
            if kind == _CLOSE:
                session.goodbye_ns = ts_ns
        if len(self._asked) < _MOST_ASKED:
            self._asked.append(asked)
        return asked

    @property
    def _server(self) -> Any:
        return self._connection.b if self._requests == 0 else self._connection.a

    def _join(self, session_id: str, opened: bool, place: tuple[int, int] | None = None) -> RtmptSession:
        server = self._server
        session = self._tunnels.find(server, session_id, self._last[1])
        if session is None:
            home, sink = self._connection, self._sink
            if any(known.connection is home for known in self.sessions):
                home, sink = self._tunnels.separate(home, *(place or self._last))
            session = RtmptSession(session_id, home, self._requests or 0, sink, opened)
            session.heard_ns = self._last[1]
            if home is not self._connection and home.tag is not None:
                home.tag.wrapping = SessionWrapping(session)
            self._tunnels.begin(server, session)
        session.open_seen |= opened
        session.join(self._connection)
        session.unsure |= self._unsure
        if session not in self.sessions:
            self.sessions.append(session)
        return session

    # -- answers ------------------------------------------------------------------------------------------------------

    def _match(self) -> None:
        """Give every answer to its request, as far as that is known."""
        while self._answers:
            placed = self._answers[0]
            if isinstance(placed.event, First):
                status = int(placed.event.target)
                if status >= 200:
                    if not self._find_request(placed.frame):
                        return
                    self._begin_answer(status, placed)
                else:
                    self._answering, self._status = None, status
            elif self._answering is not None:
                self._answer(self._answering, placed)
            self._answers.popleft()

    def _find_request(self, frame: int) -> bool:
        """The request that an answer in this packet belongs to: the oldest; after a loss, as many of those just before
        it as there are answers before the next."""
        if not self._unsure:
            if not self._asked:
                if not self._requests_over:
                    return False
                self._answering = None
                return True
            self._answering = self._asked.popleft()
            return True
        if self._requests_high <= frame and not self._requests_over:
            return False
        while len(self._asked) > _PIPELINED and self._asked[_PIPELINED].frame <= frame:
            self._unanswered(self._asked.popleft())
        known = sum(1 for _ in takewhile(lambda asked: asked.frame <= frame, self._asked))
        answers = self._answers_before(self._asked[known].frame if known < len(self._asked) else None, known)
        for _ in range(known - answers):
            self._unanswered(self._asked.popleft())
        # With more answers than requests, the requests of the first ones were lost.
        self._answering = self._asked.popleft() if 0 < answers <= known else None
        return True

    def _answers_before(self, frame: int | None, enough: int) -> int:
        """How many answers wait that came before the packet of the next request, up to one more than `enough`."""
        found = 0
        for placed in islice(self._answers, _LOOKED_AT):
            if frame is not None and placed.frame >= frame:
                break
            found += isinstance(placed.event, First) and placed.event.target >= "200"
            if found > enough:
                break
        return found

    def _begin_answer(self, status: int, placed: _Placed) -> None:
        self._status, self._stripped, self._id = status, False, b""
        asked = self._answering
        if asked is not None and status != 200 and asked.kind not in (_OTHER, _IDENT):
            detail = f"{asked.kind} was answered with HTTP status {status}"
            self._note(ViolationCode.RTMPT_HTTP_STATUS, 1 - (self._requests or 0), detail, placed)

    def _answer(self, asked: Asked, placed: _Placed) -> None:
        event, piece = placed.event, placed.piece
        if asked.kind == _OTHER and piece is not None and not self.sessions:
            self._bytes += len(piece.data)
        if isinstance(event, Finished):
            if asked.kind == _OPEN and self._status == 200:
                session_id = self._id.decode("latin-1").strip()
                if session_id and event.whole:
                    self._join(session_id, opened=True, place=(asked.frame, asked.ts_ns))
            elif asked.session is not None and asked.answer is not None:
                asked.session.finish(ANSWERS, asked.answer)
                self._tunnels.touch(asked.session)
            self._answering = None
        elif self._status != 200 or piece is None:
            return
        elif asked.kind == _OPEN:
            self._id = (self._id + piece.data)[:_ID_BYTES]
        elif asked.session is not None and asked.answer is not None:
            if not self._stripped:
                self._stripped = True
                piece = _without_first(piece)
            if piece is not None:
                asked.session.add(ANSWERS, asked.answer, piece)
                self._tunnels.touch(asked.session)

    def _unanswered(self, asked: Asked) -> None:
        if asked.session is not None and asked.answer is not None:
            if self._unsure:
                asked.session.add(ANSWERS, asked.answer, _missing(UNKNOWN, asked.frame, asked.ts_ns))
            asked.session.finish(ANSWERS, asked.answer)
            self._tunnels.touch(asked.session)

    # -- notes --------------------------------------------------------------------------------------------------------

    def _note(self, code: ViolationCode, direction: int, detail: str, placed: _Placed) -> None:
        if len(self._noted) < _MOST_NOTED:
            self._noted.append(Noted(code, direction, detail, placed.frame or None, placed.ts_ns or None))

    def _note_skipped(self, direction: int, placed: _Placed) -> None:
        assert isinstance(placed.event, Skipped)
        if not self._unsure:
            what = "requests" if direction == self._requests else "answers"
            detail = f"{placed.event.length} bytes between the {what} are no HTTP: more than was announced"
            self._note(ViolationCode.RTMPT_HTTP_STATUS, direction, detail, placed)


def _asked_state(asked: Asked) -> list[Any]:
    session_id = None if asked.session is None else asked.session.session_id
    return [asked.kind, asked.frame, asked.ts_ns, session_id, None if asked.body is None else asked.body.number]


_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in (First, Body, Missing, Finished, Skipped, Unsure)}


def _placed_state(placed: _Placed) -> list[Any]:
    values = [v.decode("latin-1") if isinstance(v, bytes) else v for v in placed.event]
    piece = None if placed.piece is None else piece_state(placed.piece)
    return [type(placed.event).__name__, values, placed.frame, placed.ts_ns, piece]


def _placed_of(saved: list[Any]) -> _Placed:
    kind, values, frame, ts_ns, piece = saved
    if kind == Body.__name__:
        values = [values[0], values[1].encode("latin-1")]
    return _Placed(_EVENTS[kind](*values), frame, ts_ns, None if piece is None else piece_of(piece))


def _piece(run: Run, body: Body) -> Piece:
    end = body.offset + len(body.data)
    first = max(int(np.searchsorted(run.seg_offsets, body.offset, "right")) - 1, 0)
    last = int(np.searchsorted(run.seg_offsets, end, "left"))
    starts = np.maximum(run.seg_offsets[first:last] - body.offset, 0)
    return Piece(body.data, starts, run.seg_frames[first:last], run.seg_ts_ns[first:last])


def _missing(length: int, frame: int, ts_ns: int) -> Piece:
    return Piece(b"", np.zeros(1, np.int64), np.array([frame]), np.array([ts_ns]), length)


def _without_first(piece: Piece) -> Piece | None:
    if piece.length == UNKNOWN:
        return piece
    if piece.length:
        return piece._replace(length=piece.length - 1) if piece.length > 1 else None
    if len(piece.data) == 1:
        return None
    keep = 1 if len(piece.starts) > 1 and piece.starts[1] == 1 else 0
    starts = np.maximum(piece.starts[keep:] - 1, 0)
    return Piece(piece.data[1:], starts, piece.frames[keep:], piece.times[keep:])
