"""Streams, their publisher, their players and what late joiners need. Pure: no sockets, no files, no clock.

A name has at most one publisher. A player gets metadata and every configuration first, then starts at a keyframe
(or at the cached group of pictures); timestamps are passed on unchanged. One player's full outbox is its own
problem: it skips to the next keyframe and nobody else notices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rtmp_spark.codec.message import AUDIO, VIDEO

from .frames import Frame
from .outbox import MAX_BYTES, MAX_MESSAGES, Outbox

log = logging.getLogger(__name__)

_HEADER_BYTES = 1 << 16  # the largest configuration or metadata that is kept
_MAX_HEADERS = 128


class NameTaken(Exception):
    """Somebody publishes under this name already."""


class TooManyPlayers(Exception):
    """The stream has all the players it may have."""


class FrameSink(Protocol):
    """Where a stream is recorded. It never raises: what goes wrong with a record stays with the record."""

    def write(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class PlayerListener(Protocol):
    """Who tells the player's client what became of the stream."""

    def stream_started(self, player: Player) -> None: ...

    def stream_ended(self, player: Player) -> None: ...

    def stream_missing(self, player: Player) -> None: ...


@dataclass(frozen=True)
class HubOptions:
    gop_cache: bool = False
    max_players: int = 0  # per stream; 0 is no limit
    idle_grace_s: float = 30.0  # how long players wait for a publisher
    cache_messages: int = MAX_MESSAGES - 64  # it goes into an outbox at once, behind headers and replies
    cache_bytes: int = MAX_BYTES // 2


DEFAULT_HUB = HubOptions()


class Player:
    """One play of one stream: what it wants, and where its frames go."""

    def __init__(self, listener: PlayerListener, outbox: Outbox, stream_id: int, chunk_size: int) -> None:
        self.listener = listener
        self.outbox = outbox
        self.stream_id = stream_id
        self.chunk_size = chunk_size
        self.wants_audio = True
        self.wants_video = True
        self.paused = False
        self.needs_key = True
        self.holds_audio = False  # until that keyframe, because pictures were under way when it joined
        self.frames_skipped = 0
        self._skips_seen = outbox.skips
        self.waiting_since: float | None = None

    def wait_for_key(self, has_video: bool) -> None:
        self.needs_key = True
        self.holds_audio = has_video

    def offer_header(self, frame: Frame) -> None:
        if not self.paused:
            self.outbox.put(frame.wire(self.chunk_size, self.stream_id))

    def offer(self, frame: Frame, has_video: bool) -> None:
        if self.paused:
            return
        if self.outbox.skips != self._skips_seen:
            self._skips_seen = self.outbox.skips
            self.wait_for_key(has_video)
        if frame.type_id == VIDEO:
            if not self.wants_video:
                return
            if self.needs_key:
                if not frame.is_key:
                    self.frames_skipped += 1
                    return
                self.needs_key = self.holds_audio = False
        elif frame.type_id == AUDIO:
            if not self.wants_audio:
                return
            if self.holds_audio and self.wants_video:
                self.frames_skipped += 1
                return
        if not self.outbox.put_media(frame.wire(self.chunk_size, self.stream_id)):
            self._skips_seen = self.outbox.skips
            self.frames_skipped += 1
            self.wait_for_key(has_video)


