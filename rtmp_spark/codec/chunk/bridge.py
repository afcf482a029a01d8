"""A gap inside one message: its length and chunk layout are known, so its end can be found without a search.

`bridge_over` says where the message must end; `cross` verifies that once the bytes after the gap arrive.
"""

from __future__ import annotations

from typing import NamedTuple

from ..events import GAP
from ..limits import BRIDGE_BYTES, MESSAGE_HEAD_BYTES
from ..message import COMMAND_AMF0, DATA_AMF3
from .assembly import close_partial
from .cursor import Cursor
from .lookahead import WAITING, header_ok
from .state import ABSENT, ChunkState, CutChunk
from .stream import ChunkStream

REFUTED = -2  # the bytes after the gap are not the rest of the message


class Bridge(NamedTuple):
    """The message that a gap damaged; all counts start at the first lost byte."""

    csid: int
    wire_bytes: int  # to the end of the message, continuation headers included
    payload_bytes: int  # to the next continuation header
    mark_bytes: int  # of a continuation header, with the extended timestamp if it is repeated
    lost: int  # bytes of the gap


class _Rest(NamedTuple):
    """What the bytes after a gap hold of the damaged message."""

    pieces: bytearray
    chunks: int
    marks_fit: bool  # no continuation header contradicts the layout


def unfinished(state: ChunkState) -> list[ChunkStream]:
    """The chunk streams with an unfinished message, oldest first."""
    return sorted((cs for cs in state.streams.values() if cs.active), key=lambda cs: cs.start)


def bridge_over(state: ChunkState, cut: CutChunk | None, lost: int) -> Bridge | None:
    """The message that contains a gap of `lost` bytes, if it is certain that only one does."""
    if cut is not None:
        cs, lacking = cut
    else:
        active = unfinished(state)
        if len(active) != 1:
            return None
        cs, lacking = active[0], 0
    others = any(other is not cs and (other.active or other.orphan) for other in state.streams.values())
    if cs.dropping or (others and lost > lacking):  # chunks of the others may be in the gap, too
        return None
    mark_bytes = cs.basic_bytes
    if cs.ext is not None and state.dialect != ABSENT:
        mark_bytes += 4
    rest = cs.length - cs.got - lacking
    wire_bytes = lacking + rest + mark_bytes * -(-rest // state.chunk_size)
    if lost > wire_bytes or wire_bytes - lost > BRIDGE_BYTES:
        return None
    return Bridge(cs.csid, wire_bytes, lacking, mark_bytes, lost)


def cross(state: ChunkState, bridge: Bridge, at: Cursor, base: int) -> int:
    """Report the damaged message if the bytes after the gap are its rest, and return where it ends.

    Otherwise REFUTED, or WAITING with `state.need` set. `base` is the stream offset of buffer position 0."""
    cs = state.streams[bridge.csid]
    stop = at.pos + bridge.wire_bytes - bridge.lost
    ok = header_ok(state, at, stop)
    if ok < 0:
        state.need = max(stop, at.end) + 1 - at.pos
        return WAITING
    rest = _read_rest(state, cs, bridge, at)
    cs.chunks += rest.chunks
    cut_short = at.final and stop > at.end and not cs.stale
    if not rest.marks_fit or not (ok or cut_short):
        return REFUTED
    cs.stale = False
    stop = min(stop, at.end)
    # AMF values follow one another without a structure that would show where the next one begins.
    if len(cs.payload) < MESSAGE_HEAD_BYTES or DATA_AMF3 <= cs.type_id <= COMMAND_AMF0:
        close_partial(state, cs, GAP, base + stop, at.out, dropped=len(rest.pieces))
        return stop
    cs.payload += rest.pieces
    state.held += len(rest.pieces)
    close_partial(state, cs, GAP, base + stop, at.out)
    return stop


def _read_rest(state: ChunkState, cs: ChunkStream, bridge: Bridge, at: Cursor) -> _Rest:
    """Follow the layout of the rest of the message (payload, continuation header, payload, ...) from the first lost
    byte on, and collect the payload that arrived."""
    available = at.end - at.pos
    total = cs.length - cs.got
    pieces = bytearray()
    wire = -bridge.lost  # position relative to the first byte after the gap
    count = bridge.payload_bytes
    done = chunks = 0
    marks_fit = True
    while True:
        low, high = max(wire, 0), min(wire + count, available)
        if high > low:
            pieces += at.buf[at.pos + low : at.pos + high]
        wire += count
        done += count
        if done >= total:
            return _Rest(pieces, chunks, marks_fit)
        in_buffer = 0 <= wire < available
        if in_buffer and bridge.mark_bytes in (1, 5) and at.buf[at.pos + wire] != (0xC0 | bridge.csid) & 0xFF:
            marks_fit = False
        wire += bridge.mark_bytes
        chunks += 1
        count = min(state.chunk_size, total - done)
