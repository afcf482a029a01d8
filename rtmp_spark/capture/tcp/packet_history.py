"""The packets of one connection that later ones are compared with, to find those that were recorded twice."""

from __future__ import annotations

import base64
from collections import deque
from typing import Any, NamedTuple

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

    __slots__ = ("_chunks", "_earlier", "_file", "_last", "_older", "_older_count", "is_irregular", "reached")

    def __init__(self) -> None:
        # Per side the highest sequence number and the highest acknowledged one; -1: none.
        self.reached = [-1, -1, -1, -1]
        self.is_irregular = False  # the numbers jumped so far that `reached` does not tell which packets may repeat
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
            own = self._in_this_file()[-REMEMBERED_PACKETS:]
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
        self._chunks.append(chunk)
        low, high, at = chunk.oldest_ns, chunk.newest_ns, len(self._chunks) - 1
        while at and high - low <= _NEAR_NS:
            at -= 1
            low, high = min(low, self._chunks[at].oldest_ns), max(high, self._chunks[at].newest_ns)
        if not at:
            return
        far, self._chunks = self._chunks[:at], self._chunks[at:]
        if remembered:
            self._older += [old.hashes for old in far]
            self._older_count += sum(len(old.hashes) for old in far)
            while self._older_count - len(self._older[0]) >= remembered:
                self._older_count -= len(self._older.pop(0))

    def restart(self, count: int) -> tuple[Flags, Flags]:
        """Forget all packets but the last `count`, which begin the next connection; returns the same as `find`, for
        these."""
        newest = self._chunks[-1]
        hashes, times = newest.hashes[-count:], newest.times[-count:]
        self._chunks = [Chunk(int(times.min()), int(times.max()), hashes, times)]
        self.forget_files()
        return _repeated(hashes, times), _repeated(hashes >> np.uint64(32), times)

    def state(self, overlaps: bool) -> list[Any]:
        """The last packets as plain data; `overlaps`: all of them, because the next file begins before these end."""
        own = self._in_this_file()
        if overlaps:
            hashes = np.concatenate([self._earlier, own])
        else:
            hashes = np.concatenate([self._last, own])[-SAVED_PACKETS:]
        return [_packed(hashes), self.reached, self.is_irregular]

    @classmethod
    def resume(cls, state: list[Any]) -> PacketHistory:
        """The following packets are from another file."""
        own = cls()
        packed, own.reached, own.is_irregular = state
        saved = _unpacked(packed)
        own._earlier, own._last = np.sort(saved), saved[-SAVED_PACKETS:]
        return own


def _packed(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode("ascii")


def _unpacked(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), "<u8").astype(np.uint64)


def _repeated(hashes: Hashes, times: Ints) -> Flags:
    """Which rows have the hash of a row before them that is at most 1 s away. All rows between the two must be near,
    too: otherwise it would depend on the windows of the reader which packets are still remembered."""
    again = np.zeros(len(hashes), bool)
    order = np.argsort(hashes, kind="stable")
    equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    before, after = order[equal], order[equal + 1]
    near = np.abs(times[after] - times[before]) <= DUPLICATE_WITHIN_NS
    if near.any() and times.max() - times.min() > _NEAR_NS and (np.diff(times) < 0).any():
        near &= before >= np.array(_near_since(times.tolist()), np.int64)[after]
    again[after[near]] = True
    return again


def _near_since(times: list[int]) -> list[int]:
    """For each row, the first one from which on all up to it lie within 2 s."""
    lows: deque[int] = deque()  # rows that are older than all after them
    highs: deque[int] = deque()
    found, since = [], 0
    for row, time in enumerate(times):
        while lows and times[lows[-1]] >= time:
            lows.pop()
        while highs and times[highs[-1]] <= time:
            highs.pop()
        lows.append(row)
        highs.append(row)
        while times[highs[0]] - times[lows[0]] > _NEAR_NS:
            since += 1
            if lows[0] < since:
                lows.popleft()
            if highs[0] < since:
                highs.popleft()
        found.append(since)
    return found
