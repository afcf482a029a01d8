"""The GOP cache: the frames since the last keyframe, which a late joiner gets at once (`relay --gop-cache`).

A group of pictures that exceeds the bounds is not cached: late joiners then start at the next keyframe.
"""

from __future__ import annotations

from rtmp_relay.frames import Frame


class GopCache:
    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.frames: list[Frame] = []
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._has_key = False

    def add(self, frame: Frame) -> None:
        """Cache a coded frame; a keyframe starts a new group."""
        if frame.is_header or frame.is_metadata:
            return
        if frame.is_key:
            self.clear()
            self._has_key = True
        if not self._has_key:
            return
        self.frames.append(frame)
        self._bytes += len(frame.payload)
        if len(self.frames) > self._max_messages or self._bytes > self._max_bytes:
            self.clear()

    def clear(self) -> None:
        self.frames = []
        self._bytes = 0
        self._has_key = False
