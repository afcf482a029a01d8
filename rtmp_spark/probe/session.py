"""What a script works with: new connections to the server under test, unique stream names, preconditions.

If a server does not answer, `Silence` ends the script, and a new connection is tried (`confirm`): if that one is
answered quickly and the answer does not arrive meanwhile, the silence is a failure; if not, the machine or the server
is slow and the case is inconclusive.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .outcome import Failed, Garbled, Inconclusive, Slow, Unanswered, Unreachable
from .peer import Peer
from .transcript import Transcript
from .wire import Silence, Target, Wire

_RUN = secrets.token_hex(3)  # makes stream names unique between runs
_SHORTEST_WAIT_S = 0.2


class Probe:
    """The connections of one case."""

    def __init__(self, target: Target, case_id: str, transcript: Transcript) -> None:
        self.target = target
        self.transcript = transcript
        self._case = case_id.replace("/", "-")
        self._names = 0
        self._wires: list[Wire] = []
        self._peers: list[Peer] = []

    # -- connections -----------------------------------------------------------------------------------------

    async def raw(self) -> Wire:
        """A TCP (or TLS) connection on which nothing was sent."""
        deadline = time.monotonic() + self.target.timeout_s
        while True:
            try:
                wire = await Wire.open(self.target, self.transcript)
                break
            except (OSError, asyncio.TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise Unreachable(f"the server cannot be reached: {error}") from None
                await asyncio.sleep(0.1)  # it may be restarting
        self._wires.append(wire)
        return wire

    async def peer(self) -> Peer:
        """A client after the handshake."""
        peer = Peer(await self.raw(), self.target, self.transcript)
        self._peers.append(peer)
        await peer.begin()
        return peer

    def on_wire(self, wire: Wire) -> Peer:
        """A client on a connection whose handshake the script does itself."""
        peer = Peer(wire, self.target, self.transcript)
        self._peers.append(peer)
        return peer

    async def connected(self, **more: object) -> Peer:
        """A client after connect, as a precondition."""
        with self.precondition("connect"):
            peer = await self.peer()
            await peer.connect(**more)
        return peer

    async def publisher(self, name: str | None = None) -> Peer:
        """A client that publishes, as a precondition."""
        with self.precondition("publish"):
            peer = await self.connected()
            found = await peer.publish(self.name() if name is None else name)
            if found.is_error:
                raise Failed(f"publish was refused: {found.code}")
        return peer

    async def player(self, name: str) -> Peer:
        """A client that plays a published stream, as a precondition."""
        with self.precondition("play"):
            peer = await self.connected()
            found = await peer.play(name)
            if found.is_error:
                raise Failed(f"play was refused: {found.code}")
            await peer.fence()
        return peer

    def name(self) -> str:
        """A stream name that no other case uses, with the query of the URL and the publish key."""
        self._names += 1
        query = [part for part in (self.target.query, self._key()) if part]
        return f"{self.target.name_prefix}-{_RUN}-{self._case}-{self._names}" + ("?" + "&".join(query) if query else "")

    def _key(self) -> str:
        return f"key={self.target.publish_key}" if self.target.publish_key else ""

    # -- waiting ---------------------------------------------------------------------------------------------

    @contextmanager
    def precondition(self, what: str) -> Iterator[None]:
        """A failure inside means that the case cannot be decided."""
        try:
            yield
        except Garbled:
            raise
        except (Failed, Silence) as error:
            raise Inconclusive(f"the precondition {what} failed: {error}") from None

    async def reference(self, timeouts: int = 1) -> int:
        """A whole session up to createStream on a new connection, in ms. It is also the fence before the handshake.

        Raises Inconclusive if the server does not answer it within `timeouts` either, or takes half of the timeout.
        """
        quiet = Transcript(False)
        target = replace(self.target, timeout_s=self.target.timeout_s * timeouts)
        started = time.monotonic()
        wire = peer = None
        try:
            wire = await Wire.open(target, quiet)
            peer = Peer(wire, target, quiet)
            await peer.begin()
            await peer.connect()
            await peer.create_stream()
        except (asyncio.TimeoutError, Silence) as error:
            raise Unanswered(f"a new connection was not answered either: {error}") from None
        except (OSError, Failed) as error:
            raise Inconclusive(f"a new connection was not answered either: {error}") from None
        finally:
            if peer is not None:
                await peer.close()
            elif wire is not None:
                await wire.close()
        took_s = time.monotonic() - started
        if took_s > self.target.timeout_s / 2:
            raise Slow(f"the server is slow: a new connection took {took_s:.1f} s")
        return round(took_s * 1000)

    async def confirm(self, silence: Silence) -> int:
        """Check that the server is quick enough for the silence to mean something. Returns the ms of `reference`.

        Raises Inconclusive as `reference` does, or if the answer arrives within ten times as long.
        """
        took_ms = await self.reference()
        if await silence.arrives(min(max(took_ms / 100, _SHORTEST_WAIT_S), self.target.timeout_s)):
            raise Slow(f"the server is slow: {silence}, but later")
        return took_ms

    async def survives(self) -> None:
        """Raises Failed if the server does not accept a new session any more. A silent server gets more time."""
        try:
            try:
                await self.reference()
            except Unanswered:
                await self.reference(4)
        except Slow:
            raise
        except Inconclusive as error:
            raise Failed(f"the server does not work any more: {error}") from None

    async def finish(self) -> None:
        for peer in self._peers:
            await peer.close()
        for wire in self._wires:
            await wire.close()
