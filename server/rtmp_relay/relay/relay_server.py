"""The relay's sockets: runs `ServerConnection` and `Hub` on asyncio, and feeds the tap and the recordings.

The relay listens on loopback by default and limits the memory and time that each client can use. It makes no protocol
decisions.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.tap.pcap_tap import Observer, Tap
from rtmp_relay.tap.unread_bytes import unread_bytes
from rtmp_spark.codec.limits import RELAY_CONNECTIONS

from .hub import DEFAULT_HUB, Hub, HubOptions
from .server_connection import DEFAULT_CONNECTION, ConnectionOptions, ServerConnection
from .stream_recordings import recorder_factory

log = logging.getLogger(__name__)

TICK_S = 0.5
LINGER_S = 2.0  # how long a client may take to read our last messages
SHUTDOWN_S = 3.0
_HIGH_WATER_BYTES = 1 << 16


@dataclass(frozen=True)
class RelayOptions:
    host: str = "127.0.0.1"
    port: int = 1935
    record: Path | None = None
    tap: Path | None = None
    tap_rotate_bytes: int | None = None
    max_connections: int = RELAY_CONNECTIONS
    hub: HubOptions = DEFAULT_HUB
    connection: ConnectionOptions = DEFAULT_CONNECTION
    new_fault: Callable[[], Fault] = field(default=lambda: NO_FAULT)
    tls: ssl.SSLContext | None = None
    send_buffer_bytes: int | None = None  # per client, in the kernel; a small one reveals slow readers sooner


class _AcceptedSocket(asyncio.Protocol):
    """The accepted socket of one client."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.connection: ServerConnection | None = None
        self.transport: asyncio.Transport | None = None
        self.can_write = True
        self.ended = False  # nothing more is written to it
        self.ended_at = 0.0
        self.client_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.connection = self.relay.accepted(self)

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.relay.received(self, self.connection, data)

    def eof_received(self) -> bool:
        self.client_closed = not self.ended
        return False

    def pause_writing(self) -> None:
        self.can_write = False
        if self.connection is not None:
            self.connection.blocked(self.relay.clock())

    def resume_writing(self) -> None:
        self.can_write = True
        self.relay.flush(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self.transport is not None and self.connection is not None:
            rest = unread_bytes(self.transport)
            if rest:
                self.can_write = False
                self.relay.received(self, self.connection, rest)
        self.relay.lost(self, reset=isinstance(exc, ConnectionResetError))


class Relay:
    """Call `start`, then `stop`. `port` is the actual port if the options asked for port 0."""

    def __init__(self, options: RelayOptions, observers: tuple[Observer, ...] = ()) -> None:
        self.options = options
        opener = recorder_factory(options.record) if options.record is not None else None
        self.hub = Hub(options.hub, opener)
        self.tap: Tap | None = None
        self.observers = observers
        self.clock: Callable[[], float] = time.monotonic
        self.port = options.port
        self._sockets: dict[int, _AcceptedSocket] = {}
        self._numbers = 0
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        tls = self.options.tls
        timeout_s = self.options.connection.handshake_s if tls is not None else None
        self._server = await loop.create_server(
            lambda: _AcceptedSocket(self),
            self.options.host,
            self.options.port,
            ssl=tls,
            ssl_handshake_timeout=timeout_s,
            backlog=512,
            start_serving=False,
        )
        if self.options.tap is not None:  # only after binding: another relay on this port may be writing the file
            self.tap = Tap(self.options.tap, self.options.tap_rotate_bytes)
            self.observers = (self.tap, *self.observers)
        if self.options.send_buffer_bytes is not None:
            for listening in self._server.sockets:  # accepted sockets inherit it
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.options.send_buffer_bytes)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ticker = asyncio.create_task(self._tick())
        await self._server.start_serving()

    async def stop(self) -> None:
        """Send Stream EOF and the shutdown status, close files and sockets; takes at most SHUTDOWN_S."""
        if self._server is not None:
            self._server.close()
        now = self.clock()
        self.hub.close(now)
        for client in list(self._sockets.values()):
            if client.connection is not None:
                client.connection.shut_down(now)
                self.flush(client)
        deadline = now + SHUTDOWN_S
        while self._sockets and self.clock() < deadline:
            await asyncio.sleep(0.05)
        for client in list(self._sockets.values()):
            if client.transport is not None:
                client.transport.abort()
        await asyncio.sleep(0)
        if self._ticker is not None:
            self._ticker.cancel()
        if self.tap is not None:
            self.tap.close()

    # -- called by the sockets -------------------------------------------------------------------------------

    def accepted(self, client: _AcceptedSocket) -> ServerConnection | None:
        assert client.transport is not None
        if len(self._sockets) >= self.options.max_connections:
            log.warning("connection refused: the limit of %d connections is reached", self.options.max_connections)
            client.transport.abort()
            return None
        self._numbers += 1
        number = self._numbers
        connection = ServerConnection(
            number, self.hub, self.options.connection, os.urandom, self.clock(), self.options.new_fault()
        )
        self._sockets[number] = client
        client_address = client.transport.get_extra_info("peername") or ("127.0.0.1", 0)
        server_address = client.transport.get_extra_info("sockname") or (self.options.host, self.port)
        for observer in self.observers:
            observer.opened(number, client_address[:2], server_address[:2], time.time_ns())
        log.info("connection %d from %s:%s", number, *client_address[:2])
        return connection

    def received(self, client: _AcceptedSocket, connection: ServerConnection, data: bytes) -> None:
        for observer in self.observers:
            observer.data(connection.number, True, data, time.time_ns())
        if client.ended:
            return
        try:
            connection.receive_data(data, self.clock())
        except Exception:  # a bug must close one connection, not the relay
            log.exception("internal error on connection %d", connection.number)
            connection.close_reason = "internal error"
        self.flush_all()

    def lost(self, client: _AcceptedSocket, reset: bool) -> None:
        connection, client.connection = client.connection, None
        if connection is None:
            return
        del self._sockets[connection.number]
        connection.lost(self.clock())
        by_client = client.client_closed or not client.ended
        for observer in self.observers:
            observer.closed(connection.number, by_client, reset, time.time_ns())
        log.info("connection %d closed: %s", connection.number, connection.close_reason or "by the client")
        self.flush_all()

    # -- writing ---------------------------------------------------------------------------------------------

    def flush_all(self) -> None:
        """Write what waits for any client: bytes of one client can cause messages for all others."""
        for client in list(self._sockets.values()):
            if client.connection is not None and (len(client.connection.queue) or client.connection.close_reason):
                self.flush(client)

    def flush(self, client: _AcceptedSocket) -> None:
        connection, transport = client.connection, client.transport
        if connection is None or transport is None or client.ended:
            return
        now = self.clock()
        while client.can_write:
            data = connection.data_to_send(now)
            if not data:
                break
            for observer in self.observers:
                observer.data(connection.number, False, data, time.time_ns())
            transport.write(data)
        if connection.close_reason is not None:
            self._finish(client, connection, transport, now)

    def _finish(
        self, client: _AcceptedSocket, connection: ServerConnection, transport: asyncio.Transport, now: float
    ) -> None:
        """Send what waits, then FIN. Input is still read and dropped, because unread input would cause a reset."""
        if client.ended_at == 0.0:
            client.ended_at = now
            log.info("closing connection %d: %s", connection.number, connection.close_reason)
        if len(connection.queue):
            return
        client.ended = True
        if transport.can_write_eof() and not client.client_closed:
            try:
                transport.write_eof()
            except OSError:
                transport.abort()
        else:
            transport.close()

    # -- time ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock()
            self.hub.tick(now)
            for client in list(self._sockets.values()):
                if client.connection is not None:
                    client.connection.tick(now)
                    self.flush(client)
                if client.ended_at and now - client.ended_at >= LINGER_S and client.transport is not None:
                    client.transport.abort()
            if self.tap is not None:
                self.tap.flush()
