"""One play of one stream: which frames the player wants, and which it skips until the next keyframe.

The wait for a keyframe is bounded: after KEY_WAIT_MS of media a player gets what there is.
"""

from __future__ import annotations

from typing import Protocol

from rtmp_relay.frames import Frame
from rtmp_spark.codec.limits import KEY_WAIT_FRAMES, KEY_WAIT_MS
from rtmp_spark.codec.message import AUDIO, VIDEO

from .send_queue import SendQueue


class PlayerListener(Protocol):
    """Informs the player's client when the stream starts, ends or never starts."""

    def stream_started(self, player: Player) -> None: ...

    def stream_ended(self, player: Player) -> None: ...

    def stream_missing(self, player: Player) -> None: ...


class Player:
    """Puts frames into the send queue of its connection. A full queue affects only this player."""

    def __init__(self, listener: PlayerListener, queue: SendQueue, stream_id: int, chunk_size: int) -> None:
        self.listener = listener
        self.queue = queue
        self.stream_id = stream_id
        self.chunk_size = chunk_size
        self.wants_audio = True
        self.wants_video = True
        self.paused = False
        self.needs_key = True
        self.holds_audio = False  # skip audio until the keyframe, because the stream has video
        self.frames_skipped = 0
        self.waiting_since: float | None = None  # set while the stream has no publisher
        self._drops_seen = queue.media_drops
        self._skipped_from: int | None = None  # timestamp of the first frame skipped in this wait
        self._skipped_now = 0

    def wait_for_key(self, has_video: bool) -> None:
        """Skip frames until the next keyframe; a stream without video has nothing to wait for."""
        self.needs_key = True
        self.holds_audio = has_video
        self._skipped_from = None
        self._skipped_now = 0

    def offer_header(self, frame: Frame) -> None:
        """Queue metadata or a configuration; these are never dropped."""
        if not self.paused:
            self.queue.put(frame.encoded(self.chunk_size, self.stream_id))

    def offer(self, frame: Frame, has_video: bool) -> None:
        """Queue a frame unless the player is paused, does not want its kind or waits for a keyframe."""
        if self.paused:
            return
        if self.queue.media_drops != self._drops_seen:
            self._drops_seen = self.queue.media_drops
            self.wait_for_key(has_video)
        if frame.type_id == VIDEO:
            if not self.wants_video:
                return
            if self.needs_key:
                if not frame.is_key and self._skip(frame):
                    return
                self.needs_key = self.holds_audio = False
        elif frame.type_id == AUDIO:
            if not self.wants_audio:
                return
            if self.holds_audio and self.wants_video:
                if self._skip(frame):
                    return
                self.holds_audio = False
        if not self.queue.put_media(frame.encoded(self.chunk_size, self.stream_id)):
            self._drops_seen = self.queue.media_drops
            self.frames_skipped += 1
            self.wait_for_key(has_video)

    def _skip(self, frame: Frame) -> bool:
        """Skip a frame because the player waits for a keyframe. Returns False if it has waited long enough."""
        if self._skipped_from is None:
            self._skipped_from = frame.timestamp
        waited_ms = (frame.timestamp - self._skipped_from + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        if waited_ms >= KEY_WAIT_MS or self._skipped_now >= KEY_WAIT_FRAMES:
            return False
        self.frames_skipped += 1
        self._skipped_now += 1
        return True
