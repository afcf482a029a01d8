"""RTMPT: the bytes of a connection in HTTP requests (POST /open/1, /send/ID/N, /idle/ID/N, /close/ID/N)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

_BODY_BYTES = 1 << 16  # in one request; HTTP servers limit it, nginx to 1 MiB
_FIRST_POLL_S, _LAST_POLL_S = 0.002, 0.064  # after a request; doubled while nothing arrives
_CLOSE_S = 1.0


class NotRtmpt(OSError):
    """The server does not speak RTMPT."""


class HttpError(OSError):
    """A response that is not 200, or not HTTP."""


class _Http:
    """One HTTP connection, opened again if the server closed it between two requests."""

    def __init__(self, connect: Connect, streams: Streams, host: str) -> None:
        self._connect = connect
        self._streams: Streams | None = streams
        self._host = host

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of the response. Raises OSError, or EOFError if the connection ended."""
        request = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Shockwave Flash\r\nConnection: Keep-Alive\r\n"
            f"Cache-Control: no-cache\r\nContent-Type: application/x-fcs\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        if self._streams is not None:
            try:
                return await self._exchange(self._streams, request)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.abort()
                if getattr(error, "partial", b""):
                    raise
        self._streams = await self._connect()
        return await self._exchange(self._streams, request)

    async def _exchange(self, streams: Streams, request: bytes) -> bytes:
        reader, writer = streams
        writer.write(request)
        await writer.drain()
        try:
            return await self._response(reader)
        except (ValueError, asyncio.LimitOverrunError):
            raise HttpError("something that is not an HTTP response") from None

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        status = "100"
        while status.startswith("1"):
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, _, status = first.partition(" ")
            if not version.startswith("HTTP/1."):
                raise ValueError
        fields = {name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(":") for x in lines)}
        length = fields.get("content-length", "")
        if "chunked" in fields.get("transfer-encoding", ""):
            body = await _chunked(reader)
        elif length:
            body = await reader.readexactly(int(length))
        else:
            body = await reader.read(-1)
            self.abort()
        if "close" in fields.get("connection", "close" if version == "HTTP/1.0" else ""):
            self.abort()
        if not status.startswith("200"):
            raise HttpError(status[:80].strip())
        return body

    def extra_info(self, name: str, default: Any) -> Any:
        return default if self._streams is None else self._streams[1].get_extra_info(name, default)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()

    def abort(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = None


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size == 0:
            break
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return body


class Tunnel(asyncio.Transport):
    """A transport for asyncio streams that carries bytes in requests.

    A write is a request of its own (or several, if it is long), so that scripts control how bytes are divided; `drain`
    waits for the responses. An empty write polls. Otherwise the tunnel polls by itself unless its reader is full. The
    polling interval in the first byte of a response is ignored, as in ffmpeg: its unit differs between servers.
    """

    def __init__(self, http: _Http, session_id: str, protocol: asyncio.StreamReaderProtocol) -> None:
        super().__init__()
        self._http = http
        self._session_id = session_id
        self._protocol = protocol
        self._unsent: deque[bytes] = deque()
        self._writing_paused = self._reading_paused = self._closing = False
        self._wake = asyncio.Event()
        protocol.connection_made(self)
        self._task = asyncio.ensure_future(self._carry())

    @classmethod
    async def open(cls, connect: Connect, host: str, timeout_s: float) -> Streams:
        """Open a session. Raises OSError or asyncio.TimeoutError if the server cannot be reached, or NotRtmpt."""
        http = _Http(connect, await connect(), host)
        try:
            answer = await asyncio.wait_for(http.post("/open/1", b"\0"), timeout_s)
            session_id = answer.decode("latin-1").strip()
            if not session_id or len(session_id) > 256 or not all("!" <= char <= "~" for char in session_id):
                raise HttpError("something that is not a session id")
        except HttpError as error:
            http.abort()
            raise NotRtmpt(f"it answered POST /open/1 with {error}") from None
        except asyncio.TimeoutError:
            http.abort()
            raise NotRtmpt("it did not answer POST /open/1") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            http.abort()
            raise NotRtmpt("it closed the connection after POST /open/1") from None
        except BaseException:
            http.abort()
            raise
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        tunnel = cls(http, session_id, protocol)
        return reader, asyncio.StreamWriter(tunnel, protocol, reader, asyncio.get_running_loop())

    async def _carry(self) -> None:
        number, wait_s = 0, _FIRST_POLL_S
        try:
            while True:
                data = self._unsent.popleft() if self._unsent else None
                kind = "send" if data else "close" if self._closing and data is None else "idle"
                answer = await self._http.post(f"/{kind}/{self._session_id}/{number}", data or b"\0")
                number += 1
                if kind == "close":
                    break
                if len(answer) > 1:
                    self._protocol.data_received(answer[1:])
                if self._unsent:
                    continue
                if self._writing_paused:
                    self._writing_paused = False
                    self._protocol.resume_writing()
                wait_s = _FIRST_POLL_S if data or len(answer) > 1 else min(wait_s * 2, _LAST_POLL_S)
                self._wake.clear()
                if not self._closing:
                    try:
                        await asyncio.wait_for(self._wake.wait(), None if self._reading_paused else wait_s)
                    except asyncio.TimeoutError:
                        pass
        except (OSError, EOFError, asyncio.TimeoutError):
            pass  # the server ended the session
        finally:
            self._closing = True
            self._http.close()
            self._protocol.connection_lost(None)

    # -- asyncio.Transport -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        for at in range(0, len(data) or 1, _BODY_BYTES):
            self._unsent.append(bytes(data[at : at + _BODY_BYTES]))
        if not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        self._wake.set()

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._wake.set()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is unsent, then end the session."""
        self._closing = True
        self._wake.set()
        asyncio.get_running_loop().call_later(_CLOSE_S, self._task.cancel)

    def abort(self) -> None:
        """Reset the connection without ending the session, as a crashed program does."""
        self._closing = True
        self._http.abort()
        self._task.cancel()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._http.extra_info(name, default)
