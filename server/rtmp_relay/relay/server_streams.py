"""The message streams of one connection: createStream, publish, play, pause and their ends. No sockets, bytes or clock.

A refused request is answered with onStatus. If the connection then has no active stream, `close_reason` is set.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rtmp_spark.codec.command import Command
from rtmp_spark.codec.limits import STREAMS_PER_CONNECTION
from rtmp_spark.codec.message import STREAM_BEGIN, STREAM_EOF, STREAM_IS_RECORDED

from .hub import Hub, NameTaken, TooManyPlayers
from .live_stream import LiveStream
from .log_names import key_for_log, text_for_log
from .player import Player
from .send_queue import SendQueue
from .server_replies import ServerReplies
from .stream_names import BadName, checked_name, has_valid_key, split_query

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionOptions:
    publish_keys: tuple[str, ...] = ()
    play_keys: tuple[str, ...] = ()


DEFAULT_SESSION = SessionOptions()


@dataclass(frozen=True)
class StreamUse:
    """What a message stream is used for: publishing if `player` is None, otherwise playing."""

    stream: LiveStream
    name: str
    player: Player | None = None


class ServerStreams:
    """Frames for players enter `queue` after the replies."""

    def __init__(
        self, hub: Hub, replies: ServerReplies, queue: SendQueue, chunk_size: int, options: SessionOptions
    ) -> None:
        self.app = ""
        self.flash_ver = ""
        self.queries: list[str] = []  # of the connect command; they may contain a key
        self.close_reason: str | None = None
        self.uses: dict[int, StreamUse | None] = {}  # by stream id; None: created and unused
        self._hub = hub
        self._replies = replies
        self._queue = queue
        self._chunk_size = chunk_size
        self._options = options
        self._next_stream_id = 1

    @property
    def active(self) -> bool:
        return any(use is not None for use in self.uses.values())

    def published(self, stream_id: int) -> LiveStream | None:
        """Return the stream that the client publishes on this message stream, or None."""
        use = self.uses.get(stream_id)
        return use.stream if use is not None and use.player is None else None

    def create(self, received: Command) -> None:
        if len(self.uses) >= STREAMS_PER_CONNECTION:
            self._replies.call_failed(received, f"a connection has at most {STREAMS_PER_CONNECTION} streams")
            return
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        self.uses[stream_id] = None
        self._replies.command("_result", received.transaction_id or 0.0, None, float(stream_id))

    # -- publish and play ------------------------------------------------------------------------------------

    def publish(self, stream_id: int, given: object, now: float) -> None:
        if not self._is_unused(stream_id, "publish", "NetStream.Failed"):  # the name is not the reason
            return
        try:
            key, query = self._stream_key(given)
            if not has_valid_key(self._options.publish_keys, query, *self.queries):
                self._refuse(stream_id, "NetStream.Publish.Denied", "the key is missing or wrong")
                return
            stream = self._hub.publish(key, self, now)
        except BadName as error:
            self._refuse(stream_id, "NetStream.Publish.BadName", str(error))
            return
        except NameTaken:
            self._refuse(stream_id, "NetStream.Publish.BadName", "the stream already has a publisher")
            return
        self.uses[stream_id] = StreamUse(stream, key.partition("/")[2])
        log.info("%s: published by %s", key_for_log(key), text_for_log(self.flash_ver or "an unnamed client", key))
        self._replies.event(STREAM_BEGIN, stream_id)
        self._status(stream_id, "NetStream.Publish.Start", f"{key} is now published.")

    def play(self, stream_id: int, given: object, now: float, reset: bool = True) -> None:
        if not self._is_unused(stream_id, "play", "NetStream.Play.Failed"):
            return
        player = Player(self, self._queue, stream_id, self._chunk_size)
        try:
            key, query = self._stream_key(given)
            if not has_valid_key(self._options.play_keys, query, *self.queries):
                self._refuse(stream_id, "NetStream.Play.Failed", "the key is missing or wrong")
                return
            stream = self._hub.play(key, player, now)
        except BadName as error:
            self._refuse(stream_id, "NetStream.Play.Failed", str(error))
            return
        except TooManyPlayers:
            self._refuse(stream_id, "NetStream.Play.Failed", "the stream has the maximum number of players")
            return
        self.uses[stream_id] = StreamUse(stream, key.partition("/")[2], player)
        log.info("%s: played by %s", key_for_log(key), text_for_log(self.flash_ver or "an unnamed client", key))
        if stream.recorder is not None:
            self._replies.event(STREAM_IS_RECORDED, stream_id)
        self._replies.event(STREAM_BEGIN, stream_id)
        if reset:  # RTMP 1.0 7.2.2.1: only if the client has set the flag
            self._status(stream_id, "NetStream.Play.Reset", f"Playing and resetting {key}.")
        self._status(stream_id, "NetStream.Play.Start", f"Started playing {key}.")
        stream.send_headers(player)

    def _stream_key(self, given: object) -> tuple[str, str]:
        name, query = split_query(given)
        return f"{self.app}/{checked_name(name, 'stream name')}", query

    def _status(self, stream_id: int, code: str, description: str) -> None:
        self._replies.status(stream_id, "status", code, description)

    def _refuse(self, stream_id: int, code: str, description: str) -> None:
        self._replies.status(stream_id, "error", code, f"{description}.")
        log.info("refused: %s, %s", code, description)
        if not self.active:
            self.close_reason = f"{code}: {description}"

    def _is_unused(self, stream_id: int, command: str, code: str) -> bool:
        """True if the stream was created and is unused; otherwise refuses the command with this code."""
        if stream_id not in self.uses:
            created = ", ".join(map(str, self.uses)) or "none"
            reason = f"{command} on message stream {stream_id}, which does not exist; createStream returned {created}"
            self._refuse(stream_id, code, reason)
        elif self.uses[stream_id] is not None:
            self._refuse(stream_id, code, f"{command} on message stream {stream_id}, which is already in use")
        else:
            return True
        return False

    # -- control of playback ---------------------------------------------------------------------------------

    def _playback(self, stream_id: int) -> tuple[LiveStream, Player] | None:
        use = self.uses.get(stream_id)
        return (use.stream, use.player) if use is not None and use.player is not None else None

    def pause(self, stream_id: int, flag: object) -> None:
        found = self._playback(stream_id)
        if found is None:
            return
        stream, player = found
        if flag is True:
            player.paused = True
            self._status(stream_id, "NetStream.Pause.Notify", f"Paused {stream.key}.")
        else:
            self._status(stream_id, "NetStream.Unpause.Notify", f"Unpaused {stream.key}.")
            if player.paused:
                player.paused = False
                stream.send_headers(player)

    def seek(self, stream_id: int) -> None:
        if stream_id in self.uses:
            self._replies.status(stream_id, "error", "NetStream.Seek.Failed", "Seeking is impossible in a live stream.")

    def receive_audio(self, stream_id: int, wanted: bool) -> None:
        found = self._playback(stream_id)
        if found is not None:
            found[1].wants_audio = wanted
            self._confirm_receiving(stream_id, found[0], wanted)

    def receive_video(self, stream_id: int, wanted: bool) -> None:
        found = self._playback(stream_id)
        if found is not None:
            stream, player = found
            player.wants_video = wanted
            self._confirm_receiving(stream_id, stream, wanted)
            if wanted:
                player.wait_for_key(stream.has_video)

    def _confirm_receiving(self, stream_id: int, stream: LiveStream, wanted: bool) -> None:
        if wanted:  # RTMP 1.0 7.2.2.4, 7.2.2.5
            self._status(stream_id, "NetStream.Seek.Notify", f"Resuming {stream.key}.")
            self._status(stream_id, "NetStream.Play.Start", f"Started playing {stream.key}.")

    # -- ends ------------------------------------------------------------------------------------------------

    def _release(self, stream_id: int, now: float) -> bool:
        """Stop publishing or playing on this message stream. Returns True if the client was publishing."""
        use = self.uses.get(stream_id)
        if use is None:
            return False
        self.uses[stream_id] = None
        if use.player is None:
            self._hub.unpublish(use.stream, self, now)
            log.info("%s: publication ended", key_for_log(use.stream.key))
            return True
        self._hub.leave(use.stream, use.player)
        return False

    def release_all(self, now: float) -> None:
        """Stop publishing and playing, because the connection closes."""
        for stream_id in list(self.uses):
            self._release(stream_id, now)
        self.uses.clear()

    def close(self, stream_id: int, now: float) -> None:
        """Handle closeStream: the message stream stays and can be used again."""
        use = self.uses.get(stream_id)
        if self._release(stream_id, now) and use is not None:
            self._status(stream_id, "NetStream.Unpublish.Success", f"{use.stream.key} is now unpublished.")

    def delete(self, given: object, now: float) -> None:
        """Handle deleteStream, whose argument is the stream id, or the stream name in GStreamer."""
        if isinstance(given, str):
            stream_id = self._published_as(given)
        elif isinstance(given, (int, float)) and given == given and abs(given) < 1 << 32:
            stream_id = int(given)
        else:
            return
        if stream_id in self.uses:
            self._release(stream_id, now)
            del self.uses[stream_id]

    def fc_unpublish(self, given: object, now: float) -> None:
        """Handle FCUnpublish, whose argument is the stream name."""
        stream_id = self._published_as(given)
        if stream_id:
            self._replies.fc_status("onFCUnpublish", "NetStream.Unpublish.Success", split_query(given)[0])
            self.close(stream_id, now)

    def _published_as(self, given: object) -> int:
        """Return the id of the message stream that publishes this name, or 0."""
        name = split_query(given)[0]
        for stream_id, use in self.uses.items():
            if use is not None and use.player is None and use.name == name:
                return stream_id
        return 0

    # -- PlayerListener --------------------------------------------------------------------------------------

    def stream_started(self, player: Player) -> None:
        self._replies.event(STREAM_BEGIN, player.stream_id)
        self._status(player.stream_id, "NetStream.Play.PublishNotify", "The stream is now published.")

    def stream_ended(self, player: Player) -> None:
        self._replies.event(STREAM_EOF, player.stream_id)
        self._status(player.stream_id, "NetStream.Play.UnpublishNotify", "The stream is now unpublished.")

    def stream_missing(self, player: Player) -> None:
        self.uses[player.stream_id] = None
        self._refuse(player.stream_id, "NetStream.Play.StreamNotFound", "the stream has no publisher")
