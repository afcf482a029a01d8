"""Reassembly of fragmented IP datagrams.

Fragments may be repeated and in any order; where they overlap, the one that begins earlier wins. Memory and work are
bounded: the oldest incomplete datagram is dropped when there are too many, and so is one with too many fragments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rtmp_spark.codec.limits import DATAGRAM_BYTES, FRAGMENTED_DATAGRAMS, FRAGMENTS_PER_DATAGRAM

Key = tuple[bytes, bytes, int, int]  # source, destination, protocol, identification


@dataclass
class _Datagram:
    pieces: dict[int, bytes] = field(default_factory=dict)  # by offset, in order of arrival
    length: int | None = None
    received: int = 0
    frames: list[int] = field(default_factory=list)


class Fragments:
    def __init__(self) -> None:
        self._datagrams: dict[Key, _Datagram] = {}
        self.counts: Counter[str] = Counter()
        self.completed: list[int] = []  # frames of the datagram that was completed last

    def __len__(self) -> int:
        return len(self._datagrams)

    @property
    def waiting(self) -> dict[Key, list[int]]:
        """The datagrams that are incomplete, with the frames that hold parts of them."""
        return {key: datagram.frames for key, datagram in self._datagrams.items()}

    def add(self, key: Key, offset: int, more: bool, payload: bytes, frame: int = 0) -> bytes | None:
        """Take one fragment; returns the whole payload when no fragment is missing any more."""
        if offset + len(payload) > DATAGRAM_BYTES:
            self.counts["fragment_over_65535"] += 1
            return None
        datagram = self._datagrams.get(key)
        if datagram is None:
            if len(self._datagrams) >= FRAGMENTED_DATAGRAMS:
                self._datagrams.pop(next(iter(self._datagrams)))
                self.counts["fragments_evicted"] += 1
            datagram = self._datagrams[key] = _Datagram()
        if offset not in datagram.pieces or not more:
            datagram.frames.append(frame)
        if offset not in datagram.pieces:
            datagram.pieces[offset] = payload
            datagram.received += len(payload)
        if len(datagram.frames) > FRAGMENTS_PER_DATAGRAM:
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
        self.completed = datagram.frames
        return bytes(whole)
