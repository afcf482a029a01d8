"""One published stream: its publisher, its players, its recording, and the headers and frames that late joiners need.

A player first gets the metadata and every configuration, then starts at a keyframe (or at the cached group of
pictures). Timestamps are forwarded unchanged. No sockets, files or clock.
"""

from __future__ import annotations

import logging
from typing import Protocol

from rtmp_relay.frames import Frame
from rtmp_spark.codec.limits import CACHED_HEADER_BYTES, CACHED_HEADERS
from rtmp_spark.codec.message import AUDIO, VIDEO

from .gop_cache import GopCache
from .log_names import key_for_log
from .player import Player

log = logging.getLogger(__name__)


class FrameSink(Protocol):
    """Records a stream. It never raises: an error ends the recording and not the stream."""

    def write(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class LiveStream:
    """The stream of one key, `app/name`."""

    def __init__(self, key: str, gop_cache: GopCache | None = None) -> None:
        self.key = key
        self.publisher: object | None = None
        self.players: list[Player] = []
        self.metadata: Frame | None = None
        self.headers: dict[tuple[tuple[int, int, str], ...], Frame] = {}
        self.gop_cache = gop_cache
        self.video_codec: str | None = None
        self.audio_codec: str | None = None
        self.started: float | None = None
        self.has_video = False
        self.frames = 0
        self.recorder: FrameSink | None = None

    def begin(self, publisher: object, recorder: FrameSink | None, now: float) -> None:
        """Start a publication and inform waiting players."""
        self.publisher = publisher
        self.recorder = recorder
        self.started = now
        for player in self.players:
            player.waiting_since = None
            player.wait_for_key(has_video=False)
            player.listener.stream_started(player)

    def end(self, now: float) -> None:
        """End the publication: close the recording, clear the caches and inform players."""
        self.publisher = None
        self.started = None
        self.metadata = None
        self.headers.clear()
        self.has_video = False
        self.video_codec = self.audio_codec = None
        if self.gop_cache is not None:
            self.gop_cache.clear()
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close()
        for player in self.players:
            player.waiting_since = now
            player.listener.stream_ended(player)

    def feed(self, frame: Frame) -> None:
        """Forward a frame of the publisher to the recording and to every player."""
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
        self._note_codec(frame)
        if self.gop_cache is not None:
            self.gop_cache.add(frame)
        frame.forget_encoded()

    def _keep_header(self, frame: Frame) -> None:
        if len(frame.payload) > CACHED_HEADER_BYTES:
            return
        if frame.is_metadata:
            self.metadata = frame
        elif frame.is_header and (frame.header_keys in self.headers or len(self.headers) < CACHED_HEADERS):
            self.headers[frame.header_keys] = frame

    def _note_codec(self, frame: Frame) -> None:
        if frame.codec is None:
            return
        if frame.type_id == VIDEO and self.video_codec is None:
            self.video_codec = frame.codec
            log.info("%s: video codec %s", key_for_log(self.key), frame.codec)
        elif frame.type_id == AUDIO and self.audio_codec is None:
            self.audio_codec = frame.codec
            log.info("%s: audio codec %s", key_for_log(self.key), frame.codec)

    def send_headers(self, player: Player) -> None:
        """Queue what a player needs before live frames: metadata, configurations, the cached group of pictures."""
        if self.metadata is not None:
            player.offer_header(self.metadata)
        for frame in self.headers.values():
            player.offer_header(frame)
        player.wait_for_key(self.has_video)
        cached = self.gop_cache.frames if self.gop_cache is not None else []
        for frame in cached:
            player.offer(frame, self.has_video)
        for frame in (*self.headers.values(), *cached):
            frame.forget_encoded()
