"""The relay's sockets: asyncio around `ServerConnection` and `Hub`, the tap, the record, the signals.

It listens on loopback unless told otherwise, bounds what every peer can make it hold or wait for, and outlives all
of them. Protocol decisions are made elsewhere.
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

from .connection import DEFAULT_CONNECTION, ConnectionOptions, ServerConnection
from .fault import NO_FAULT, Fault
from .hub import DEFAULT_HUB, Hub, HubOptions
from .recorder import recorder_factory
from .tap import Observer, Tap
from .wire import unread_bytes

log = logging.getLogger(__name__)

TICK_S = 0.5
LINGER_S = 2.0  # how long a peer may take to read our last words
SHUTDOWN_S = 3.0
_HIGH_WATER = 1 << 16


@dataclass(frozen=True)
class RelayOptions:
    host: str = "127.0.0.1"
    port: int = 1935
    record: Path | None = None
    tap: Path | None = None
    tap_rotate_bytes: int | None = None
    max_connections: int = 1000
    hub: HubOptions = DEFAULT_HUB
    connection: ConnectionOptions = DEFAULT_CONNECTION
    new_fault: Callable[[], Fault] = field(default=lambda: NO_FAULT)
    tls: ssl.SSLContext | None = None
    send_buffer_bytes: int | None = None  # of the kernel, per peer; a small one shows sooner who reads slowly


class _Wire(asyncio.Protocol):
    """One accepted socket."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.connection: ServerConnection | None = None
        self.transport: asyncio.Transport | None = None
        self.can_write = True
        self.ended = False  # nothing more is written
        self.ended_at = 0.0
        self.client_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.connection = self.relay.accepted(self)

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.relay.received(self, self.connection, data)

    def eof_received(self) -> bool:
        self.client_closed = not self.ended  # who said goodbye first
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
    """`start`, then `stop`; `port` is the one it got when 0 was asked for."""

    def __init__(self, options: RelayOptions, observers: tuple[Observer, ...] = ()) -> None:
        self.options = options
        opener = recorder_factory(options.record) if options.record is not None else None
        self.hub = Hub(options.hub, opener)
        self.tap: Tap | None = None
        self.observers = observers
        self.clock: Callable[[], float] = time.monotonic
        self.port = options.port
        self._wires: dict[int, _Wire] = {}
        self._numbers = 0
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        tls = self.options.tls
        patience = self.options.connection.handshake_s if tls is not None else None
        self._server = await loop.create_server(
            lambda: _Wire(self),
            self.options.host,
            self.options.port,
            ssl=tls,
            ssl_handshake_timeout=patience,
            backlog=512,
            start_serving=False,
        )
        if self.options.tap is not None:  # not before the port is ours: another relay may be writing this file
            self.tap = Tap(self.options.tap, self.options.tap_rotate_bytes)
            self.observers = (self.tap, *self.observers)
        if self.options.send_buffer_bytes is not None:
            for listening in self._server.sockets:  # accepted ones inherit it
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.options.send_buffer_bytes)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ticker = asyncio.create_task(self._tick())
        await self._server.start_serving()

    async def stop(self) -> None:
        """Players get Stream EOF, clients a last word, files are closed; never longer than SHUTDOWN_S."""
        if self._server is not None:
            self._server.close()
        now = self.clock()
        self.hub.close(now)
        for wire in list(self._wires.values()):
            if wire.connection is not None:
                wire.connection.shut_down(now)
                self.flush(wire)
        deadline = now + SHUTDOWN_S
        while self._wires and self.clock() < deadline:
            await asyncio.sleep(0.05)
        for wire in list(self._wires.values()):
            if wire.transport is not None:
                wire.transport.abort()
        await asyncio.sleep(0)
        if self._ticker is not None:
            self._ticker.cancel()
        if self.tap is not None:
            self.tap.close()

    # -- what the sockets report -----------------------------------------------------------------------------

    def accepted(self, wire: _Wire) -> ServerConnection | None:
        assert wire.transport is not None
        if len(self._wires) >= self.options.max_connections:
            log.warning("a connection is turned away: there are %d", len(self._wires))
            wire.transport.abort()
            return None
        self._numbers += 1
        number = self._numbers
        connection = ServerConnection(
            number, self.hub, self.options.connection, os.urandom, self.clock(), self.options.new_fault()
        )
        self._wires[number] = wire
        client = wire.transport.get_extra_info("peername") or ("127.0.0.1", 0)
        server = wire.transport.get_extra_info("sockname") or (self.options.host, self.port)
        for observer in self.observers:
            observer.opened(number, client[:2], server[:2], time.time_ns())
        log.info("connection %d from %s:%s", number, *client[:2])
        return connection

    def received(self, wire: _Wire, connection: ServerConnection, data: bytes) -> None:
        for observer in self.observers:
            observer.data(connection.number, True, data, time.time_ns())
        if wire.ended:
            return
        try:
            connection.receive_data(data, self.clock())
        except Exception:  # the last wall: a mistake of ours costs one connection, not the relay
            log.exception("connection %d", connection.number)
            connection.close_reason = "internal error"
        self.flush_all()

    def lost(self, wire: _Wire, reset: bool) -> None:
        connection, wire.connection = wire.connection, None
        if connection is None:
            return
        del self._wires[connection.number]
        connection.lost(self.clock())
        by_client = wire.client_closed or not wire.ended
        for observer in self.observers:
            observer.closed(connection.number, by_client, reset, time.time_ns())
        log.info("connection %d closed: %s", connection.number, connection.close_reason or "by the client")
        self.flush_all()

    # -- writing ---------------------------------------------------------------------------------------------

    def flush_all(self) -> None:
        """Whatever one connection's bytes caused for any other goes out now, each in one write."""
        for wire in list(self._wires.values()):
            if wire.connection is not None and (len(wire.connection.outbox) or wire.connection.close_reason):
                self.flush(wire)

    def flush(self, wire: _Wire) -> None:
        connection, transport = wire.connection, wire.transport
        if connection is None or transport is None or wire.ended:
            return
        now = self.clock()
        while wire.can_write:
            data = connection.data_to_send(now)
            if not data:
                break
            for observer in self.observers:
                observer.data(connection.number, False, data, time.time_ns())
            transport.write(data)
        if connection.close_reason is not None:
            self._finish(wire, connection, transport, now)

    def _finish(self, wire: _Wire, connection: ServerConnection, transport: asyncio.Transport, now: float) -> None:
        """Our last words first, then FIN; what the peer still sends is read and dropped, so that it can hear them."""
        if wire.ended_at == 0.0:
            wire.ended_at = now
            log.info("connection %d is closed: %s", connection.number, connection.close_reason)
        if len(connection.outbox):
            return
        wire.ended = True
        if transport.can_write_eof() and not wire.client_closed:
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
            for wire in list(self._wires.values()):
                if wire.connection is not None:
                    wire.connection.tick(now)
                    self.flush(wire)
                if wire.ended_at and now - wire.ended_at >= LINGER_S and wire.transport is not None:
                    wire.transport.abort()
            if self.tap is not None:
                self.tap.flush()
