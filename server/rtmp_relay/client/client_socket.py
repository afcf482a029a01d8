"""A `ClientSession` on an asyncio socket: connects, moves bytes both ways and closes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Coroutine

from rtmp_relay.rtmp_url import endpoint, why
from rtmp_relay.tap.unread_bytes import unread_bytes
from rtmp_spark.codec.errors import UserError

from .client_session import ClientSession, Step

UNREACHABLE, REFUSED = 3, 4  # exit codes
_CLOSE_S = 1.0  # how long each step of closing may take


class Refused(UserError):
    """The server refused the connection or the stream, or did not answer."""


class ClientSocket(asyncio.Protocol):
    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, session: ClientSession, tls: ssl.SSLContext | None) -> ClientSocket:
        """Connect to the server of the session's URL. Raises UserError if it cannot be reached."""
        url = session.url
        if url.scheme == "rtmps" and tls is None:
            tls = ssl.create_default_context()
        loop = asyncio.get_running_loop()
        try:
            _, opened = await loop.create_connection(lambda: cls(session), url.host, url.port, ssl=tls)
        except ssl.SSLCertVerificationError as error:
            text = f"The certificate of {endpoint(url.host, url.port)} was not accepted ({error.verify_message})."
            remedy = "Give the certificate of its issuer with --tls-ca, or skip the check with --tls-insecure."
            raise UserError(text, remedy, UNREACHABLE) from None
        except ssl.SSLError as error:
            text = f"The TLS handshake with {endpoint(url.host, url.port)} failed ({error.reason or error})."
            raise UserError(text, "Check that this port of the server speaks TLS.", UNREACHABLE) from None
        except OSError as error:
            text = f"{endpoint(url.host, url.port)} cannot be reached ({why(error)})."
            raise UserError(text, "Check the address and whether the server is running.", UNREACHABLE) from None
        return opened

    # -- called by asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()
        self.session.begin(time.monotonic())
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.session.receive_data(data, time.monotonic())
        self.flush()
        self._changed.set()

    def eof_received(self) -> bool:
        self._receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        if exc is not None and transport is not None:
            self.data_received(unread_bytes(transport))
        self._receive_eof()
        self._writable.set()
        self._closed.set()

    def _receive_eof(self) -> None:
        self.session.receive_eof()
        self._changed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- called by publish and play --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the session has to send."""
        data = self.session.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Let other tasks run, and wait until the socket accepts data."""
        await asyncio.sleep(0)
        await self._writable.wait()

    async def wait(self, seconds: float) -> None:
        """Wait until data arrives, at most this long; then check the session's timers."""
        self._changed.clear()
        await _at_most(seconds, self._changed.wait())
        self.session.tick(time.monotonic())
        self.flush()

    async def until_streaming(self) -> None:
        """Wait until the stream is published or played. Raises Refused."""
        while self.session.step not in (Step.STREAMING, Step.ENDED):
            await self.wait(0.2)
        if self.session.refusal is not None:
            raise Refused(f"The server refused: {self.session.refusal}.".replace("..", "."), "", REFUSED)

    async def close(self) -> None:
        """End the stream, send FIN and wait briefly for the server's."""
        self.session.finish()
        self.flush()
        await _at_most(_CLOSE_S, self._writable.wait())
        if self._transport is not None:
            if self._transport.can_write_eof():
                self._transport.write_eof()
                await _at_most(_CLOSE_S, self._closed.wait())
            if self._transport is not None:
                self._transport.close()
                await _at_most(_CLOSE_S, self._closed.wait())


async def _at_most(seconds: float, what: Coroutine[object, object, object]) -> None:
    try:
        await asyncio.wait_for(what, seconds)
    except asyncio.TimeoutError:
        pass
