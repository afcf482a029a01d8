"""An RTMP client of a case, after the handshake: sends messages and commands, and keeps everything that arrives.

It is built on the relay's `Endpoint`, which answers pings and acknowledges. Waiting is always for something: an answer,
a frame, or a fence (a createStream round trip, after which all earlier messages have been processed).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from rtmp_relay.endpoint import CONNECTION_CSID, STREAM_CSID
from rtmp_relay.frames import FRAME_CSIDS, Tag, frames_of
from rtmp_spark.codec import command, handshake
from rtmp_spark.codec.message import (
    AUDIO,
    COMMAND_AMF0,
    COMMAND_AMF3,
    DATA_AMF0,
    USER_CONTROL,
    VIDEO,
    Message,
)

from .outcome import Closed, Failed, Garbled
from .received import Choice, Received, RtmpSide, status
from .transcript import Transcript
from .wire import Silence, Target, Wire

UNJUDGED = b"\0\0\0\x0a\x0c" + b"\xff" * 8 + b"\x80"  # H.264 filler; it ends frames that no case compares
_SMALL_MS = 60_000  # larger timestamps are sent as they are, because a case is about them
CLIENT_VERSION = "FMLE/3.0 (compatible; rtmp-spark probe)"


class Peer(RtmpSide):
    def __init__(self, wire: Wire, target: Target, transcript: Transcript) -> None:
        super().__init__(wire, transcript, handshake.CLIENT)
        self.stream_id = 0  # of the stream that is published or played
        self.name = ""
        self.streaming = False  # publishes or plays
        self.publishes = False
        self.sent_media = False
        self.offset_ms = 0  # added to the timestamps of `tag`, after media that only started the stream
        self.joined = 0  # index of the first message that `tags` looks at
        self.fences_elsewhere: Callable[[], Awaitable[bool]] | None = None
        self.learned = target.learned
        self._target = target
        self._transaction_id = 0
        self._changed = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._received = time.monotonic()  # when the last bytes arrived

    @property
    def closed(self) -> bool:
        return self.wire.closed or self.endpoint.failure is not None

    # -- receiving -------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Handshake, then read in the background. Raises Closed or Silence."""
        self.endpoint.begin(0)
        await self.flush("C0 and C1")
        await self._feed(await self.wire.read(1 + 2 * handshake.PACKET_SIZE), flush=False)
        await self.flush("C2")
        self.start_reading()

    def start_reading(self) -> None:
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._read())

    def stop_reading(self) -> None:
        """Let the kernel's buffers fill, as a client that does not read."""
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None

    async def _read(self) -> None:
        early = bytes(self.wire.arrived)  # what the server sent together with S2
        self.wire.arrived.clear()
        if early:
            await self._feed(early)
            self._changed.set()
        while not self.wire.closed:
            try:
                data = await self.wire.receive(3600)
                await self._feed(data)
            except Silence:
                continue
            finally:
                self._changed.set()

    async def _feed(self, data: bytes, flush: bool = True) -> None:
        self._received = time.monotonic()
        self.decode(data)
        if flush:
            await self.flush()

    async def wait(self, choice: Choice, what: str, since: int = 0, timeout_s: float | None = None) -> Received:
        """Return the first message from index `since` on that fits. Raises Closed or Silence.

        The time is counted from the last bytes that arrived: a slow server that still sends is not silent.
        """
        started, patience = time.monotonic(), timeout_s or self._target.timeout_s
        at = since
        while True:
            self._changed.clear()
            while at < len(self.inbox):
                if choice(self.inbox[at]):
                    return self.inbox[at]
                at += 1
            if self.endpoint.failure is not None:
                raise Garbled(f"the server sent bytes that cannot be decoded ({self.endpoint.failure})")
            if self.closed:
                raise Closed(f"the server closed the connection instead of sending {what}{self._last_error()}")
            left = max(started, self._received) + patience - time.monotonic()
            if left <= 0:
                raise self.silence(choice, what, since, patience)
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                continue

    def _last_error(self) -> str:
        errors = [one.code for one in self.inbox if one.is_error]
        return f" after {errors[-1]}" if errors else ""

    def find(self, choice: Choice, since: int = 0) -> list[Received]:
        return [one for one in self.inbox[since:] if choice(one)]

    def tags(self) -> list[Tag]:
        """The audio, video and data messages received so far, aggregates split, without `UNJUDGED` frames."""
        found: list[Tag] = []
        for one in self.inbox[self.joined :]:
            message = one.message
            if message.payload.endswith(UNJUDGED):
                continue
            for frame in frames_of(message.type_id, message.timestamp, message.payload):
                found.append(Tag(frame.type_id, frame.timestamp, frame.payload))
        return found

    # -- sending ---------------------------------------------------------------------------------------------

    async def send_bytes(self, data: bytes, note: str) -> None:
        await self.wire.send(data, note)

    async def user_event(self, payload: bytes) -> None:
        await self.control(USER_CONTROL, payload)

    async def tag(self, tag: Tag, csid: int | None = None, fmt: int = 0) -> None:
        """Send a tag on the published stream. Full headers by default: the section `chunks` judges the others."""
        csid = csid if csid is not None else FRAME_CSIDS.get(tag.type_id, FRAME_CSIDS[DATA_AMF0])
        self.sent_media = True
        timestamp = tag.timestamp + (self.offset_ms if tag.timestamp < _SMALL_MS else 0)
        await self.send(Message(csid, timestamp, tag.type_id, self.stream_id, tag.payload), fmt)

    # -- commands --------------------------------------------------------------------------------------------

    def next_transaction(self) -> float:
        self._transaction_id += 1
        return float(self._transaction_id)

    def command_message(
        self, name: str, transaction_id: float, *args: object, stream_id: int = 0, amf_version: int = 0
    ) -> Message:
        payload = command.dump_command(name, transaction_id, *args, amf_version=amf_version)
        type_id = COMMAND_AMF3 if amf_version == 3 else COMMAND_AMF0
        return Message(STREAM_CSID if stream_id else CONNECTION_CSID, 0, type_id, stream_id, payload)

    async def command(self, name: str, *args: object, stream_id: int = 0, transaction_id: float | None = None) -> float:
        """Send a command and return its transaction id."""
        number = self.next_transaction() if transaction_id is None else transaction_id
        await self.send(self.command_message(name, number, *args, stream_id=stream_id))
        return number

    async def answer(self, transaction_id: float, what: str, since: int = 0) -> Received:
        """Wait for `_result` or `_error` with this transaction id."""
        return await self.wait(
            lambda one: (
                one.name in ("_result", "_error")
                and one.command is not None
                and one.command.transaction_id == transaction_id
            ),
            f"an answer to {what}",
            since,
        )

    async def call(self, name: str, *args: object, stream_id: int = 0) -> Received:
        since = len(self.inbox)
        return await self.answer(await self.command(name, *args, stream_id=stream_id), name, since)

    def connect_properties(self, **more: object) -> dict[str, object]:
        target = self._target
        return {"app": target.app, "flashVer": CLIENT_VERSION, "tcUrl": target.tc_url, **more}

    async def connect(self, **more: object) -> Received:
        """Send connect and wait for its answer. Raises Failed if it is refused."""
        found = await self.call("connect", self.connect_properties(type="nonprivate", **more))
        if found.name == "_error":
            raise Failed(f"connect was refused: {found.code}")
        return found

    async def create_stream(self) -> int:
        found = await self.call("createStream", None)
        number = command.created_stream_id(found.command) if found.command is not None else None
        if number is None:
            raise Failed(f"createStream returned no stream id: {found.name} {found.code}")
        return number

    async def fence(self) -> None:
        """A createStream round trip: everything sent before has been processed. Raises Closed or Silence.

        Some servers answer no commands on a connection that publishes or plays; then it is a session elsewhere.
        """
        if not self.streaming or self.fences_elsewhere is None or not await self.fences_elsewhere():
            await self.call("createStream", None)
        elif self.closed:
            raise Closed("the server closed the connection")

    async def is_open(self) -> bool:
        """A fence. Returns False if the server closed the connection instead. Raises Silence."""
        try:
            await self.fence()
        except Closed:
            return False
        return True

    async def publish(self, name: str, kind: str | None = "live") -> Received:
        """Publish on a new stream. Returns the first onStatus, which may be a refusal."""
        self.name, self.stream_id = name, await self.create_stream()
        return await self._start("publish", name, *([] if kind is None else [kind]))

    async def play(self, name: str, *args: object, timeout_s: float | None = None) -> Received:
        """Play on a new stream. Returns NetStream.Play.Start or a refusal."""
        self.name, self.stream_id = name, await self.create_stream()
        return await self._start("play", name, *args, timeout_s=timeout_s)

    async def _start(self, command_name: str, name: str, *args: object, timeout_s: float | None = None) -> Received:
        since = len(self.inbox)
        number = 0.0 if command_name == "play" else None
        await self.command(command_name, None, name, *args, stream_id=self.stream_id, transaction_id=number)
        self.streaming, self.publishes = True, command_name == "publish"
        return await self.wait(
            lambda one: (
                one.is_error
                or (status()(one) and one.code not in ("NetStream.Play.Reset", "NetStream.Play.PublishNotify"))
            ),
            f"onStatus for {command_name}",
            since,
            timeout_s,
        )

    async def close(self) -> None:
        self.stop_reading()
        await self.wire.close()

    def media(self, type_id: int | None = None) -> list[Tag]:
        """Audio and video tags with a body; of one type if given."""
        kinds = (AUDIO, VIDEO) if type_id is None else (type_id,)
        return [tag for tag in self.tags() if tag.type_id in kinds and tag.payload]
