"""A server that plays one scenario for each client that connects, and judges what the client does.

`ListeningPeer` is the server's side of one connection: it waits for commands and answers as the scenario says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rtmp_relay.endpoint import CONNECTION_CSID, STREAM_CSID
from rtmp_spark.codec import command, handshake
from rtmp_spark.codec.message import AUDIO, COMMAND_AMF0, STREAM_BEGIN, USER_CONTROL, VIDEO, Message, dump_stream_event

from .case import Case
from .media_check import small_media
from .outcome import Closed, Failed, Garbled, Outcome, Verdict
from .received import Choice, Received, RtmpSide
from .runner import TIMEOUTS_PER_CASE, CaseResult, case_result, outcome_of
from .transcript import Transcript
from .wire import Silence, Wire

PUBLISH, PLAY = "publish", "play"


class ListeningPeer(RtmpSide):
    """One client. `role` is what it does once `until_streaming` has returned."""

    def __init__(self, wire: Wire, transcript: Transcript, timeout_s: float) -> None:
        super().__init__(wire, transcript, handshake.SERVER)
        self.timeout_s = timeout_s
        self.role = ""
        self.stream_id = 1  # what createStream returns
        self.used_stream_id = 0  # where publish or play arrived
        self._taken = 0

    # -- bytes and messages ----------------------------------------------------------------------------------

    async def receive(self, timeout_s: float | None = None) -> None:
        """Wait for bytes of the client and decode them. Raises Closed, Garbled or Silence."""
        data = await self.wire.receive(timeout_s or self.timeout_s)
        if not data:
            raise Closed("the client closed the connection")
        self.decode(data)
        await self.flush()
        if self.endpoint.failure is not None:
            raise Garbled(f"the client sent bytes that cannot be decoded ({self.endpoint.failure})")

    async def command(self, name: str, transaction_id: float, *args: object, stream_id: int = 0) -> None:
        payload = command.dump_command(name, transaction_id, *args)
        await self.send(Message(STREAM_CSID if stream_id else CONNECTION_CSID, 0, COMMAND_AMF0, stream_id, payload))

    async def status(self, code: str, level: str = "status", **more: object) -> None:
        info = {"level": level, "code": code, "description": f"{code} of a scenario", **more}
        await self.command("onStatus", 0.0, None, info, stream_id=self.used_stream_id)

    async def wait(self, choice: Choice, what: str, since: int = 0, timeout_s: float | None = None) -> Received:
        """Return the first message from index `since` on that fits. Raises Closed or Silence."""
        patience = timeout_s or self.timeout_s
        deadline = time.monotonic() + patience
        while True:
            for one in self.inbox[since:]:
                if choice(one):
                    return one
            try:
                await self.receive(max(deadline - time.monotonic(), 0.001))
            except Silence:
                raise self.silence(choice, what, since, patience) from None

    async def listen_for(self, seconds: float) -> bool:
        """Keep reading for a time. Returns False if the client closed the connection."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                await self.receive(left)
            except Silence:
                return True
            except Closed:
                return False
        return True

    # -- an ordinary session ---------------------------------------------------------------------------------

    async def shake_hands(self) -> None:
        while not self.endpoint.handshake_done:
            await self.receive()

    async def next_command(self) -> Received:
        """The next command of the client that was not taken yet."""
        found = await self.wait(lambda one: one.command is not None, "a command", self._taken)
        self._taken = self.inbox.index(found) + 1
        return found

    async def until(self, *names: str) -> Received:
        """Answer optional commands until one with these names arrives."""
        while True:
            found = await self.next_command()
            assert found.command is not None
            number = found.command.transaction_id or 0.0
            if found.name in names:
                return found
            if found.name == "createStream":
                await self.command("_result", number, None, float(self.stream_id))
            elif number:
                await self.command("_result", number, None)

    async def accept_connect(self, **more: object) -> Received:
        """Wait for connect and accept it."""
        found = await self.until("connect")
        info = {"level": "status", "code": "NetConnection.Connect.Success", "description": "ok", "objectEncoding": 0.0}
        await self.command("_result", 1.0, {"fmsVer": "FMS/3,5,7,7009", "capabilities": 31.0, **more}, info)
        return found

    async def until_streaming(self) -> None:
        """Accept what the client asks for until it publishes or plays."""
        found = await self.until(PUBLISH, PLAY)
        self.role = found.name
        self.used_stream_id = found.message.stream_id
        await self.control(USER_CONTROL, dump_stream_event(STREAM_BEGIN, self.used_stream_id))
        if self.role == PLAY:
            await self.status("NetStream.Play.Reset")
        await self.status("NetStream.Publish.Start" if self.role == PUBLISH else "NetStream.Play.Start")

    async def media(self) -> None:
        """Publisher: wait for audio or video. Player: send some, and see that the client stays."""
        if self.role == PUBLISH:
            await self.wait(lambda one: one.message.type_id in (AUDIO, VIDEO), "audio or video")
            return
        for tag in small_media(seconds=1.0):
            await self.send(Message(6, tag.timestamp, tag.type_id, self.used_stream_id, tag.payload))
        if not await self.listen_for(0.5):
            raise Failed("the player closed the connection")


async def listen(
    scenarios: Sequence[Case],
    host: str,
    port: int,
    timeout_s: float,
    captures: Path | None,
    ready: Callable[[int, Case], None],
) -> list[CaseResult]:
    """Play each scenario for one client. `ready` is called with the port before each."""
    if captures is not None:
        captures.mkdir(parents=True, exist_ok=True)
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await arrived.put((reader, writer))

    server = await asyncio.start_server(accept, host, port)
    results = []
    try:
        for scenario in scenarios:
            ready(server.sockets[0].getsockname()[1], scenario)
            reader, writer = await arrived.get()
            results.append(await _play(scenario, reader, writer, timeout_s, captures))
    finally:
        server.close()
    return results


async def _judge(scenario: Case, peer: ListeningPeer) -> Outcome:
    async def on_silence(silence: Silence) -> Outcome:
        if await silence.arrives(peer.timeout_s):
            return Outcome(Verdict.INCONCLUSIVE, f"the client is slow: {silence}, but later")
        return Outcome(Verdict.FAILED, str(silence))

    return await outcome_of(scenario.script(peer), on_silence)


async def _play(
    scenario: Case,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    timeout_s: float,
    captures: Path | None,
) -> CaseResult:
    transcript = Transcript(captures is not None)
    wire = Wire(reader, writer, timeout_s, transcript, from_client=False)
    peer = ListeningPeer(wire, transcript, timeout_s)
    started = time.monotonic()
    try:
        outcome = await asyncio.wait_for(_judge(scenario, peer), timeout_s * TIMEOUTS_PER_CASE)
    except asyncio.TimeoutError:
        outcome = Outcome(Verdict.INCONCLUSIVE, "the scenario took too long")
    milliseconds = round((time.monotonic() - started) * 1000)
    await wire.close()
    return case_result(scenario, outcome, milliseconds, transcript, captures)
