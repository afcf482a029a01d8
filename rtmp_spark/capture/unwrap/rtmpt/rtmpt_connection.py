"""Extract RTMP from one TCP connection with RTMPT: HTTP requests POST /open, /send, /idle, /close and /fcs/ident2.

This module finds the requests, the response to each, and the content of their bodies, without the first byte of a
response, which is the polling interval. The bodies go to their sessions (rtmpt_session.py), which may use several TCP
connections (rtmpt_tunnels.py). A connection may also carry other requests.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import Any

import numpy as np

from rtmp_spark.capture.service import HTTP, PROXIED_HOST, RTMPT
from rtmp_spark.capture.tcp.stream_items import End, Gap, Item, Lost, Run
from rtmp_spark.capture.unwrap.rtmpt.http_reader import (
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
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_requests import (
    CLOSE,
    IDENT,
    OPEN,
    OTHER,
    SEND,
    Asked,
    Placed,
    RequestQueue,
    asked_state,
    body_piece,
    missing_piece,
    placed_from_state,
    placed_state,
    without_first_byte,
)
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_session import ANSWERS, REQUESTS, RtmptSession, Sink
from rtmp_spark.capture.unwrap.rtmpt.rtmpt_tunnels import SessionWrapping, Tunnels, session_facts
from rtmp_spark.capture.unwrap.wrapping import Noted, WrappingFacts
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import (
    RTMPT_NOTES,
    RTMPT_OTHER_BYTES,
    RTMPT_OTHER_REQUESTS,
    RTMPT_REQUESTS_PER_WINDOW,
    RTMPT_RESPONSES_AHEAD_BYTES,
    RTMPT_SESSION_ID_BYTES,
    RTMPT_UNANSWERED,
)

_PATH = re.compile(r"/(open|send|idle|close)/([^/?]{1,256})(?:/(\d{1,9}))?")
_STATUS = re.compile(rb"HTTP/1\.[01] \d{3} ")


class RtmptConnection:
    """One TCP connection with HTTP. The content of sessions goes to the sinks of these."""

    refusal = HTTP

    def __init__(self, connection: Any, tunnels: Tunnels, sink: Sink) -> None:
        self._connection = connection
        self._tunnels = tunnels
        self._sink = sink
        self._requests: int | None = None if connection.midstream else 0
        self._readers: list[HttpReader | None] = [None, None]
        self._queue = RequestQueue()
        self._asking: Asked | None = None
        self._answering: Asked | None = None
        self._status = 0
        self._stripped = False  # the first byte of this response was removed
        self._id = b""
        self._others = 0
        self._bytes = 0
        self._noted: list[Noted] = []
        self._last = (0, 0)
        self.sessions: list[RtmptSession] = []
        self._joined: set[int] = set()  # ids of these objects

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool | None:
        if self.sessions or any(asked.kind in (OPEN, IDENT) for asked in self._queue.asked):
            return True
        if (
            self._others > RTMPT_OTHER_REQUESTS
            or self._bytes > RTMPT_OTHER_BYTES
            or self._queue.ahead_bytes > RTMPT_RESPONSES_AHEAD_BYTES
        ):
            return False
        return None

    @property
    def facts(self) -> WrappingFacts:
        return session_facts(self.sessions[0]) if self.sessions else WrappingFacts(RTMPT)

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

    @property
    def held(self) -> list[tuple[int, int]]:
        found = [(placed.frame, placed.ts_ns) for placed in islice(self._queue.responses, 1)]
        for session in self.sessions:
            if session.connection is self._connection:
                found += session.held
        return found

    def take_noted(self) -> list[Noted]:
        noted, self._noted = self._noted, []
        for session in self.sessions:
            if session.connection is self._connection:
                noted += session.take_noted()
        return noted

    def end_notes(self) -> list[Noted]:
        return []

    def state(self) -> dict[str, Any]:
        """Plain data. Sessions that began on other connections are found again by their id."""
        asked = list(self._queue.asked)
        asking = [a for a in (self._asking, self._answering) if a is not None and a not in asked]
        return {
            "requests": self._requests,
            "readers": [None if reader is None else reader.state() for reader in self._readers],
            "sessions": [s.state() for s in self.sessions if s.connection is self._connection],
            "joined": [[s.session_id, s.goodbye_ns] for s in self.sessions if s.connection is not self._connection],
            "asked": [asked_state(a) for a in (*asked, *asking)],
            "waiting": len(asked),
            "asking": None if self._asking is None else [*asked, *asking].index(self._asking),
            "answering": None if self._answering is None else [*asked, *asking].index(self._answering),
            "answers": [placed_state(placed) for placed in self._queue.responses],
            "answer": [self._status, self._stripped, self._id.decode("latin-1")],
            "unsure": [self._queue.unsure, self._queue.requests_high, self._queue.requests_over],
            "noted": [note.state() for note in self._noted],
            "counted": [self._others, self._bytes, *self._last],
        }

    @classmethod
    def resume(cls, state: dict[str, Any], connection: Any, tunnels: Tunnels, sink: Sink) -> RtmptConnection:
        own = cls(connection, tunnels, sink)
        own._requests = state["requests"]
        own._readers = [None if reader is None else HttpReader.resume(reader) for reader in state["readers"]]
        for saved in state["sessions"]:
            session = RtmptSession.resume(saved, connection, sink)
            session.join(connection)
            tunnels.begin(own._server, session)
            own._joined.add(id(session))
            own.sessions.append(session)
        for name, goodbye_ns in state["joined"]:
            session = own._join(name, opened=False)
            session.goodbye_ns = session.goodbye_ns or goodbye_ns  # the connection it began on may be closed
        asked = [own._asked_of(saved) for saved in state["asked"]]
        own._queue.asked = deque(asked[: state["waiting"]])
        own._asking = None if state["asking"] is None else asked[state["asking"]]
        own._answering = None if state["answering"] is None else asked[state["answering"]]
        own._queue.responses = deque(placed_from_state(saved) for saved in state["answers"])
        own._status, own._stripped, session_id = state["answer"]
        own._id = session_id.encode("latin-1")
        own._queue.unsure, own._queue.requests_high, own._queue.requests_over = state["unsure"]
        own._noted = [Noted.resume(note) for note in state["noted"]]
        own._others, own._bytes = state["counted"][:2]
        own._last = (state["counted"][2], state["counted"][3])
        return own

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
                self._queue.requests_high = max(self._queue.requests_high, int(item.seg_frames.max()))
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
            return [item._replace(outer=True)]
        elif isinstance(item, End):
            self._last = (item.frame, item.ts_ns)
            ended = self._readers[direction]
            if ended is not None:
                self._take(direction, ended.receive_end(), None)
            if direction == self._requests:
                self._queue.requests_over = True
        self._match()
        return []

    def finish(self) -> list[Item]:
        """No more packets will come: open requests have no response."""
        self._queue.requests_over = True
        self._match()
        for asked in self._queue.asked:
            self._unanswered(asked)
        self._queue.asked.clear()
        own = [session for session in self.sessions if session.connection is self._connection]
        for session in (*self._tunnels.leave(self._connection.number), *own):
            session.flush(self._connection.close_kind, *self._last)
        return []

    def settle(self) -> None:
        """All responses up to now were read: requests long before them have none."""
        while len(self._queue.asked) > RTMPT_UNANSWERED:
            self._unanswered(self._queue.asked.popleft())
            self._queue.unsure = True  # from now on responses are matched by time

    def _begin(self, direction: int, run: Run) -> HttpReader:
        from_start = run.offset == 0 and bool(self._connection.streams[direction].syn)
        if self._requests is None:
            answers = _STATUS.search(run.data) is not None
            self._requests = 1 - direction if answers else direction
        reader = self._readers[direction] = HttpReader(direction == self._requests, from_start)
        self._queue.unsure |= not from_start
        return reader

    def _take(self, direction: int, events: list[HttpEvent], run: Run | None) -> None:
        for event in events:
            frame, ts_ns = self._place(run, event.offset)
            piece = None
            if isinstance(event, Body) and run is not None:
                piece = body_piece(run, event)
            elif isinstance(event, Missing):
                piece = missing_piece(event.length, *self._last)
            placed = Placed(event, frame, ts_ns, piece)
            if isinstance(event, Unsure):
                self._queue.unsure = True
            if isinstance(event, Skipped):
                self._note_skipped(direction, placed)
            elif direction == self._requests:
                self._request(placed)
            else:
                self._queue.responses.append(placed)

    def _place(self, run: Run | None, offset: int) -> tuple[int, int]:
        if run is None or not len(run.seg_frames):
            return self._last
        index = max(int(np.searchsorted(run.seg_offsets, offset, "right")) - 1, 0)
        self._last = (int(run.seg_frames[index]), int(run.seg_ts_ns[index]))
        return self._last

    # -- requests -----------------------------------------------------------------------------------------------------

    def _request(self, placed: Placed) -> None:
        event, asking = placed.event, self._asking
        if isinstance(event, First):
            self._asking = self._ask(event, placed.frame, placed.ts_ns)
        elif asking is None or asking.session is None or asking.body is None:
            return
        elif isinstance(event, (Body, Missing)):
            if placed.piece is not None and asking.kind == SEND:
                asking.session.add(REQUESTS, asking.body, placed.piece)
                self._tunnels.touch(asking.session)
        elif isinstance(event, Finished):
            asking.session.finish(REQUESTS, asking.body)
            self._tunnels.touch(asking.session)
            self._asking = None

    def _ask(self, first: First, frame: int, ts_ns: int) -> Asked:
        host = PROXIED_HOST.match(first.target.encode("latin-1"))
        path = first.target[host.end() if host else 0 :].partition("?")[0]
        match = _PATH.fullmatch(path) if first.word == "POST" else None
        kind = OTHER
        if match is not None:
            kind = match[1]
        elif path.startswith("/fcs/ident"):
            kind = IDENT
        asked = Asked(kind, frame, ts_ns)
        if kind == OTHER:
            self._others += 1
        elif match is not None and kind != OPEN and match[3] is not None:
            session = self._join(match[2], opened=False)
            number = int(match[3])
            asked.session = session
            asked.body = session.begin(REQUESTS, number, frame, ts_ns)
            asked.answer = session.begin(ANSWERS, number, frame, ts_ns)
            if kind == CLOSE:
                session.goodbye_ns = ts_ns
        if len(self._queue.asked) < RTMPT_REQUESTS_PER_WINDOW:
            self._queue.asked.append(asked)
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
        session.unsure |= self._queue.unsure
        if id(session) not in self._joined:
            self._joined.add(id(session))
            self.sessions.append(session)
        return session

    # -- answers ------------------------------------------------------------------------------------------------------

    def _match(self) -> None:
        """Match responses to requests, as far as these are known."""
        while self._queue.responses:
            placed = self._queue.responses[0]
            if isinstance(placed.event, First):
                status = int(placed.event.target)
                if status >= 200:
                    match = self._queue.match(placed.frame)
                    if match is None:
                        return
                    for asked in match.unanswered:
                        self._unanswered(asked)
                    self._answering = match.request
                    self._begin_answer(status, placed)
                else:
                    self._answering, self._status = None, status
            elif self._answering is not None:
                self._answer(self._answering, placed)
            self._queue.responses.popleft()

    def _begin_answer(self, status: int, placed: Placed) -> None:
        self._status, self._stripped, self._id = status, False, b""
        asked = self._answering
        if asked is not None and status != 200 and asked.kind not in (OTHER, IDENT):
            detail = f"HTTP status {status} in response to {asked.kind}"
            self._note(ViolationCode.RTMPT_HTTP_STATUS, 1 - (self._requests or 0), detail, placed)

    def _answer(self, asked: Asked, placed: Placed) -> None:
        event, piece = placed.event, placed.piece
        if asked.kind == OTHER and piece is not None and not self.sessions:
            self._bytes += len(piece.data)
        if isinstance(event, Finished):
            if asked.kind == OPEN and self._status == 200:
                session_id = self._id.decode("latin-1").strip()
                if session_id and event.whole:
                    self._join(session_id, opened=True, place=(asked.frame, asked.ts_ns))
            elif asked.session is not None and asked.answer is not None:
                asked.session.finish(ANSWERS, asked.answer)
                self._tunnels.touch(asked.session)
            self._answering = None
        elif self._status != 200 or piece is None:
            return
        elif asked.kind == OPEN:
            self._id = (self._id + piece.data)[:RTMPT_SESSION_ID_BYTES]
        elif asked.session is not None and asked.answer is not None:
            if not self._stripped:
                self._stripped = True
                piece = without_first_byte(piece)
            if piece is not None:
                asked.session.add(ANSWERS, asked.answer, piece)
                self._tunnels.touch(asked.session)

    def _unanswered(self, asked: Asked) -> None:
        if asked.session is not None and asked.answer is not None:
            if self._queue.unsure:
                asked.session.add(ANSWERS, asked.answer, missing_piece(UNKNOWN, asked.frame, asked.ts_ns))
            asked.session.finish(ANSWERS, asked.answer)
            self._tunnels.touch(asked.session)

    # -- notes --------------------------------------------------------------------------------------------------------

    def _note(self, code: ViolationCode, direction: int, detail: str, placed: Placed) -> None:
        if len(self._noted) < RTMPT_NOTES:
            self._noted.append(Noted(code, direction, detail, placed.frame or None, placed.ts_ns or None))

    def _note_skipped(self, direction: int, placed: Placed) -> None:
        assert isinstance(placed.event, Skipped)
        if not self._queue.unsure:
            what = "requests" if direction == self._requests else "responses"
            detail = f"{placed.event.length} bytes between the {what} are not HTTP and exceed the announced length"
            self._note(ViolationCode.RTMPT_HTTP_STATUS, direction, detail, placed)
