"""An RTMPT server for tests: an HTTP server that opens one TCP connection to an RTMP server per session."""

from __future__ import annotations

import asyncio
import itertools
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_REQUEST = re.compile(
    rb"POST /(open|send|idle|close)/(\w+)(?:/\d+)? HTTP/1\.1\r\n.*content-length: *(\d+)", re.I | re.S
)
_WAIT_S = 0.002  # for an answer of the RTMP server; a later one is in a later response


@asynccontextmanager
async def rtmpt_front(rtmp_port: int, framing: str = "length", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve RTMPT for the RTMP server on this port of loopback. Yields the port.

    `framing`: how responses end ("length", "chunked", or "close" with one request per connection).
    """
    numbers = itertools.count()
    sessions: dict[bytes, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def answer(kind: bytes, session_id: bytes, body: bytes) -> bytes | None:
        """The body of a response; None if there is no such session (any more)."""
        if kind == b"open":
            session_id = b"S%d" % next(numbers)
            sessions[session_id] = await asyncio.open_connection("127.0.0.1", rtmp_port)
            return session_id + b"\n"
        if session_id not in sessions:
            return None
        reader, writer = sessions[session_id]
        if kind == b"close":
            del sessions[session_id]
            writer.close()
            return b"\x01"
        if kind == b"send":
            writer.write(body)
        try:
            await writer.drain()
            data = await asyncio.wait_for(reader.read(65536), _WAIT_S)
        except asyncio.TimeoutError:
            return b"\x01"
        except OSError:
            data = b""
        if not data:
            del sessions[session_id]
            writer.close()
        return b"\x01" + data if data else None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while found := _REQUEST.match(await reader.readuntil(b"\r\n\r\n")):
                content = await answer(found[1], found[2], await reader.readexactly(int(found[3])))
                status = b"404 Not Found" if content is None else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\n" + _framed(content or b"", framing))
                await writer.drain()
                if framing == "close":
                    break
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _, writer in sessions.values():
            writer.close()


def _framed(content: bytes, framing: str) -> bytes:
    if framing == "close":
        return b"Connection: close\r\n\r\n" + content
    if framing == "chunked":
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(x), x) for x in (content[:1], content[1:]) if x)
        return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return b"Content-Length: %d\r\n\r\n" % len(content) + content
