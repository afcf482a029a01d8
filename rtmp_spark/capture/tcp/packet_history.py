"""The packets of one connection that later ones are compared with, to find those that were recorded twice."""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.packet_block import Flags, Ints
from rtmp_spark.codec.limits import DUPLICATE_WITHIN_NS, REMEMBERED_PACKETS, SAVED_PACKETS

Hashes = npt.NDArray[np.uint64]  # one per packet (duplicate_packets.py)

_NO_HASHES = np.zeros(0, np.uint64)
_NEAR_NS = 2 * DUPLICATE_WITHIN_NS  # packets may be recorded out of order


class Chunk(NamedTuple):
    """Packets of one connection in one batch."""

    oldest_ns: int
    newest_ns: int
    hashes: Hashes
    times: Ints


class PacketHistory:
    """Hashes of packets of one connection: of the last second, and of all in earlier files (up to a limit)."""

    __slots__ = ("_chunks", "_earlier", "_file", "_last", "_older", "_older_count")

    def __init__(self) -> None:
        self._file = -1
        self._chunks: list[Chunk] = []
        self._older: list[Hashes] = []  # of the current file, for comparison with later files
        self._older_count = 0
        self._earlier = _NO_HASHES  # of earlier files, sorted
        self._last = _NO_HASHES  # the last of these, in the order of the recording

    @property
    def size_bytes(self) -> int:
        return 8 * (self._older_count + len(self._earlier) + len(self._last))

    def forget_files(self) -> None:
        """Keep only the packets of the last second."""
        self._older, self._older_count = [], 0
        self._earlier = self._last = _NO_HASHES

    def begin_file(self, number: int) -> None:
        """The following packets are from this file."""
        if number == self._file:
            return
        if self._chunks or self._older:
            own = self._in_this_file()
            full = len(own) + len(self._earlier) > REMEMBERED_PACKETS
            self._earlier = np.sort(own if full else np.concatenate([self._earlier, own]))
            self._last = np.concatenate([self._last, own])[-SAVED_PACKETS:]
        self._file, self._chunks, self._older, self._older_count = number, [], [], 0

    def _in_this_file(self) -> Hashes:
        return np.concatenate([_NO_HASHES, *self._older, *(chunk.hashes for chunk in self._chunks)])

    def find(self, hashes: Hashes, times: Ints) -> tuple[Flags, Flags]:
        """Which of these packets are duplicates, and which repeat the IP id and place of another (upper 32 bits)."""
        known = [chunk.hashes for chunk in self._chunks]
        all_hashes = np.concatenate([*known, hashes])
        all_times = np.concatenate([*(chunk.times for chunk in self._chunks), times])
        again, same_id = _repeated(all_hashes, all_times), _repeated(all_hashes >> np.uint64(32), all_times)
        again, same_id = again[len(all_hashes) - len(hashes) :], same_id[len(all_hashes) - len(hashes) :]
        if len(self._earlier):
            at = np.minimum(np.searchsorted(self._earlier, hashes), len(self._earlier) - 1)
            again |= self._earlier[at] == hashes
            least = hashes >> np.uint64(32) << np.uint64(32)
            at = np.minimum(np.searchsorted(self._earlier, least), len(self._earlier) - 1)
            same_id |= self._earlier[at] >> np.uint64(32) == hashes >> np.uint64(32)
        return again, same_id

    def add(self, chunk: Chunk, remembered: int) -> None:
        """Remember packets; at least this many of them also for comparison with later files."""
        since, until = chunk.oldest_ns - _NEAR_NS, chunk.newest_ns + _NEAR_NS
        far = [old for old in self._chunks if old.newest_ns < since or old.oldest_ns > until]
        if far:
            self._chunks = [old for old in self._chunks if old.newest_ns >= since and old.oldest_ns <= until]
            if remembered:
                self._older += [old.hashes for old in far]
                self._older_count += sum(len(old.hashes) for old in far)
                while self._older_count - len(self._older[0]) >= remembered:
                    self._older_count -= len(self._older.pop(0))
        self._chunks.append(chunk)

    def state(self, overlaps: bool) -> str:
        """The last packets as text; `overlaps`: all of them, because the next file begins before these end."""
        own = self._in_this_file()
        if overlaps:
            return _packed(np.concatenate([self._earlier, own]))
        return _packed(np.concatenate([self._last, own])[-SAVED_PACKETS:])

    @classmethod
    def resume(cls, state: str) -> PacketHistory:
        """The following packets are from another file."""
        own = cls()
        saved = _unpacked(state)
        own._earlier, own._last = np.sort(saved), saved[-SAVED_PACKETS:]
        return own


def _packed(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode("ascii")


def _unpacked(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), "<u8").astype(np.uint64)


def _repeated(hashes: Hashes, times: Ints) -> Flags:
    """Which rows have the hash of a row before them that is at most 1 s away."""
    order = np.argsort(hashes, kind="stable")
    again = np.zeros(len(hashes), bool)
    equal = hashes[order[1:]] == hashes[order[:-1]]
    near = np.abs(times[order[1:]] - times[order[:-1]]) <= DUPLICATE_WITHIN_NS
    again[order[1:]] = equal & near
    return again
