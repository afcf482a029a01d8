"""One client's connection to the relay, sans I/O: endpoint, session and outbox together, with every timer.

Whoever owns the socket gives it bytes and times, takes bytes from `data_to_send` while the socket accepts them, and
closes the socket when `close_reason` is set and nothing more is to be sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rtmp_spark.codec.errors import Severity
from rtmp_spark.codec.handshake import SERVER

from .endpoint import DEFAULT_WINDOW, Endpoint
from .fault import NO_FAULT, Fault
from .hub import Hub
from .outbox import Outbox
from .session import DEFAULT_SESSION, Session, SessionOptions

log = logging.getLogger(__name__)

WRITE_BYTES = 1 << 16


class State(Enum):
    HANDSHAKING = "handshaking"
    CONTROL_BURST = "control burst"
    COMMANDS = "commands"
    STREAMING = "streaming"
    DISCONNECTING = "disconnecting"
    CLOSED = "closed"


@dataclass(frozen=True)
class ConnectionOptions:
    chunk_size: int = 4096
    window: int = DEFAULT_WINDOW
    bandwidth: int = DEFAULT_WINDOW
    handshake_s: float = 5.0  # from accept
    command_s: float = 20.0  # from accept to connect
    idle_s: float = 30.0  # without a byte from the client, or a frame that a player took
    stall_s: float = 10.0  # behind with reading
    ping_s: float = 10.0  # without a word from the client, before it is pinged
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
        self.outbox = Outbox()
        self.endpoint = Endpoint(SERVER, self.outbox.put, entropy, fault=fault)
        self.session = Session(hub, self.endpoint.send, self.outbox, options.chunk_size, options.session)
        self.close_reason: str | None = None
        self.state = State.HANDSHAKING
        self._options = options
        self._started = now
        self._last_active = now
        self._last_ping = now
        self._last_received = now
        self._behind_since: float | None = None
        self._media_taken = 0

    # -- the socket's side -----------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        if self.close_reason is not None:
            return
        self._last_active = self._last_received = now
        messages = self.endpoint.receive_data(data, self._ms(now))
        if self.state is State.HANDSHAKING and self.endpoint.handshake_done:
            self._control_burst()
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
        self._look_for_reasons(now)

    def data_to_send(self, now: float) -> bytes:
        """The next bytes for the socket; empty when there is nothing to say."""
        data = self.outbox.take(WRITE_BYTES)
        if not data:
            self._behind_since = None
        if self.outbox.media_taken != self._media_taken:
            self._media_taken = self.outbox.media_taken
            self._last_active = now
        return data

    def blocked(self, now: float) -> None:
        """The socket takes no more for now."""
        if self._behind_since is None:
            self._behind_since = now

    def lost(self, now: float) -> None:
        """The socket is closed."""
        self.session.close(now)
        self.state = State.CLOSED

    def tick(self, now: float) -> None:
        """Look at the clock; about every second."""
        options = self._options
        if self.close_reason is not None:
            return
        if self.state is State.HANDSHAKING and now - self._started >= options.handshake_s:
            self._close("no handshake in time", now)
        elif self.session.app is None and now - self._started >= options.command_s:
            self._close("no connect in time", now)
        elif now - self._last_active >= options.idle_s:
            self._close("idle", now)
        elif self._behind_since is not None and now - self._behind_since >= options.stall_s:
            self._close("reads too slowly", now)
        elif self.session.app is not None and now - self._last_word() >= options.ping_s:
            self._last_ping = now
            self.endpoint.ping(self._ms(now))
        self._look_for_reasons(now)

    def shut_down(self, now: float) -> None:
        if self.close_reason is None:
            if self.endpoint.handshake_done:
                self.session.shut_down()
            self._close("shutting down", now)

    # -- inside ----------------------------------------------------------------------------------------------

    def _last_word(self) -> float:
        """When the client last said something, or was last asked to.

        Who talks is not asked: a ping that FFmpeg finds unread when it closes makes its kernel throw away what it
        was still to send, the last frames.
        """
        return max(self._last_ping, self._last_received)

    def _ms(self, now: float) -> int:
        return int((now - self._started) * 1000) & 0xFFFFFFFF

    def _control_burst(self) -> None:
        self.state = State.CONTROL_BURST
        self.endpoint.announce_window(self._options.window)
        self.endpoint.announce_bandwidth(self._options.bandwidth)
        self.endpoint.announce_chunk_size(self._options.chunk_size)
        self.state = State.COMMANDS

    def _look_for_reasons(self, now: float) -> None:
        if self.outbox.overflowed:
            self._close("too much waits to be sent", now)
        reason = self.endpoint.failure or self.session.close_reason
        if reason is not None:
            self._close(reason, now)

    def _close(self, reason: str, now: float) -> None:
        if self.close_reason is None:
            self.close_reason = reason
            self.state = State.DISCONNECTING
            self.session.close(now)
