"""All streams of a relay by `app/name`: who publishes, who plays, and how long players wait for a publisher.

A name has at most one publisher. No sockets, files or clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rtmp_spark.codec.limits import GOP_CACHE_BYTES, GOP_CACHE_MESSAGES

from .gop_cache import GopCache
from .live_stream import FrameSink, LiveStream
from .player import Player


@dataclass(frozen=True)
class HubOptions:
    gop_cache: bool = False
    max_players: int = 0  # per stream; 0 means no limit
    idle_grace_s: float = 30.0  # how long players wait for a publisher
    cache_messages: int = GOP_CACHE_MESSAGES
    cache_bytes: int = GOP_CACHE_BYTES


DEFAULT_HUB = HubOptions()


class NameTaken(Exception):
    """The stream already has a publisher."""


class TooManyPlayers(Exception):
    """The stream already has the maximum number of players."""


class Hub:
    def __init__(
        self, options: HubOptions = DEFAULT_HUB, open_recorder: Callable[[str], FrameSink | None] | None = None
    ) -> None:
        self.options = options
        self.streams: dict[str, LiveStream] = {}
        self._open_recorder = open_recorder

    def _stream(self, key: str) -> LiveStream:
        stream = self.streams.get(key)
        if stream is None:
            options = self.options
            cache = GopCache(options.cache_messages, options.cache_bytes) if options.gop_cache else None
            stream = self.streams[key] = LiveStream(key, cache)
        return stream

    def publish(self, key: str, publisher: object, now: float) -> LiveStream:
        """Start a publication. Raises NameTaken."""
        stream = self._stream(key)
        if stream.publisher is not None:
            raise NameTaken(key)
        recorder = self._open_recorder(key) if self._open_recorder is not None else None
        stream.begin(publisher, recorder, now)
        return stream

    def unpublish(self, stream: LiveStream, publisher: object, now: float) -> None:
        """End the publication if `publisher` is the one that publishes."""
        if stream.publisher is not publisher:
            return
        stream.end(now)
        self._remove_if_unused(stream)

    def play(self, key: str, player: Player, now: float) -> LiveStream:
        """Add the player; call `send_headers` after its client got the start status. Raises TooManyPlayers."""
        stream = self._stream(key)
        if self.options.max_players and len(stream.players) >= self.options.max_players:
            raise TooManyPlayers(key)
        stream.players.append(player)
        if stream.publisher is None:
            player.waiting_since = now
        return stream

    def leave(self, stream: LiveStream, player: Player) -> None:
        """Remove the player from the stream."""
        if player in stream.players:
            stream.players.remove(player)
        self._remove_if_unused(stream)

    def _remove_if_unused(self, stream: LiveStream) -> None:
        if stream.publisher is None and not stream.players:
            self.streams.pop(stream.key, None)

    def tick(self, now: float) -> None:
        """Remove players that have waited too long for a publisher."""
        for stream in list(self.streams.values()):
            for player in list(stream.players):
                waiting = player.waiting_since
                if waiting is not None and now - waiting >= self.options.idle_grace_s:
                    self.leave(stream, player)
                    player.listener.stream_missing(player)

    def close(self, now: float) -> None:
        """End every publication: recordings are closed, players are informed."""
        for stream in list(self.streams.values()):
            if stream.publisher is not None:
                stream.end(now)
