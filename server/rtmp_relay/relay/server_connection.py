"""One client's connection to the relay, without I/O: endpoint, session and send queue together, with every timer.

The owner of the socket passes in bytes and times, writes what `data_to_send` returns while the socket accepts it, and
closes the socket when `close_reason` is set and the queue is empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rtmp_relay.endpoint import DEFAULT_WINDOW, Endpoint
from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_spark.codec.errors import Severity
from rtmp_spark.codec.handshake import SERVER

from .hub import Hub
from .send_queue import SendQueue
from .server_session import ServerSession
from .server_streams import DEFAULT_SESSION, SessionOptions

log = logging.getLogger(__name__)

WRITE_BYTES = 1 << 16


class State(Enum):
    HANDSHAKING = "handshaking"
    COMMANDS = "commands"
    STREAMING = "streaming"
    DISCONNECTING = "disconnecting"
    CLOSED = "closed"


@dataclass(frozen=True)
class ConnectionOptions:
    chunk_size: int = 4096
    window: int = DEFAULT_WINDOW
    bandwidth: int = DEFAULT_WINDOW
    handshake_s: float = 5.0  # from accept to the end of the handshake
    command_s: float = 20.0  # from accept to connect
    idle_s: float = 30.0  # without a byte from the client or a frame sent to it
    stall_s: float = 10.0  # with a full socket, because the client does not read
    ping_s: float = 10.0  # without a byte from the client before it is pinged
    session: SessionOptions = DEFAULT_SESSION


DEFAULT_CONNECTION = ConnectionOptions()


class ServerConnection:
    def __init__(
        self,
        number: int,
        hub: Hub,
        options: ConnectionOptions,
        entropy: Callable[[int], bytes],
        now: float,
        fault: Fault = NO_FAULT,
    ) -> None:
        self.number = number
        self.queue = SendQueue()
        self.endpoint = Endpoint(SERVER, self.queue.put, entropy, fault=fault)
        self.session = ServerSession(
            hub, self.endpoint.send, self.queue, options.chunk_size, options.session, self._announce_parameters
        )
        self.close_reason: str | None = None
        self.state = State.HANDSHAKING
        self._options = options
        self._started = now
        self._last_active = now
        self._last_ping = now
        self._last_received = now
        self._blocked_since: float | None = None
        self._media_taken = 0

    # -- called by the owner of the socket -------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        if self.close_reason is not None:
            return
        self._last_active = self._last_received = now
        messages = self.endpoint.receive_data(data, self._ms(now))
        if self.state is State.HANDSHAKING and self.endpoint.handshake_done:
            self.state = State.COMMANDS
        for message in messages:
            self.session.receive(message, now)
            if self.session.close_reason is not None:
                break
        for violation in self.endpoint.violations:
            level = logging.WARNING if violation.severity is Severity.ERROR else logging.DEBUG
            log.log(level, "connection %d: %s: %s", self.number, violation.code.value, violation.detail)
        if self.state is State.COMMANDS and self.session.active:
            self.state = State.STREAMING
        elif self.state is State.STREAMING and not self.session.active:
            self.state = State.COMMANDS
        self._check_close_reasons(now)

    def data_to_send(self, now: float) -> bytes:
        """Return the next bytes for the socket, or empty if nothing waits."""
        data = self.queue.take(WRITE_BYTES)
        if not data:
            self._blocked_since = None
        if self.queue.media_taken != self._media_taken:
            self._media_taken = self.queue.media_taken
            self._last_active = now
        return data

    def blocked(self, now: float) -> None:
        """The socket accepts no more data for now."""
        if self._blocked_since is None:
            self._blocked_since = now

    def lost(self, now: float) -> None:
        """The socket was closed."""
        self.session.close(now)
        self.state = State.CLOSED

    def tick(self, now: float) -> None:
        """Check the timers; to be called about once a second."""
        options = self._options
        if self.close_reason is not None:
            return
        if self.state is State.HANDSHAKING and now - self._started >= options.handshake_s:
            self._close("handshake timeout", now)
        elif self.session.app is None and now - self._started >= options.command_s:
            self._close("connect timeout", now)
        elif now - self._last_active >= options.idle_s:
            self._close("idle", now)
        elif self._blocked_since is not None and now - self._blocked_since >= options.stall_s:
            self._close("the client reads too slowly", now)
        elif self.session.app is not None and now - self._last_heard_or_pinged() >= options.ping_s:
            self._last_ping = now
            self.endpoint.ping(self._ms(now))
        self._check_close_reasons(now)

    def shut_down(self, now: float) -> None:
        if self.close_reason is None:
            if self.endpoint.handshake_done:
                self.session.shut_down()
            self._close("shutting down", now)

    # -- inside ----------------------------------------------------------------------------------------------

    def _last_heard_or_pinged(self) -> float:
        """Return when the client last sent something or was last pinged.

        A client that sends is not pinged: if FFmpeg closes its socket with an unread ping, its kernel resets the
        connection and discards the last frames.
        """
        return max(self._last_ping, self._last_received)

    def _ms(self, now: float) -> int:
        return int((now - self._started) * 1000) & 0xFFFFFFFF

    def _announce_parameters(self) -> None:
        """Called after connect, not before: RTMP 1.0 7.2.1.1, and lal crashes on earlier messages."""
        self.endpoint.announce_window(self._options.window)
        self.endpoint.announce_bandwidth(self._options.bandwidth)
        self.endpoint.announce_chunk_size(self._options.chunk_size)

    def _check_close_reasons(self, now: float) -> None:
        if self.queue.overflowed:
            self._close("the send queue is full", now)
        reason = self.endpoint.failure or self.session.close_reason
        if reason is not None:
            self._close(reason, now)

    def _close(self, reason: str, now: float) -> None:
        if self.close_reason is None:
            self.close_reason = reason
            self.state = State.DISCONNECTING
            self.session.close(now)
