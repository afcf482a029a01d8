"""A TCP, TLS or RTMPT connection of a case: bytes in, bytes out, with a deadline for every wait.

Nothing here knows RTMP. A read that waits too long raises `Silence`; `session` decides what the silence means.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

from rtmp_relay.rtmp_url import endpoint

from .outcome import Closed, Slow
from .rtmpt import Streams, Tunnel
from .transcript import Transcript

_READ_BYTES = 1 << 16
_SINGLE_BYTES = 60
_SLOW_S = 2.0


async def _never(_seconds: float) -> bool:
    return False


class Silence(Exception):
    """Nothing arrived before the deadline. `arrives(seconds)` waits longer and says whether it arrives after all."""

    def __init__(self, text: str, arrives: Callable[[float], Awaitable[bool]] = _never) -> None:
        super().__init__(text)
        self.arrives = arrives


@dataclass(frozen=True)
class Target:
    """The server under test."""

    host: str
    port: int
    app: str
    tc_url: str
    tls: ssl.SSLContext | None = None
    timeout_s: float = 5.0  # for one answer
    name_prefix: str = "probe"  # of stream names
    query: str = ""  # appended to stream names; it may hold a key
    publish_key: str = ""
    rtmpt: bool = False  # inside HTTP
    learned: dict[str, bool] = field(default_factory=dict, compare=False)  # how this server behaves; see `session`

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that are not shown."""
        return self.publish_key, *(part.partition("=")[2] for part in self.query.split("&"))


class Wire:
    """One socket. `arrived` holds received bytes that were not read yet."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float,
        transcript: Transcript,
        from_client: bool = True,
    ) -> None:
        """`from_client`: this side is the client."""
        self.arrived = bytearray()
        self.closed = False
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._transcript = transcript
        self._from_client = from_client
        ends = [writer.get_extra_info(end) or ("127.0.0.1", 0) for end in ("sockname", "peername")]
        client, server = ends if from_client else reversed(ends)
        self._tap = transcript.new_connection(client[:2], server[:2])

    @classmethod
    async def open(cls, target: Target, transcript: Transcript) -> Wire:
        """Connect. Raises OSError or asyncio.TimeoutError."""
        name = target.host if target.tls is not None else None

        async def connect() -> Streams:
            opening = asyncio.open_connection(target.host, target.port, ssl=target.tls, server_hostname=name)
            return await asyncio.wait_for(opening, target.timeout_s)

        host = endpoint(target.host, target.port)
        reader, writer = await (Tunnel.open(connect, host, target.timeout_s) if target.rtmpt else connect())
        return cls(reader, writer, target.timeout_s, transcript)

    async def send(self, data: bytes, note: str = "") -> None:
        """Send bytes. A connection that the server has closed swallows them; reading reports it."""
        if note:
            self._transcript.note(True, note)
        if not data or self.closed or self._writer.is_closing():
            return
        self._tap.data(self._from_client, data, time.time_ns())
        try:
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), self._timeout_s)
        except asyncio.TimeoutError:
            raise Silence("the server does not read", self._drains) from None
        except OSError:
            pass

    async def _drains(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._writer.drain(), seconds)
        except (OSError, asyncio.TimeoutError):
            return False
        return True

    async def send_slowly(self, data: bytes, note: str) -> None:
        """Send the first and last bytes one by one, and what is between them in small writes. Raises Slow."""
        self._transcript.note(True, f"{note} in writes of one and of 97 bytes")
        started = time.monotonic()
        ends = min(_SINGLE_BYTES, len(data) // 2)
        cuts = [*range(ends), *range(ends, len(data) - ends, 97), *range(len(data) - ends, len(data) + 1)]
        for at, end in pairwise(cuts):
            await self.send(data[at:end])
            await asyncio.sleep(0)
        if time.monotonic() - started > _SLOW_S:
            raise Slow("sending took so long that the server may have lost patience")

    async def receive(self, timeout_s: float | None = None) -> bytes:
        """Wait for more bytes and return them; empty if the server closed the connection. Raises Silence."""
        if self.closed:
            return b""
        try:
            data = await asyncio.wait_for(self._reader.read(_READ_BYTES), timeout_s or self._timeout_s)
        except asyncio.TimeoutError:
            raise Silence("nothing arrived", self._arrives) from None
        except OSError:
            data = b""
        if data:
            self._tap.data(not self._from_client, data, time.time_ns())
        else:
            self.closed = True
            self._transcript.note(False, "end of the connection")
        return data

    async def _arrives(self, seconds: float) -> bool:
        try:
            return bool(await self.receive(seconds))
        except Silence:
            return False

    async def read(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises Closed or Silence."""
        while len(self.arrived) < count:
            data = await self.receive()
            if not data:
                raise Closed(f"the server closed the connection after {len(self.arrived)} of {count} bytes")
            self.arrived += data
        data = bytes(self.arrived[:count])
        del self.arrived[:count]
        return data

    async def take_arrived(self) -> bytes:
        """Return what has arrived by now, without waiting."""
        if isinstance(self._writer.transport, Tunnel):
            await self._poll()
        while True:
            try:
                data = await self.receive(0.01)
            except Silence:
                break
            if not data:
                break
            self.arrived += data
        data = bytes(self.arrived)
        self.arrived.clear()
        return data

    async def _poll(self) -> None:
        self._writer.write(b"")
        try:
            await asyncio.wait_for(self._writer.drain(), self._timeout_s)
        except (OSError, asyncio.TimeoutError):
            pass

    def half_close(self) -> bool:
        """Send FIN and keep reading. Returns False inside TLS and HTTP, which cannot do that."""
        if self.closed or not self._writer.can_write_eof():
            return False
        self._transcript.note(True, "FIN")
        self._writer.write_eof()
        return True

    def abort(self) -> None:
        """Reset the connection, as a crashed program does."""
        self._transcript.note(True, "RST")
        self._tap.close(True, time.time_ns(), reset=True)
        self.closed = True
        self._writer.transport.abort()

    async def close(self) -> None:
        self._tap.close(self._from_client is not self.closed, time.time_ns())
        self.closed = True
        self._writer.close()
        flushed = asyncio.ensure_future(self._writer.wait_closed())
        done, _ = await asyncio.wait((flushed,), timeout=1.0)  # it does not raise what `wait_closed` raises
        if not done:
            flushed.cancel()
        elif not flushed.cancelled():
            flushed.exception()
