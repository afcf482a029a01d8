"""One client's conversation with the relay: commands in, replies out. Pure: no sockets, no bytes, no clock.

It answers every command there is an answer to, keeps the client's message streams apart, and asks the hub for
publishing and playing. What it refuses, it refuses in words (`_error` or `onStatus`) before the connection goes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rtmp_spark import __version__
from rtmp_spark.codec import command
from rtmp_spark.codec.command import Command
from rtmp_spark.codec.events import MessageReceived
from rtmp_spark.codec.message import (
    COMMAND_AMF0,
    COMMAND_AMF3,
    COMMANDS,
    OF_STREAMS,
    STREAM_BEGIN,
    STREAM_EOF,
    STREAM_IS_RECORDED,
    USER_CONTROL,
    Message,
    dump_stream_event,
)

from .frames import frames_of
from .hub import Hub, LiveStream, NameTaken, Player, TooManyPlayers
from .names import BadName, checked_name, key_fits, split_query
from .outbox import Outbox

log = logging.getLogger(__name__)

CONNECTION_CSID = 3  # commands of the connection
STREAM_CSID = 5  # commands of a stream
MAX_STREAMS = 64  # message streams of one connection
SERVER_VERSION = f"rtmp_relay/{__version__}"
_FORWARD = 4  # E-RTMP: we pass the codec on


@dataclass(frozen=True)
class SessionOptions:
    publish_keys: tuple[str, ...] = ()
    play_keys: tuple[str, ...] = ()


DEFAULT_SESSION = SessionOptions()


class _Role:
    """What a message stream is used for."""

    def __init__(self, stream: LiveStream, name: str, player: Player | None = None) -> None:
        self.stream = stream
        self.name = name
        self.player = player  # None: it publishes


class Session:
    """`send` takes replies in order; frames for players go to `outbox`, behind them."""

    def __init__(
        self,
        hub: Hub,
        send: Callable[[Message], None],
        outbox: Outbox,
        chunk_size: int,
        options: SessionOptions = DEFAULT_SESSION,
    ) -> None:
        self.app: str | None = None
        self.tc_url = ""
        self.flash_ver = ""
        self.object_encoding = 0
        self.enhanced = False
        self.close_reason: str | None = None
        self.streams: dict[int, _Role | None] = {}
        self._hub = hub
        self._send = send
        self._outbox = outbox
        self._chunk_size = chunk_size
        self._options = options
        self._queries: list[str] = []
        self._next_stream_id = 1
        self._amf_version = 0

    @property
    def active(self) -> bool:
        return any(role is not None for role in self.streams.values())

    # -- messages in -----------------------------------------------------------------------------------------

    def receive(self, message: MessageReceived, now: float) -> None:
        if self.close_reason is not None:
            return
        if message.type_id in OF_STREAMS:
            role = self.streams.get(message.stream_id)
            if role is not None and role.player is None:
                for frame in frames_of(message.type_id, message.timestamp, message.payload):
                    role.stream.feed(frame)
        elif message.type_id in COMMANDS:
            received = command.parse_command(message.type_id, message.payload)
            self._amf_version = 3 if message.type_id == COMMAND_AMF3 else 0
            self._obey(received, message.stream_id, now)

    def close(self, now: float) -> None:
        """The connection is gone, or going."""
        for stream_id in list(self.streams):
            self._release(stream_id, now)
        self.streams.clear()

    # -- messages out ----------------------------------------------------------------------------------------

    def _call(self, name: str, transaction_id: float, *args: object, stream_id: int = 0) -> None:
        version = self._amf_version
        payload = command.dump_command(name, transaction_id, *args, amf_version=version)
        type_id = COMMAND_AMF3 if version == 3 else COMMAND_AMF0
        csid = STREAM_CSID if stream_id else CONNECTION_CSID
        self._send(Message(csid, 0, type_id, stream_id, payload))

    def _status(self, stream_id: int, level: str, code: str, description: str) -> None:
        info = {"level": level, "code": code, "description": description}
        self._call("onStatus", 0.0, None, info, stream_id=stream_id)

    def _event(self, event_type: int, stream_id: int) -> None:
        self._send(Message(2, 0, USER_CONTROL, 0, dump_stream_event(event_type, stream_id)))

    def _result(self, received: Command, *args: object) -> None:
        """Only a command with a transaction id waits for an answer."""
        if received.transaction_id:
            self._call("_result", received.transaction_id, *args)

    def shut_down(self) -> None:
        """Tell the client that the relay ends."""
        if self.app is not None:
            self._status(0, "error", "NetConnection.Connect.AppShutdown", "The relay is shutting down.")
        self.close_reason = self.close_reason or "shutting down"

    # -- commands --------------------------------------------------------------------------------------------

    def _obey(self, received: Command, stream_id: int, now: float) -> None:
        if received.name == "connect":
            self._connect(received)
            return
        if self.app is None:
            self._refuse_call(received, "connect comes first")
            self.close_reason = f"{received.name!r} before connect"
            return
        arguments = received.args[1:]
        first = arguments[0] if arguments else None
        name = received.name
        if name == "createStream":
            self._create_stream(received)
        elif name == "publish":
            self._publish(stream_id, first, now)
        elif name == "play":
            self._play(stream_id, first, now)
        elif name == "pause":
            self._pause(stream_id, first)
        elif name == "seek":
            if stream_id in self.streams:
                self._status(stream_id, "error", "NetStream.Seek.Failed", "A live stream cannot be sought in.")
        elif name in ("receiveAudio", "receiveVideo"):
            self._receive_kind(stream_id, name == "receiveVideo", first is True)
        elif name == "closeStream":
            self._close_stream(stream_id, now)
        elif name == "deleteStream":
            self._delete_stream(first, now)
        elif name == "FCPublish":
            self._result(received, None)
            self._fc_status("onFCPublish", "NetStream.Publish.Start", first)
        elif name == "FCUnpublish":
            self._result(received, None)
            self._fc_unpublish(first, now)
        elif name == "FCSubscribe":
            self._result(received, None)
            self._fc_status("onFCSubscribe", "NetStream.Play.Start", first)
        elif name == "getStreamLength":
            self._result(received, None, 0.0)  # live: no end is known
        elif name in ("releaseStream", "_checkbw", "FCUnsubscribe"):
            self._result(received, None)
        elif name not in ("_result", "_error", "onStatus"):
            self._refuse_call(received, f"there is no method {name[:64]}")

    def _refuse_call(self, received: Command, why: str) -> None:
        if received.transaction_id:
            info = {"level": "error", "code": "NetConnection.Call.Failed", "description": f"{why}."}
            self._call("_error", received.transaction_id, None, info)

    def _connect(self, received: Command) -> None:
        tid = received.transaction_id or 1.0
        if self.app is not None:
            self._refuse_call(received, "this connection is connected")
            return
        given = command.connect_info(received)
        app, query = split_query(given.app if given is not None else None)
        app = app.strip("/") if isinstance(app, str) else app
        try:
            self.app = checked_name(app, "app")
        except BadName as error:
            info = {"level": "error", "code": "NetConnection.Connect.InvalidApp", "description": f"{error}."}
            self._call("_error", tid, None, info)
            self.close_reason = str(error)
            return
        assert given is not None
        self.tc_url = given.tc_url or ""
        self.flash_ver = given.flash_ver or ""
        self.object_encoding = 3 if given.object_encoding == 3 else 0
        self._queries = [query, split_query(self.tc_url)[1]]
        self.enhanced = bool(given.four_cc_list or given.video_four_cc_info_map or given.audio_four_cc_info_map)
        properties: dict[str, object] = {"fmsVer": SERVER_VERSION, "capabilities": 31.0, "mode": 1.0}
        information = {
            "level": "status",
            "code": "NetConnection.Connect.Success",
            "description": "Connection succeeded.",
            "objectEncoding": float(self.object_encoding),
        }
        if self.enhanced:  # E-RTMP: any codec is forwarded, multitrack and ModEx pass through
            properties["videoFourCcInfoMap"] = {"*": float(_FORWARD)}
            properties["audioFourCcInfoMap"] = {"*": float(_FORWARD)}
            properties["capsEx"] = float(2 | 4 | 8)
        self._event(STREAM_BEGIN, 0)
        self._call("_result", tid, properties, information)

    def _create_stream(self, received: Command) -> None:
        if len(self.streams) >= MAX_STREAMS:
            self._refuse_call(received, f"a connection has at most {MAX_STREAMS} streams")
            return
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        self.streams[stream_id] = None
        self._call("_result", received.transaction_id or 0.0, None, float(stream_id))

    def _stream_key(self, given: object) -> tuple[str, str]:
        name, query = split_query(given)
        return f"{self.app}/{checked_name(name, 'stream name')}", query

    def _refuse_stream(self, stream_id: int, code: str, description: str) -> None:
        self._status(stream_id, "error", code, f"{description}.")
        log.info("refused: %s, %s", code, description)
        if not self.active:
            self.close_reason = f"{code}: {description}"

    def _usable(self, stream_id: int, code: str) -> bool:
        if stream_id not in self.streams:
            self._refuse_stream(stream_id, code, f"there is no stream {stream_id}; createStream makes one")
        elif self.streams[stream_id] is not None:
            self._refuse_stream(stream_id, code, f"stream {stream_id} is in use")
        else:
            return True
        return False

    def _publish(self, stream_id: int, given: object, now: float) -> None:
        if not self._usable(stream_id, "NetStream.Publish.BadName"):
            return
        try:
            key, query = self._stream_key(given)
            if not key_fits(self._options.publish_keys, query, *self._queries):
                self._refuse_stream(stream_id, "NetStream.Publish.Denied", "the key does not fit")
                return
            stream = self._hub.publish(key, self, now)
        except BadName as error:
            self._refuse_stream(stream_id, "NetStream.Publish.BadName", str(error))
            return
        except NameTaken:
            self._refuse_stream(stream_id, "NetStream.Publish.BadName", "the stream has a publisher already")
            return
        self.streams[stream_id] = _Role(stream, key.partition("/")[2])
        log.info("%s: published by %s", key, self.flash_ver or "an unnamed client")
        self._event(STREAM_BEGIN, stream_id)
        self._status(stream_id, "status", "NetStream.Publish.Start", f"{key} is now published.")

    def _play(self, stream_id: int, given: object, now: float) -> None:
        if not self._usable(stream_id, "NetStream.Play.Failed"):
            return
        player = Player(self, self._outbox, stream_id, self._chunk_size)
        try:
            key, query = self._stream_key(given)
            if not key_fits(self._options.play_keys, query, *self._queries):
                self._refuse_stream(stream_id, "NetStream.Play.Failed", "the key does not fit")
                return
            stream = self._hub.play(key, player, now)
        except BadName as error:
            self._refuse_stream(stream_id, "NetStream.Play.Failed", str(error))
            return
        except TooManyPlayers:
            self._refuse_stream(stream_id, "NetStream.Play.Failed", "the stream has all the players it may have")
            return
        self.streams[stream_id] = _Role(stream, key.partition("/")[2], player)
        log.info("%s: played by %s", key, self.flash_ver or "an unnamed client")
        if stream.recorder is not None:
            self._event(STREAM_IS_RECORDED, stream_id)
        self._event(STREAM_BEGIN, stream_id)
        self._status(stream_id, "status", "NetStream.Play.Reset", f"Playing and resetting {key}.")
        self._status(stream_id, "status", "NetStream.Play.Start", f"Started playing {key}.")
        stream.greet(player)

    def _player(self, stream_id: int) -> tuple[LiveStream, Player] | None:
        role = self.streams.get(stream_id)
        return (role.stream, role.player) if role is not None and role.player is not None else None

    def _pause(self, stream_id: int, flag: object) -> None:
        found = self._player(stream_id)
        if found is None:
            return
        stream, player = found
        if flag is True:
            player.paused = True
            self._status(stream_id, "status", "NetStream.Pause.Notify", f"Paused {stream.key}.")
        else:
            self._status(stream_id, "status", "NetStream.Unpause.Notify", f"Unpaused {stream.key}.")
            if player.paused:
                player.paused = False
                stream.greet(player)

    def _receive_kind(self, stream_id: int, video: bool, wanted: bool) -> None:
        found = self._player(stream_id)
        if found is None:
            return
        stream, player = found
        if video:
            player.wants_video = wanted
        else:
            player.wants_audio = wanted
        if wanted:  # RTMP 1.0 7.2.2.4, 7.2.2.5
            self._status(stream_id, "status", "NetStream.Seek.Notify", f"Resuming {stream.key}.")
            self._status(stream_id, "status", "NetStream.Play.Start", f"Started playing {stream.key}.")
            if video:
                player.wait_for_key(stream.has_video)

    # -- endings ---------------------------------------------------------------------------------------------

    def _release(self, stream_id: int, now: float) -> bool:
        """Stop publishing or playing on this message stream; True when something was published."""
        role = self.streams.get(stream_id)
        if role is None:
            return False
        self.streams[stream_id] = None
        if role.player is None:
            self._hub.unpublish(role.stream, self, now)
            log.info("%s: no longer published", role.stream.key)
            return True
        self._hub.leave(role.stream, role.player)
        return False

    def _close_stream(self, stream_id: int, now: float) -> None:
        role = self.streams.get(stream_id)
        if self._release(stream_id, now) and role is not None:
            description = f"{role.stream.key} is now unpublished."
            self._status(stream_id, "status", "NetStream.Unpublish.Success", description)

    def _delete_stream(self, given: object, now: float) -> None:
        if isinstance(given, str):  # GStreamer sends the name
            stream_id = self._stream_named(given)
        elif isinstance(given, (int, float)) and given == given and abs(given) < 1 << 32:
            stream_id = int(given)
        else:
            return
        if stream_id in self.streams:
            self._release(stream_id, now)
            del self.streams[stream_id]

    def _stream_named(self, given: object) -> int:
        name = split_query(given)[0]
        for stream_id, role in self.streams.items():
            if role is not None and role.player is None and role.name == name:
                return stream_id
        return 0

    def _fc_status(self, call: str, code: str, given: object) -> None:
        name = split_query(given)[0]
        if isinstance(name, str) and len(name) <= 255:
            self._call(call, 0.0, None, {"level": "status", "code": code, "description": name})

    def _fc_unpublish(self, given: object, now: float) -> None:
        stream_id = self._stream_named(given)
        if stream_id:
            self._fc_status("onFCUnpublish", "NetStream.Unpublish.Success", given)
            self._close_stream(stream_id, now)

    # -- PlayerListener --------------------------------------------------------------------------------------

    def stream_started(self, player: Player) -> None:
        self._event(STREAM_BEGIN, player.stream_id)
        self._status(player.stream_id, "status", "NetStream.Play.PublishNotify", "The stream is now published.")

    def stream_ended(self, player: Player) -> None:
        self._event(STREAM_EOF, player.stream_id)
        self._status(player.stream_id, "status", "NetStream.Play.UnpublishNotify", "The stream is now unpublished.")

    def stream_missing(self, player: Player) -> None:
        self.streams[player.stream_id] = None
        self._refuse_stream(player.stream_id, "NetStream.Play.StreamNotFound", "nobody publishes this stream")
