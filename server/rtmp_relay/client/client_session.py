"""The client's side of a connection, without I/O: from the handshake to a stream that is published or played.

The session sends one request at a time and waits for the response. After a deadline it continues without it where that
works: some servers never answer `publish` but accept media. It follows the protocol unless it is given a `Fault`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from rtmp_relay.endpoint import CONNECTION_CSID, STREAM_CSID, Endpoint
from rtmp_relay.faults.fault import NO_FAULT, Fault
from rtmp_relay.frames import FRAME_CSIDS, SET_DATA_FRAME, Tag, frames_of
from rtmp_relay.rtmp_url import RtmpUrl
from rtmp_spark import __version__
from rtmp_spark.codec import command, handshake
from rtmp_spark.codec.command import Command
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import (
    COMMAND_AMF0,
    COMMAND_AMF3,
    COMMANDS,
    DATA_AMF0,
    STREAM_EOF,
    USER_CONTROL,
    Message,
    dump_set_buffer_length,
    parse_control,
)

from .client_options import DEFAULT_CLIENT, ClientOptions

PUBLISH, PLAY = "publish", "play"
CLIENT_VERSION = f"FMLE/3.0 (compatible; rtmp_relay/{__version__})"
_PLAYBACK_END_CODES = frozenset(("NetStream.Play.UnpublishNotify", "NetStream.Play.Stop", "NetStream.Play.Complete"))
_CONNECTION_END_CODES = frozenset(("NetConnection.Connect.AppShutdown", "NetConnection.Connect.Closed"))


class Step(Enum):
    """What the session waits for, in this order."""

    HANDSHAKE = "handshake"
    CONNECT = "connect"
    CREATE_STREAM = "createStream"
    START = "publish or play"
    STREAMING = "streaming"
    ENDED = "ended"


class ClientSession:
    """Publishes or plays the stream of one URL; `step` is its state, `refusal` why it ended."""

    def __init__(
        self,
        url: RtmpUrl,
        role: str,
        entropy: Callable[[int], bytes],
        options: ClientOptions = DEFAULT_CLIENT,
        fault: Fault = NO_FAULT,
    ) -> None:
        self.url = url
        self.role = role
        self.step = Step.HANDSHAKE
        self.refusal: str | None = None  # the server's reason, or which response is missing
        self.connect_unanswered = False  # the attempt ended with neither _result nor _error for connect
        self.stream_id = 1
        self.tags: list[Tag] = []  # received and not yet taken
        options = fault.client_options(options)
        self._options = options
        self._pieces: list[bytes] = []
        self.endpoint = Endpoint(handshake.CLIENT, self._pieces.append, entropy, scheme=options.scheme, fault=fault)
        self._transaction_id = 0
        self._waiting_since = 0.0
        self._started = 0.0

    # -- called by the owner of the socket -------------------------------------------------------------------

    def begin(self, now: float) -> None:
        self._started = self._waiting_since = now
        self.endpoint.begin(0)

    def data_to_send(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    def receive_data(self, data: bytes, now: float) -> None:
        messages = self.endpoint.receive_data(data, int((now - self._started) * 1000))
        if self.step is Step.HANDSHAKE and self.endpoint.handshake_done:
            self._connect(now)
        for message in messages:
            if self.step is not Step.ENDED:
                self._receive(message, now)
        if self.endpoint.failure is not None:
            self._end(self.endpoint.failure)

    def receive_eof(self) -> None:
        self.connect_unanswered |= self.step is Step.CONNECT
        if self.step not in (Step.ENDED, Step.STREAMING):
            self._end(f"the server closed the connection before it answered {self.step.value}")
        self._end(None)

    def tick(self, now: float) -> None:
        """Continue or end the attempt if a response is overdue."""
        if self.step in (Step.STREAMING, Step.ENDED) or now - self._waiting_since < self._options.answer_s:
            return
        if self.step is Step.START:
            self.step = Step.STREAMING
        elif self.step is Step.CREATE_STREAM:
            self._start(now)
        else:
            self.connect_unanswered = self.step is Step.CONNECT
            self._end(f"no response to {self.step.value}")

    # -- called by the publisher or player -------------------------------------------------------------------

    def send_tag(self, tag: Tag) -> None:
        """Send a tag on the published stream; data tags get the @setDataFrame prefix."""
        payload = tag.payload
        if tag.type_id == DATA_AMF0 and not payload.startswith(SET_DATA_FRAME):
            payload = SET_DATA_FRAME + payload
        csid = FRAME_CSIDS.get(tag.type_id, FRAME_CSIDS[DATA_AMF0])
        self.endpoint.send(Message(csid, tag.timestamp, tag.type_id, self.stream_id, payload))

    def take_tags(self) -> list[Tag]:
        """Remove and return the tags received so far."""
        tags, self.tags = self.tags, []
        return tags

    def finish(self) -> None:
        """End the stream with FCUnpublish and deleteStream."""
        if self.step is Step.STREAMING:
            if self.role == PUBLISH:
                self._call("FCUnpublish", None, self.url.name)
            self._call("deleteStream", None, float(self.stream_id))
        self._end(None)

    # -- commands out ----------------------------------------------------------------------------------------

    def _call(self, name: str, *args: object, stream_id: int = 0, transaction_id: float | None = None) -> None:
        if transaction_id is None:
            self._transaction_id += 1
            transaction_id = float(self._transaction_id)
        version = self._options.amf_version
        payload = command.dump_command(name, transaction_id, *args, amf_version=version)
        type_id = COMMAND_AMF3 if version == 3 else COMMAND_AMF0
        csid = STREAM_CSID if stream_id else CONNECTION_CSID
        self.endpoint.send(Message(csid, 0, type_id, stream_id, payload))

    def _wait_for(self, step: Step, now: float) -> None:
        self.step = step
        self._waiting_since = now

    def _connect(self, now: float) -> None:
        properties: dict[str, object] = {"app": self.url.app, "flashVer": CLIENT_VERSION, "tcUrl": self.url.tc_url}
        if self.role == PUBLISH:
            properties["type"] = "nonprivate"
        else:
            properties |= {"fpad": False, "capabilities": 15.0, "audioCodecs": 4071.0, "videoCodecs": 252.0}
            properties["videoFunction"] = 1.0
        properties["objectEncoding"] = float(self._options.amf_version)
        if self._options.enhanced:
            can = 2.0 if self.role == PUBLISH else 1.0  # E-RTMP FourCcInfoMask: encode, decode
            properties["fourCcList"] = ["*"]
            properties["videoFourCcInfoMap"] = {"*": can}
            properties["audioFourCcInfoMap"] = {"*": can}
            properties["capsEx"] = float(2 | 4 | 8)
        self._call("connect", properties)
        self._wait_for(Step.CONNECT, now)

    def _connected(self, now: float) -> None:
        if self._options.window is not None:
            self.endpoint.announce_window(self._options.window)
        if self._options.chunk_size != self.endpoint.encoder.chunk_size:
            self.endpoint.announce_chunk_size(self._options.chunk_size)
        if self.role == PUBLISH:
            self._call("releaseStream", None, self.url.name)
            self._call("FCPublish", None, self.url.name)
        self._call("createStream", None)
        self._wait_for(Step.CREATE_STREAM, now)

    def _start(self, now: float) -> None:
        if self.role == PUBLISH:
            self._call("publish", None, self.url.name, "live", stream_id=self.stream_id)
        else:
            self._call("play", None, self.url.name, -2.0, stream_id=self.stream_id, transaction_id=0.0)
            self.endpoint.send_control(USER_CONTROL, dump_set_buffer_length(self.stream_id, 3000))
        self._wait_for(Step.START, now)

    # -- messages in -----------------------------------------------------------------------------------------

    def _receive(self, message: MessageReceived, now: float) -> None:
        if message.type_id in COMMANDS:
            self._handle_command(command.parse_command(message.type_id, message.payload), now)
        elif message.type_id == USER_CONTROL:
            control = parse_control(message.type_id, message.payload)
            if control.event_type == STREAM_EOF and self.role == PLAY and control.event_stream_id == self.stream_id:
                self._end(None)
        elif self.role == PLAY:  # on any stream id: Node-Media-Server sends media on stream 0
            for frame in frames_of(message.type_id, message.timestamp, message.payload):
                if frame.type_id != DATA_AMF0 or not frame.payload.startswith(
                    (b"\x02\x00\x11|Rtmp", b"\x02\x00\x08onSt")
                ):
                    self.tags.append(Tag(frame.type_id, frame.timestamp, frame.payload))

    def _handle_command(self, received: Command, now: float) -> None:
        if received.name == "_result":
            if self.step is Step.CONNECT and received.transaction_id == 1:
                self._connected(now)
            elif self.step is Step.CREATE_STREAM and received.transaction_id == self._transaction_id:
                number = received.args[1] if len(received.args) > 1 else None
                if isinstance(number, (int, float)):
                    self.stream_id = int(number)
                self._start(now)
        elif received.name in ("_error", "onStatus"):
            self._handle_status(received, now)

    def _handle_status(self, received: Command, now: float) -> None:
        status = command.status_info(received) or command.StatusInfo(None, None, None)
        code = status.code or ""
        if received.name == "_error" and received.transaction_id not in (1, self._transaction_id):
            return  # refers to an optional command: releaseStream, FCPublish
        if received.name == "_error" or status.level == "error":
            self._end(f"{code or received.name}: {status.description or 'no reason given'}")
        elif code in ("NetStream.Publish.Start", "NetStream.Play.Start") and self.step is Step.START:
            self.step = Step.STREAMING
        elif code in _CONNECTION_END_CODES or (self.role == PLAY and code in _PLAYBACK_END_CODES):
            self._end(None)

    def _end(self, refusal: str | None) -> None:
        if self.step is not Step.ENDED:
            self.step = Step.ENDED
            self.refusal = refusal
