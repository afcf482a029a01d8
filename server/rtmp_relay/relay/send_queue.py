"""What waits to be written to one peer, within bounds (512 messages or 8 MiB).

Media may be dropped, everything else may not: when media does not fit, all waiting media goes and `skips` grows, by
which players know that they must wait for a keyframe. When even the rest does not fit, `overflowed` is set and the
connection has to go. The outbox neither writes nor knows the time.
"""

from __future__ import annotations

from collections import deque

MAX_MESSAGES = 512
MAX_BYTES = 8 << 20


class Outbox:
    __slots__ = ("_bytes", "_items", "_max_bytes", "_max_messages", "media_taken", "overflowed", "skips")

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._items: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self.skips = 0
        self.overflowed = False
        self.media_taken = 0  # frames that have left

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def _fits(self, size: int) -> bool:
        return len(self._items) < self._max_messages and self._bytes + size <= self._max_bytes

    def put(self, data: bytes) -> None:
        """Something the peer must get."""
        if not self._fits(len(data)):
            self._drop_media()
            if not self._fits(len(data)):
                self.overflowed = True
                return
        self._items.append((data, False))
        self._bytes += len(data)

    def put_media(self, data: bytes) -> bool:
        """A coded frame; False when there was no room, and then no other frame waits any more either."""
        if not self._fits(len(data)):
            self._drop_media()
            return False
        self._items.append((data, True))
        self._bytes += len(data)
        return True

    def _drop_media(self) -> None:
        self._items = deque(item for item in self._items if not item[1])
        self._bytes = sum(len(data) for data, _ in self._items)
        self.skips += 1

    def take(self, max_bytes: int) -> bytes:
        """The next whole messages, at least one if any waits, about `max_bytes` of them."""
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
