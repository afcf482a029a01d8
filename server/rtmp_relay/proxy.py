"""A TCP proxy in one process: records what passes as a pcap (`rtmp-spark tap`) and makes a network bad on purpose.

It looks at no byte it carries. Each direction is a bounded pump: when one side does not read, the other is not read
either.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from .tap import Observer

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16


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
    """One proxied connection."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.proxy = proxy
        self.number = number
        self.first_closed_by_client: bool | None = None
        self.reset = False

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_client: bool, weather: Weather
    ) -> None:
        passed = 0
        stalled = False
        try:
            while data := await reader.read(_READ_BYTES):
                arrived = time.monotonic()
                if weather.cut_after and passed + len(data) >= weather.cut_after:
                    data = data[: max(0, weather.cut_after - passed)]
                for observer in self.proxy.observers:
                    observer.data(self.number, from_client, data, time.time_ns())
                if weather.delay_s:
                    await asyncio.sleep(max(0.0, arrived + weather.delay_s - time.monotonic()))
                size = weather.piece_bytes or len(data)
                for start in range(0, len(data), size or 1):
                    piece = data[start : start + size]
                    writer.write(piece)
                    await writer.drain()
                    if weather.piece_bytes:
                        await asyncio.sleep(0)
                    if weather.bytes_per_s:
                        await asyncio.sleep(len(piece) / weather.bytes_per_s)
                passed += len(data)
                if weather.cut_after and passed >= weather.cut_after:
                    self.reset = True
                    return
                if weather.stall_after and passed >= weather.stall_after and not stalled:
                    stalled = True
                    await asyncio.sleep(weather.stall_s)
            if self.first_closed_by_client is None:
                self.first_closed_by_client = from_client
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            self.reset = True
            if self.first_closed_by_client is None:
                self.first_closed_by_client = from_client


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
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, *self._listen)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy stops
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        client = writer.get_extra_info("peername") or ("127.0.0.1", 0)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError as error:
            log.error("%s:%d cannot be reached: %s", *self._target, error.strerror or error)
            writer.transport.abort()
            return
        server = server_writer.get_extra_info("peername") or self._target
        for observer in self.observers:
            observer.opened(number, client[:2], server[:2], time.time_ns())
        link = _Link(self, number)
        pumps = [
            asyncio.create_task(link.carry(reader, server_writer, True, self._upstream)),
            asyncio.create_task(link.carry(server_reader, writer, False, self._downstream)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if not link.reset:
                await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, server_writer):
                if link.reset:
                    end.transport.abort()
                else:
                    end.close()
            by_client = link.first_closed_by_client is not False
            for observer in self.observers:
                observer.closed(number, by_client, link.reset, time.time_ns())
