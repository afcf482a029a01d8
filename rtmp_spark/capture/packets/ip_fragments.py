"""IP datagrams that came in pieces, put together again.

Pieces may come doubled and in any order; where they overlap, the one that begins earlier wins. Memory and work are
bounded: the oldest unfinished datagram goes when there are too many, and one in too many pieces is given up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_DATAGRAMS = 1024
MOST_PIECES = 2048
MOST_BYTES = 65_535  # all that an IPv4 total length can say

Key = tuple[bytes, bytes, int, int]  # source, destination, protocol, identification


@dataclass
class _Datagram:
    pieces: dict[int, bytes] = field(default_factory=dict)  # by offset, as they came
    length: int | None = None
    received: int = 0


class Fragments:
    def __init__(self) -> None:
        self._datagrams: dict[Key, _Datagram] = {}
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._datagrams)

    def add(self, key: Key, offset: int, more: bool, payload: bytes) -> bytes | None:
        """Take one piece; gives the whole payload when this was the last one missing."""
        if offset + len(payload) > MOST_BYTES:
            self.counts["fragment_over_65535"] += 1
            return None
        datagram = self._datagrams.get(key)
        if datagram is None:
            if len(self._datagrams) >= MOST_DATAGRAMS:
                self._datagrams.pop(next(iter(self._datagrams)))
                self.counts["fragments_evicted"] += 1
            datagram = self._datagrams[key] = _Datagram()
        if offset not in datagram.pieces:
            datagram.pieces[offset] = payload
            datagram.received += len(payload)
        if len(datagram.pieces) > MOST_PIECES:
            del self._datagrams[key]
            self.counts["fragments_evicted"] += 1
            return None
        if not more:
            datagram.length = offset + len(payload)
        if datagram.length is None or datagram.received < datagram.length:
            return None
        whole = bytearray(datagram.length)
        reached = 0
        for at, piece in sorted(datagram.pieces.items()):
            if at > reached:
                return None
            fresh = piece[reached - at :][: datagram.length - reached]
            whole[reached : reached + len(fresh)] = fresh
            reached += len(fresh)
        if reached < datagram.length:
            return None
        del self._datagrams[key]
        self.counts["reassembled_datagrams"] += 1
        return bytes(whole)
