"""A TCP proxy that writes the traffic to a pcap (`rtmp-spark tap`) and can simulate a bad network.

It does not interpret the bytes. Each direction holds at most one read: while one side does not read, the proxy does not
read from the other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Coroutine
from dataclasses import dataclass

from rtmp_relay.rtmp_url import endpoint, why

from .pcap_tap import Observer

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
_HALF_CLOSED_S = 10.0


@dataclass(frozen=True)
class NetworkConditions:
    """How the simulated network treats one direction of each connection; by default it forwards at once."""

    delay_s: float = 0.0
    piece_bytes: int = 0  # forward in writes of this many bytes
    bytes_per_s: float = 0.0
    stall_after: int = 0  # pause for `stall_s` once this many bytes have passed
    stall_s: float = 0.0
    cut_after: int = 0  # reset the connection once this many bytes have passed


PERFECT = NetworkConditions()


class _ProxiedConnection:
    """One proxied connection. What a side sent before it closed is forwarded even if the other side fails."""

    def __init__(self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.number = number
        self.client = client
        self.server = server
        self.first_closed_by_client: bool | None = None
        self.reset = False
        self.cut = False

    async def forward(self, from_client: bool, network: NetworkConditions) -> None:
        loop = asyncio.get_running_loop()
        source, target = (self.client, self.server) if from_client else (self.server, self.client)
        passed = 0
        stalled = False
        target_closed = False
        while True:
            try:
                data = await loop.sock_recv(source, _READ_BYTES)
            except OSError:
                self.reset = True
                data = b""
            if not data:
                break
            arrived = time.monotonic()
            if network.cut_after and passed + len(data) >= network.cut_after:
                data = data[: max(0, network.cut_after - passed)]
            for observer in self.proxy.observers:
                observer.data(self.number, from_client, data, time.time_ns())
            if network.delay_s:
                await asyncio.sleep(max(0.0, arrived + network.delay_s - time.monotonic()))
            if not target_closed:
                target_closed = not await self._write(target, data, network)
            passed += len(data)
            if network.cut_after and passed >= network.cut_after:
                self.cut = self.reset = True
                return
            if network.stall_after and passed >= network.stall_after and not stalled:
                stalled = True
                await asyncio.sleep(network.stall_s)
        if self.first_closed_by_client is None:
            self.first_closed_by_client = from_client
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @staticmethod
    async def _write(target: socket.socket, data: bytes, network: NetworkConditions) -> bool:
        loop = asyncio.get_running_loop()
        size = network.piece_bytes or len(data)
        for start in range(0, len(data), size or 1):
            piece = data[start : start + size]
            try:
                await loop.sock_sendall(target, piece)
            except OSError:
                return False
            if network.piece_bytes:
                await asyncio.sleep(0)
            if network.bytes_per_s:
                await asyncio.sleep(len(piece) / network.bytes_per_s)
        return True


class Proxy:
    """Call `start`, then `stop`. `port` is the actual port if `listen` asked for port 0."""

    def __init__(
        self,
        listen: tuple[str, int],
        target: tuple[str, int],
        observers: tuple[Observer, ...] = (),
        upstream: NetworkConditions = PERFECT,
        downstream: NetworkConditions = PERFECT,
    ) -> None:
        self.port = listen[1]
        self.observers = observers
        self.connections = 0
        self._listen = listen
        self._target = target
        self._upstream = upstream
        self._downstream = downstream
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        family = socket.AF_INET6 if ":" in self._listen[0] else socket.AF_INET
        self._socket = socket.create_server(self._listen, family=family, backlog=512)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._run(self._accept(self._socket))

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError as error:
                log.error("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(0.5)
                continue
            client.setblocking(False)
            self._run(self._serve(client, address))

    async def _serve(self, client: socket.socket, address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        self.connections += 1
        number = self.connections
        server = socket.socket(socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET)
        server.setblocking(False)
        with client, server:
            try:
                await loop.sock_connect(server, self._target)
            except OSError as error:
                log.error("%s cannot be reached: %s", endpoint(*self._target), why(error))
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _ProxiedConnection(self, number, client, server)
            for observer in self.observers:
                observer.opened(number, address[:2], server.getpeername()[:2], time.time_ns())
            forwarders = [
                asyncio.ensure_future(link.forward(True, self._upstream)),
                asyncio.ensure_future(link.forward(False, self._downstream)),
            ]
            try:
                await asyncio.wait(forwarders, return_when=asyncio.FIRST_COMPLETED)
                if not link.cut:
                    # The side that sent FIN may still receive data, for a limited time.
                    await asyncio.wait(forwarders, timeout=_HALF_CLOSED_S)
            finally:
                for forwarder in forwarders:
                    forwarder.cancel()
                await asyncio.gather(*forwarders, return_exceptions=True)
                if link.cut:
                    for end in (client, server):  # so that close() sends RST instead of FIN
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                by_client = link.first_closed_by_client is not False
                for observer in self.observers:
                    observer.closed(number, by_client, link.reset, time.time_ns())
