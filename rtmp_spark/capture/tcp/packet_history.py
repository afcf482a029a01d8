"""The packets of one connection that later ones are compared with, to find those that were recorded twice."""

from __future__ import annotations

import base64
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.packet_block import Flags, Ints
from rtmp_spark.codec.limits import DUPLICATE_WITHIN_NS, REMEMBERED_PACKETS

Hashes = npt.NDArray[np.uint64]  # one per packet (duplicate_packets.py)

_NO_HASHES = np.zeros(0, np.uint64)


class Chunk(NamedTuple):
    """Packets of one connection in one batch."""

    newest_ns: int
    hashes: Hashes
    times: Ints


class PacketHistory:
    """Hashes of packets of one connection: of the last second, and of all in earlier files (up to a limit)."""

    __slots__ = ("_chunks", "_earlier", "_file", "_newest_ns", "_older", "_older_count")

    def __init__(self) -> None:
        self._file = -1
        self._newest_ns = 0
        self._chunks: deque[Chunk] = deque()
        self._older: list[Hashes] = []  # of the current file, for comparison with later files
        self._older_count = 0
        self._earlier = _NO_HASHES  # of earlier files, sorted

    @property
    def size_bytes(self) -> int:
        return 8 * (self._older_count + len(self._earlier))

    def forget_files(self) -> None:
        """Keep only the packets of the last second."""
        self._older, self._older_count, self._earlier = [], 0, _NO_HASHES

    def begin_file(self, number: int) -> None:
        """The following packets are from this file."""
        if number == self._file:
            return
        recent = [chunk.hashes for chunk in self._chunks]
        if recent or self._older:
            total = self._older_count + sum(map(len, recent)) + len(self._earlier)
            known = [] if total > REMEMBERED_PACKETS else [self._earlier]
            self._earlier = np.sort(np.concatenate([*known, *self._older, *recent]))
        self._file, self._chunks, self._older, self._older_count = number, deque(), [], 0
        self._newest_ns = 0  # this file may begin before the last one ends

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

    def add(self, chunk: Chunk, keep: bool) -> None:
        """Remember packets; `keep`: also for comparison with later files."""
        chunks = self._chunks
        chunks.append(chunk)
        self._newest_ns = max(self._newest_ns, chunk.newest_ns)
        while chunks and chunks[0].newest_ns < self._newest_ns - DUPLICATE_WITHIN_NS:
            old = chunks.popleft()
            if keep:
                self._older.append(old.hashes)
                self._older_count += len(old.hashes)
        while self._older_count > REMEMBERED_PACKETS:
            self._older_count -= len(self._older.pop(0))

    def state(self, with_files: bool) -> list[Any]:
        """The packets of the last second as plain data; `with_files`: all of them, because a later file may overlap."""
        hashes = np.concatenate([_NO_HASHES, *(chunk.hashes for chunk in self._chunks)])
        times = np.concatenate([np.zeros(0, np.int64), *(chunk.times for chunk in self._chunks)])
        near = times >= self._newest_ns - DUPLICATE_WITHIN_NS
        older = np.concatenate([_NO_HASHES, *self._older, hashes[~near]]) if with_files else _NO_HASHES
        earlier = self._earlier if with_files else _NO_HASHES
        return [
            self._file,
            self._newest_ns,
            _packed(hashes[near]),
            times[near].tolist(),
            *map(_packed, (older, earlier)),
        ]

    @classmethod
    def resume(cls, state: list[Any]) -> PacketHistory:
        own = cls()
        own._file, own._newest_ns, packed, times, *files = state
        hashes, older, own._earlier = map(_unpacked, (packed, *files))
        own._older, own._older_count = [older], len(older)
        if len(hashes):
            own._chunks.append(Chunk(own._newest_ns, hashes, np.array(times, np.int64)))
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
