"""What a script works with: new connections to the server under test, unique stream names, preconditions.

If a server does not answer, `Silence` ends the script, and a new connection is tried (`confirm`): if that one is
answered quickly and the answer does not arrive meanwhile, the silence is a failure; if not, the machine or the server
is slow and the case is inconclusive.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rtmp_relay.frames import Frame, Tag
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec.message import AUDIO, VIDEO

from .outcome import Closed, Failed, Garbled, Inconclusive, Slow, Unanswered, Unreachable
from .peer import UNJUDGED, Peer
from .received import Received
from .transcript import Transcript
from .wire import Silence, Target, Wire

_RUN = secrets.token_hex(3)  # makes stream names unique between runs
_SHORTEST_WAIT_S = 0.2
_START_MS = 2500  # of media that makes a stream known: MediaMTX looks at two seconds
_START = Synthetic(seconds=_START_MS / 1000, gop=5, video_bitrate=50_000)
_LARGEST_FIRST = 100_000  # bytes of a tag


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
        """A connection (TCP, TLS or RTMPT) on which nothing was sent."""
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

    def needs_tcp(self, why: str) -> None:
        """Raises Inconclusive over RTMPT."""
        if self.target.rtmpt:
            raise Inconclusive(f"not possible over RTMPT: {why}")

    async def peer(self) -> Peer:
        """A client after the handshake."""
        peer = Peer(await self.raw(), self.target, self.transcript)
        self._peers.append(peer)
        peer.fences_elsewhere = self._fences_elsewhere
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

    async def player(self, name: str, first: Sequence[Tag] = ()) -> Peer:
        """A client that plays a published stream, as a precondition. `first`: what `plays` may publish before."""
        with self.precondition("play"):
            peer, _ = await self.plays(name, first=first)
            await peer.fence()
        publisher = self._publisher_of(name)
        if publisher is not None and publisher.offset_ms:
            peer.joined = len(peer.inbox)
        return peer

    def _publisher_of(self, name: str) -> Peer | None:
        found = [peer for peer in self._peers if peer.publishes and peer.name == name and not peer.closed]
        return found[-1] if found else None

    async def plays(self, name: str, *args: object, first: Sequence[Tag] = ()) -> tuple[Peer, Received]:
        """A client that plays, as a precondition, and the status that says so.

        Some servers refuse or ignore players until they know the codecs of a stream. If so, a publisher that has sent
        nothing sends `first` (any media, if it is empty), and `plays` tries again until the timeout.
        """
        publisher = self._publisher_of(name)
        learned = self.target.learned
        with self.precondition("play"):
            if publisher is None or not learned.get("media first"):
                try:
                    return await self._play(name, args)
                except (Failed, Silence):
                    if publisher is None or learned.get("media first") is False:
                        raise
            if not publisher.sent_media:
                await _start(publisher, first or list(_START.tags()))
            deadline = time.monotonic() + self.target.timeout_s
            patience_s = _SHORTEST_WAIT_S
            while True:
                patience_s = min(2 * patience_s, self.target.timeout_s)
                try:
                    found = await self._play(name, args, patience_s)
                    break
                except (Failed, Silence):
                    if publisher.closed:
                        raise
                    if time.monotonic() > deadline:
                        if not first:
                            learned.setdefault("media first", False)
                        raise
                    await asyncio.sleep(0.05)
        learned["media first"] = True
        return found

    async def _play(self, name: str, args: tuple[object, ...], timeout_s: float | None = None) -> tuple[Peer, Received]:
        peer = await self.connected()
        found = await peer.play(name, *args, timeout_s=timeout_s)
        if found.is_error:
            raise Failed(f"play was refused: {found.code}")
        return peer, found

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

    async def fences(self) -> bool:
        """True if the server answers createStream on a connection that publishes. It is found out once in a run."""
        if "fences" not in self.target.learned:
            self.target.learned["fences"] = await self._answers_publishers()
        return self.target.learned["fences"]

    async def _answers_publishers(self) -> bool:
        peer = Peer(await self.raw(), self.target, Transcript(False))
        self._peers.append(peer)
        try:
            await peer.begin()
            await peer.connect()
            if (await peer.publish(self.name())).is_error:
                return True
        except (Silence, Failed):
            return True
        try:
            await peer.fence()
        except Silence as silence:
            await self.confirm(silence)
            return False
        except Closed:
            return False
        return True

    async def _fences_elsewhere(self) -> bool:
        """Instead of a fence on a connection that publishes or plays. False if a fence works there."""
        if await self.fences():
            return False
        await self.reference()
        return True

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


async def _start(publisher: Peer, tags: Sequence[Tag]) -> None:
    """Publish tags again and again until the server has seen enough of the stream; later tags continue after it."""
    small = [unjudged(tag) for tag in tags if len(tag.payload) <= _LARGEST_FIRST]
    begin, end = small[0].timestamp, small[-1].timestamp
    while publisher.offset_ms < _START_MS:
        for tag in small:
            await publisher.tag(tag._replace(timestamp=tag.timestamp - begin & 0xFFFFFFFF))
        publisher.offset_ms += (end - begin & 0xFFFFFFFF) + 40


def unjudged(tag: Tag) -> Tag:
    """The tag with a mark, if it is a coded frame: players of cases leave it out of comparisons."""
    if tag.type_id not in (AUDIO, VIDEO) or not tag.payload or Frame(*tag).is_header:
        return tag
    return tag._replace(payload=tag.payload + UNJUDGED)
