"""A TCP proxy in one process: records what passes as a pcap (`rtmp-spark tap`) and makes a network bad on purpose.

It looks at no byte it carries. Each direction is a bounded pump: when one side does not read, the other is not read
either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Coroutine
from dataclasses import dataclass

from .tap import Observer
from .url import endpoint, why

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
_GOODBYE_S = 10.0


@dataclass(frozen=True)
class Weather:
    """What the network does to each direction of each connection; nothing by default."""

    delay_s: float = 0.0
    piece_bytes: int = 0  # forward in writes of this many bytes
    bytes_per_s: float = 0.0
    stall_after: int = 0  # stop for `stall_s` once this many bytes have passed
    stall_s: float = 0.0
    cut_after: int = 0  # reset the connection once this many bytes have passed


FAIR = Weather()


class _Link:
    """One proxied connection. Reading and writing fail apart: what a side sent before it hung up is still carried."""

    def __init__(self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.number = number
        self.client = client
        self.server = server
        self.first_closed_by_client: bool | None = None
        self.reset = False
        self.cut = False

    async def carry(self, from_client: bool, weather: Weather) -> None:
        loop = asyncio.get_running_loop()
        source, target = (self.client, self.server) if from_client else (self.server, self.client)
        passed = 0
        stalled = False
        deaf = False  # the target takes no more
        while True:
            try:
                data = await loop.sock_recv(source, _READ_BYTES)
            except OSError:
                self.reset = True
                data = b""
            if not data:
                break
            arrived = time.monotonic()
            if weather.cut_after and passed + len(data) >= weather.cut_after:
                data = data[: max(0, weather.cut_after - passed)]
            for observer in self.proxy.observers:
                observer.data(self.number, from_client, data, time.time_ns())
            if weather.delay_s:
                await asyncio.sleep(max(0.0, arrived + weather.delay_s - time.monotonic()))
            if not deaf:
                deaf = not await self._forward(target, data, weather)
            passed += len(data)
            if weather.cut_after and passed >= weather.cut_after:
                self.cut = self.reset = True
                return
            if weather.stall_after and passed >= weather.stall_after and not stalled:
                stalled = True
                await asyncio.sleep(weather.stall_s)
        if self.first_closed_by_client is None:
            self.first_closed_by_client = from_client
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @staticmethod
    async def _forward(target: socket.socket, data: bytes, weather: Weather) -> bool:
        loop = asyncio.get_running_loop()
        size = weather.piece_bytes or len(data)
        for start in range(0, len(data), size or 1):
            piece = data[start : start + size]
            try:
                await loop.sock_sendall(target, piece)
            except OSError:
                return False
            if weather.piece_bytes:
                await asyncio.sleep(0)
            if weather.bytes_per_s:
                await asyncio.sleep(len(piece) / weather.bytes_per_s)
        return True


class Proxy:
    """`start`, then `stop`; `port` is the one it got when 0 was asked for."""

    def __init__(
        self,
        listen: tuple[str, int],
        target: tuple[str, int],
        observers: tuple[Observer, ...] = (),
        upstream: Weather = FAIR,
        downstream: Weather = FAIR,
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
        self._keep(self._accept(self._socket))

    def _keep(self, work: Coroutine[object, object, None]) -> None:
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
                log.error("cannot accept: %s", error.strerror or error)
                await asyncio.sleep(0.5)
                continue
            client.setblocking(False)
            self._keep(self._carry(client, address))

    async def _carry(self, client: socket.socket, address: tuple[str, int]) -> None:
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
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, number, client, server)
            for observer in self.observers:
                observer.opened(number, address[:2], server.getpeername()[:2], time.time_ns())
            pumps = [
                asyncio.ensure_future(link.carry(True, self._upstream)),
                asyncio.ensure_future(link.carry(False, self._downstream)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                if not link.cut:
                    # A side that said goodbye may still be told something, but not for ever.
                    await asyncio.wait(pumps, timeout=_GOODBYE_S)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                if link.cut:
                    for one in (client, server):  # close() shall reset, not say goodbye
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                by_client = link.first_closed_by_client is not False
                for observer in self.observers:
                    observer.closed(number, by_client, link.reset, time.time_ns())
