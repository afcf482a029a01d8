"""The RTMPT sessions of a recording: a session may use several TCP connections, and a connection several sessions.

The rows of a session belong to the connection on which it began, unless that one already had a session: then the
session gets rows of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rtmp_spark.capture.service import HTTP, RTMPT
from rtmp_spark.capture.tcp.connection_share import NotSeparable
from rtmp_spark.capture.tcp.stream_items import Item
from rtmp_spark.capture.unwrap.wrapping import Noted, WrappingFacts
from rtmp_spark.codec.limits import SILENT_NS

if TYPE_CHECKING:
    from rtmp_spark.capture.unwrap.rtmpt.rtmpt_session import RtmptSession, Sink


class Settling(Protocol):
    """A connection that carries sessions."""

    def settle(self) -> None:
        """All responses up to now were read."""


class SharedConnection:
    """The TCP connection of a session that was not the first one on it: it begins when the session begins."""

    def __init__(self, connection: Any, number: int, frame: int, ts_ns: int) -> None:
        self._connection = connection
        self.number = number
        self.frame_first = frame
        self.ts_first_ns = ts_ns
        self.tag: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def drop(self) -> None:
        """Do nothing: TCP cannot drop the bytes of one session only."""


class Tunnels:
    """The sessions of one recording, by server and id.

    `separate` returns the sink of a session that has rows of its own.
    """

    def __init__(self, separate: Callable[[SharedConnection], Sink] | None = None) -> None:
        self._separate = separate
        self._shared = 0
        self._sessions: dict[tuple[Any, str], RtmptSession] = {}
        self._changed: dict[int, RtmptSession] = {}
        self._asking: dict[int, Settling] = {}

    @property
    def any_sessions(self) -> bool:
        return bool(self._sessions)

    def find(self, server: Any, session_id: str, ts_ns: int) -> RtmptSession | None:
        """The session with this id at this time; one without requests for too long is over."""
        session = self._sessions.get((server, session_id))
        return None if session is not None and session.heard_ns + SILENT_NS < ts_ns else session

    def separate(self, connection: Any, frame: int, ts_ns: int) -> tuple[Any, Sink]:
        """The connection and the sink for a session on a connection that already had one."""
        self._shared += 1
        shared = SharedConnection(connection, -self._shared, frame, ts_ns)
        return shared, self._separate(shared) if self._separate is not None else _ignore

    def begin(self, server: Any, session: RtmptSession) -> None:
        self._sessions[(server, session.session_id)] = session

    def touch(self, session: RtmptSession) -> None:
        self._changed[id(session)] = session

    def heard(self, connection: Settling) -> None:
        """A connection had bytes in this window."""
        self._asking[id(connection)] = connection

    def settle(self) -> list[RtmptSession]:
        """Call it after each window: delivers the bodies that are in order, and returns the sessions that had any."""
        asking, self._asking = self._asking, {}
        for connection in asking.values():
            connection.settle()
        changed, self._changed = list(self._changed.values()), {}
        for session in changed:
            session.settle()
        return changed

    def leave(self, number: int) -> list[RtmptSession]:
        """A TCP connection is over: the sessions that no other connection continues."""
        over = []
        for key, session in list(self._sessions.items()):
            if number in session.members:
                session.members.discard(number)
                if not session.members:
                    over.append(session)
                    del self._sessions[key]
        return over

    def carried_on(self, connection: Any) -> int:
        """Until when sessions that began on this connection may continue on others; 0: there are none."""
        if not self._sessions:
            return 0
        began = (s for s in self._sessions.values() if s.connection is connection)
        heard = (s.heard_ns + SILENT_NS for s in began if s.members - {connection.number})
        return max(heard, default=0)


class NoTunnels(Tunnels):
    """For a process that sees only some connections: a session may use the others."""

    def begin(self, server: Any, session: RtmptSession) -> None:
        raise NotSeparable


def _ignore(item: Item) -> None:
    """Drop an item that no one wants."""


def session_facts(session: RtmptSession) -> WrappingFacts:
    return WrappingFacts(RTMPT, session.session_id, goodbye_ns=session.goodbye_ns)


class SessionWrapping:
    """The wrapping of a session with rows of its own; the connections that carry it feed it."""

    refusal = HTTP
    readable = True

    def __init__(self, session: RtmptSession) -> None:
        self.session = session
        self.client_randoms: list[bytes] = []
        self.carriers = session.carriers

    @property
    def held(self) -> list[tuple[int, int]]:
        return self.session.held

    @property
    def facts(self) -> WrappingFacts:
        return session_facts(self.session)

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
