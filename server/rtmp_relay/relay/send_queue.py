"""The messages that wait to be written to one peer, at most 512 messages or 8 MiB.

The queue may drop media but nothing else. When a frame does not fit, all waiting frames are dropped and `media_drops`
increases, so that players know to wait for a keyframe. When another message does not fit even then, `overflowed` is
set and the connection must be closed. The queue neither writes to the socket nor reads a clock.
"""

from __future__ import annotations

from collections import deque

from rtmp_spark.codec.limits import SEND_QUEUE_BYTES, SEND_QUEUE_MESSAGES


class SendQueue:
    __slots__ = ("_bytes", "_items", "_max_bytes", "_max_messages", "media_drops", "media_taken", "overflowed")

    def __init__(self, max_messages: int = SEND_QUEUE_MESSAGES, max_bytes: int = SEND_QUEUE_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._items: deque[tuple[bytes, bool]] = deque()  # bytes, is media
        self._bytes = 0
        self.media_drops = 0  # how often waiting media was dropped
        self.overflowed = False
        self.media_taken = 0  # frames that `take` returned

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def _fits(self, size: int) -> bool:
        return len(self._items) < self._max_messages and self._bytes + size <= self._max_bytes

    def put(self, data: bytes) -> None:
        """Add a message that must not be dropped; drops media to make room, and sets `overflowed` if that fails."""
        if not self._fits(len(data)):
            self._drop_media()
            if not self._fits(len(data)):
                self.overflowed = True
                return
        self._items.append((data, False))
        self._bytes += len(data)

    def put_media(self, data: bytes) -> bool:
        """Add a coded frame. Returns False if it did not fit; then all waiting frames were dropped too."""
        if not self._fits(len(data)):
            self._drop_media()
            return False
        self._items.append((data, True))
        self._bytes += len(data)
        return True

    def _drop_media(self) -> None:
        self._items = deque(item for item in self._items if not item[1])
        self._bytes = sum(len(data) for data, _ in self._items)
        self.media_drops += 1

    def take(self, max_bytes: int) -> bytes:
        """Remove and return whole messages: at least one if any waits, and no more once `max_bytes` is reached."""
        items = self._items
        pieces: list[bytes] = []
        size = 0
        while items and size < max_bytes:
            piece, is_media = items.popleft()
            pieces.append(piece)
            size += len(piece)
            self.media_taken += is_media
        self._bytes -= size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