class LiveStream:
    """Everything under one `app/name`."""

    def __init__(self, key: str, options: HubOptions) -> None:
        self.key = key
        self.publisher: object | None = None
        self.players: list[Player] = []
        self.metadata: Frame | None = None
        self.headers: dict[tuple[tuple[int, int, str], ...], Frame] = {}
        self.group: list[Frame] = []  # since the last keyframe, when there is a GOP cache
        self.video_codec: str | None = None
        self.audio_codec: str | None = None
        self.started: float | None = None
        self.has_video = False
        self.frames = 0
        self.recorder: FrameSink | None = None
        self._options = options
        self._group_bytes = 0
        self._group_open = False

    def begin(self, publisher: object, recorder: FrameSink | None, now: float) -> None:
        self.publisher = publisher
        self.recorder = recorder
        self.started = now
        for player in self.players:
            player.waiting_since = None
            player.wait_for_key(has_video=False)
            player.listener.stream_started(player)

    def end(self, now: float) -> None:
        self.publisher = None
        self.started = None
        self.metadata = None
        self.headers.clear()
        self.has_video = False
        self.video_codec = self.audio_codec = None
        self._close_group()
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close()
        for player in self.players:
            player.waiting_since = now
            player.listener.stream_ended(player)

    def feed(self, frame: Frame) -> None:
        """A frame from the publisher, to the record and to every player."""
        self.frames += 1
        if self.recorder is not None:
            self.recorder.write(frame)
        if frame.clears_metadata:
            self.metadata = None
            return
        self._keep_header(frame)
        if frame.is_header or frame.is_metadata:
            for player in self.players:
                player.offer_header(frame)
        else:
            for player in self.players:
                player.offer(frame, self.has_video)
        if frame.is_coded_video:
            self.has_video = True
        self._name_codec(frame)
        if self._options.gop_cache:
            self._remember(frame)
        frame.forget_wire()

    def _keep_header(self, frame: Frame) -> None:
        """For late joiners; bounded, because a publisher could make up tracks without end."""
        if len(frame.payload) > _HEADER_BYTES:
            return
        if frame.is_metadata:
            self.metadata = frame
        elif frame.is_header and (frame.header_keys in self.headers or len(self.headers) < _MAX_HEADERS):
            self.headers[frame.header_keys] = frame

    def _name_codec(self, frame: Frame) -> None:
        if frame.codec is None:
            return
        if frame.type_id == VIDEO and self.video_codec is None:
            self.video_codec = frame.codec
            log.info("%s: video is %s", self.key, frame.codec)
        elif frame.type_id == AUDIO and self.audio_codec is None:
            self.audio_codec = frame.codec
            log.info("%s: audio is %s", self.key, frame.codec)

    def _remember(self, frame: Frame) -> None:
        if frame.is_header or frame.is_metadata:
            return
        if frame.is_key:
            self._close_group()
            self._group_open = True
        if not self._group_open:
            return
        self.group.append(frame)
        self._group_bytes += len(frame.payload)
        if len(self.group) > self._options.cache_messages or self._group_bytes > self._options.cache_bytes:
            self._close_group()  # a group of pictures that long is not worth its memory

    def _close_group(self) -> None:
        self.group = []
        self._group_bytes = 0
        self._group_open = False

    def greet(self, player: Player) -> None:
        """What a player gets before anything live: metadata, configurations, the cached group of pictures."""
        if self.metadata is not None:
            player.offer_header(self.metadata)
        for frame in self.headers.values():
            player.offer_header(frame)
        player.wait_for_key(self.has_video)
        for frame in self.group:
            player.offer(frame, self.has_video)
        for frame in (*self.headers.values(), *self.group):
            frame.forget_wire()


class Hub:
    """All streams of a relay, by `app/name`."""

    def __init__(
        self, options: HubOptions = DEFAULT_HUB, open_recorder: Callable[[str], FrameSink | None] | None = None
    ) -> None:
        self.options = options
        self.streams: dict[str, LiveStream] = {}
        self._open_recorder = open_recorder

    def _stream(self, key: str) -> LiveStream:
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = LiveStream(key, self.options)
        return stream

    def publish(self, key: str, publisher: object, now: float) -> LiveStream:
        stream = self._stream(key)
        if stream.publisher is not None:
            raise NameTaken(key)
        recorder = self._open_recorder(key) if self._open_recorder is not None else None
        stream.begin(publisher, recorder, now)
        return stream

    def unpublish(self, stream: LiveStream, publisher: object, now: float) -> None:
        if stream.publisher is not publisher:
            return
        stream.end(now)
        self._forget_if_empty(stream)

    def play(self, key: str, player: Player, now: float) -> LiveStream:
        """Add the player; `greet` it once its client has been told that the play starts."""
        stream = self._stream(key)
        if self.options.max_players and len(stream.players) >= self.options.max_players:
            raise TooManyPlayers(key)
        stream.players.append(player)
        if stream.publisher is None:
            player.waiting_since = now
        return stream

    def leave(self, stream: LiveStream, player: Player) -> None:
        if player in stream.players:
            stream.players.remove(player)
        self._forget_if_empty(stream)

    def _forget_if_empty(self, stream: LiveStream) -> None:
        if stream.publisher is None and not stream.players:
            self.streams.pop(stream.key, None)

    def tick(self, now: float) -> None:
        """Send away players whose publisher does not come."""
        for stream in list(self.streams.values()):
            for player in list(stream.players):
                waiting = player.waiting_since
                if waiting is not None and now - waiting >= self.options.idle_grace_s:
                    self.leave(stream, player)
                    player.listener.stream_missing(player)

    def close(self, now: float) -> None:
        """End every stream: records closed, players told."""
        for stream in list(self.streams.values()):
            if stream.publisher is not None:
                stream.end(now)
