"""The commands of one client of the relay: connect first, then streams. No sockets, bytes or clock.

The session answers every command that expects a response. It refuses with `_error` or onStatus before the connection is
closed. What happens on message streams is in `server_streams`.
"""

from __future__ import annotations

from collections.abc import Callable

from rtmp_relay.frames import frames_of
from rtmp_spark import __version__
from rtmp_spark.codec import command
from rtmp_spark.codec.command import Command
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import COMMAND_AMF3, COMMANDS, OF_STREAMS, STREAM_BEGIN, Message

from .hub import Hub
from .send_queue import SendQueue
from .server_replies import ServerReplies
from .server_streams import DEFAULT_SESSION, ServerStreams, SessionOptions
from .stream_names import BadName, checked_name, split_query

SERVER_VERSION = f"rtmp_relay/{__version__}"
_FORWARD = 4.0  # E-RTMP FourCcInfoMask.CanForward
_CAPS_EX = float(2 | 4 | 8)  # E-RTMP capsEx: multitrack, ModEx, timestamp nano offset


class ServerSession:
    def __init__(
        self,
        hub: Hub,
        send: Callable[[Message], None],
        queue: SendQueue,
        chunk_size: int,
        options: SessionOptions = DEFAULT_SESSION,
        announce_parameters: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` takes replies in order; frames for players enter `queue` after them.

        `announce_parameters` sends window, bandwidth and chunk size; it is called before connect is answered.
        """
        self.app: str | None = None
        self.tc_url = ""
        self.flash_ver = ""
        self.object_encoding = 0
        self.enhanced = False
        self._announce_parameters = announce_parameters
        self._close_reason: str | None = None
        self._replies = ServerReplies(send)
        self.streams = ServerStreams(hub, self._replies, queue, chunk_size, options)

    @property
    def active(self) -> bool:
        """True while the client publishes or plays."""
        return self.streams.active

    @property
    def close_reason(self) -> str | None:
        """Why the connection must be closed, or None."""
        return self._close_reason or self.streams.close_reason

    def receive(self, message: MessageReceived, now: float) -> None:
        if self.close_reason is not None:
            return
        if message.type_id in OF_STREAMS:
            stream = self.streams.published(message.stream_id)
            if stream is not None:
                for frame in frames_of(message.type_id, message.timestamp, message.payload):
                    stream.feed(frame)
        elif message.type_id in COMMANDS:
            received = command.parse_command(message.type_id, message.payload)
            self._replies.amf_version = 3 if message.type_id == COMMAND_AMF3 else 0
            self._handle(received, message.stream_id, now)

    def close(self, now: float) -> None:
        """End everything that the client publishes or plays, because its connection closes."""
        self.streams.release_all(now)

    def shut_down(self) -> None:
        """Inform the client that the relay stops."""
        if self.app is not None:
            self._replies.status(0, "error", "NetConnection.Connect.AppShutdown", "The relay is shutting down.")
        self._close_reason = self.close_reason or "shutting down"

    def _handle(self, received: Command, stream_id: int, now: float) -> None:
        if received.name == "connect":
            self._connect(received)
            return
        if self.app is None:
            self._replies.call_failed(received, "connect must be the first command")
            self._close_reason = f"{received.name!r} before connect"
            return
        arguments = received.args[1:]
        first = arguments[0] if arguments else None
        if not self._handle_stream_command(received, stream_id, first, now):
            self._handle_connection_command(received, first, now)

    def _handle_stream_command(self, received: Command, stream_id: int, first: object, now: float) -> bool:
        """Handle a command that refers to a message stream. Returns False if it is another command."""
        name = received.name
        if name == "createStream":
            self.streams.create(received)
        elif name == "publish":
            self.streams.publish(stream_id, first, now)
        elif name == "play":
            given = command.play_info(received)
            self.streams.play(stream_id, first, now, reset=given is None or given.reset)
        elif name == "pause":
            self.streams.pause(stream_id, first)
        elif name == "seek":
            self.streams.seek(stream_id)
        elif name == "receiveAudio":
            self.streams.receive_audio(stream_id, first is True)
        elif name == "receiveVideo":
            self.streams.receive_video(stream_id, first is True)
        elif name == "closeStream":
            self.streams.close(stream_id, now)
        elif name == "deleteStream":
            self.streams.delete(first, now)
        else:
            return False
        return True

    def _handle_connection_command(self, received: Command, first: object, now: float) -> None:
        name = received.name
        if name == "FCPublish":
            self._replies.result(received, None)
            self._replies.fc_status("onFCPublish", "NetStream.Publish.Start", split_query(first)[0])
        elif name == "FCUnpublish":
            self._replies.result(received, None)
            self.streams.fc_unpublish(first, now)
        elif name == "FCSubscribe":
            self._replies.result(received, None)
            self._replies.fc_status("onFCSubscribe", "NetStream.Play.Start", split_query(first)[0])
        elif name == "getStreamLength":
            self._replies.result(received, None, 0.0)  # a live stream has no known length
        elif name in ("releaseStream", "_checkbw", "FCUnsubscribe"):
            self._replies.result(received, None)
        elif name not in ("_result", "_error", "onStatus"):
            self._replies.call_failed(received, f"unknown method {name[:64]}")

    def _connect(self, received: Command) -> None:
        transaction_id = received.transaction_id or 1.0
        if self.app is not None:
            self._replies.call_failed(received, "the client is already connected")
            return
        given = command.connect_info(received)
        app, query = split_query(given.app if given is not None else None)
        app = app.strip("/") if isinstance(app, str) else app
        try:
            self.app = self.streams.app = checked_name(app, "app")
        except BadName as error:
            info = {"level": "error", "code": "NetConnection.Connect.InvalidApp", "description": f"{error}."}
            self._replies.command("_error", transaction_id, None, info)
            self._close_reason = str(error)
            return
        assert given is not None
        self.tc_url = given.tc_url or ""
        self.flash_ver = self.streams.flash_ver = given.flash_ver or ""
        self.object_encoding = 3 if given.object_encoding == 3 else 0
        self.streams.queries = [query, split_query(self.tc_url)[1]]
        self.enhanced = bool(given.four_cc_list or given.video_four_cc_info_map or given.audio_four_cc_info_map)
        self._announce_parameters()
        self._replies.event(STREAM_BEGIN, 0)
        self._replies.command("_result", transaction_id, *self._connect_result())

    def _connect_result(self) -> tuple[dict[str, object], dict[str, object]]:
        properties: dict[str, object] = {"fmsVer": SERVER_VERSION, "capabilities": 31.0, "mode": 1.0}
        information: dict[str, object] = {
            "level": "status",
            "code": "NetConnection.Connect.Success",
            "description": "Connection succeeded.",
            "objectEncoding": float(self.object_encoding),
        }
        if self.enhanced:  # E-RTMP: the relay forwards any codec
            properties["videoFourCcInfoMap"] = {"*": _FORWARD}
            properties["audioFourCcInfoMap"] = {"*": _FORWARD}
            properties["capsEx"] = _CAPS_EX
        return properties, information
