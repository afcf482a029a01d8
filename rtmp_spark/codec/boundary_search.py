"""The decoder's search for a message boundary: in growing windows, with bounded effort.

resync/ finds a boundary in given bytes. This module decides which bytes to give it, remembers how much has been
searched, and applies the result to the state of the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .chunk.header import Head
from .chunk.state import ABSENT, ChunkState
from .chunk.stream import ChunkStream
from .limits import (
    EFFORT_PER_BYTE,
    EFFORT_PER_GAP,
    FREE_EFFORT,
    MANY_STREAMS,
    SEARCH_KEEP_BYTES,
    SEARCH_WINDOWS,
)
from .message import MAX_CHUNK_SIZE

if TYPE_CHECKING:
    from .resync.chain import Sync


class Looked(NamedTuple):
    """The result of a search: a boundary at `position`, or (`sync` None) none before `position`."""

    position: int
    sync: Sync | None
    known: dict[int, Head]  # the headers from before the search


@dataclass(slots=True)
class BoundarySearch:
    """The state between searches; all of it is saved."""

    chunk_size: int = 0  # known before the loss; 0 if the capture starts inside the stream
    tried: int = 0  # the largest window that was searched without result
    effort: int = 0  # steps spent on all searches of this direction
    lost_at: int = -1  # stream offset where synchronisation was lost last

    def begin(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self.tried = 0

    def after_gap(self) -> None:
        """Allow some effort for a gap."""
        self.effort = max(self.effort - EFFORT_PER_GAP, 0)

    def lose(self, offset: int) -> bool:
        """Note where synchronisation was lost. True if it is the same place as last time."""
        again = self.lost_at == offset
        self.lost_at = offset
        return again

    def likely_size(self, chunks: ChunkState) -> int:
        """The chunk size to try first: the current one, or what was known last, unless it was refuted; 0: unknown."""
        size, floor = chunks.chunk_size, chunks.size_floor
        if not floor or size < MAX_CHUNK_SIZE:
            return size
        return self.chunk_size if self.chunk_size >= floor else 0

    def look(self, chunks: ChunkState, buf: bytes, pos: int, base: int, final: bool) -> Looked | None:
        """Search from `pos` on; None if more bytes are needed (`chunks.need`). `base`: stream offset of `buf[0]`."""
        skip = int(base + pos == self.lost_at)  # the header there is the one that lost synchronisation
        available = len(buf) - pos
        for window in SEARCH_WINDOWS:
            if window <= self.tried:
                continue
            if available < window:
                break
            found = self._boundary(chunks, buf, pos, pos + window, base, skip, final=False)
            if found is not None:
                return found
            self.tried = window
            if window == SEARCH_WINDOWS[-1]:
                self.tried = 0
                return Looked(pos + window - SEARCH_KEEP_BYTES, None, {})
        if final:
            found = self._boundary(chunks, buf, pos, len(buf), base, skip, final=True)
            return found or Looked(len(buf), None, {})
        chunks.need = next((window for window in SEARCH_WINDOWS if window > available), SEARCH_WINDOWS[-1])
        return None

    def _boundary(
        self, chunks: ChunkState, buf: bytes, pos: int, end: int, base: int, skip: int, *, final: bool
    ) -> Looked | None:
        """The boundary in the window from `pos` to `end`, if there is one."""
        from .resync.search import find  # here, because most streams are never searched

        if self.effort > FREE_EFFORT + (base + end) * EFFORT_PER_BYTE:
            return None
        few = len(chunks.streams) <= MANY_STREAMS
        known = {cs.csid: cs.head for cs in chunks.streams.values() if cs.length >= 0 and (few or cs.csid < 64)}
        orphans = any(cs.orphan for cs in chunks.streams.values())
        sync, effort = find(buf[pos:end], skip, known, self.chunk_size, chunks.dialect == ABSENT, final, orphans)
        self.effort += effort + len(chunks.streams) // 16
        return None if sync is None else Looked(pos + sync.position, sync, known)

    def apply(self, chunks: ChunkState, sync: Sync, known: dict[int, Head]) -> None:
        """Set the state of the chunks to what is assumed at the boundary."""
        for csid, head in sync.heads.items():
            cs = chunks.streams.get(csid)
            if cs is None:
                cs = chunks.streams[csid] = ChunkStream(csid)
                cs.drifted = True
            if cs.orphan and (head.length < 0 or csid in sync.orphans or head == known.get(csid)):
                continue
            cs.orphan = False
            cs.length, cs.type_id, cs.stream_id = head
            cs.stale = True
        for csid in sync.orphans:
            cs = chunks.streams.setdefault(csid, ChunkStream(csid))
            cs.orphan = cs.stale = cs.drifted = True
        chunks.chunk_size, chunks.size_floor = sync.chunk_size, sync.size_floor
        chunks.size_announced = chunks.size_announced and sync.chunk_size == self.chunk_size
        chunks.old_size = 0
        chunks.inferred = True
