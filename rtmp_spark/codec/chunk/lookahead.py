"""Readings that need a look ahead, because the bytes of a chunk allow more than one.

A continuation may or may not repeat its extended timestamp; a header inside an unfinished message may continue that
message or start another; a length may be from before a loss. Each function looks where the next header would be under
either reading, and takes the reading after which that header makes sense. If its bytes have not arrived yet the answer
is `WAITING`, so that the result never depends on how the input was split. Nothing is consumed here, and no event is
reported.
"""

from __future__ import annotations

from ..limits import LONGEST_CONTROL, PAYLOAD_HEAD_BYTES, SETTLE_BYTES, SHORT_STREAMS, SHORTEST_CONTROL, STALE_BITS
from ..message import ABORT, AUDIO, CONTROL_TYPES, SET_CHUNK_SIZE, TYPE_NAMES
from ..resync.cuts import orphan_end
from ..resync.evidence import payload_bits
from .cursor import Cursor
from .header import HEADER_BYTES, ChunkHeader, parse_header
from .state import ABSENT, ChunkState
from .stream import ChunkStream

WAITING = -1  # the bytes that decide have not arrived yet
IMPOSSIBLE, POSSIBLE, LIKELY = 0, 1, 2  # could a chunk header be at this place?
RESTARTS, CONTINUES = 0, 1  # how to read a header inside an unfinished message
REFUTED, CONFIRMED, UNSEEN = 0, 1, 2  # of a length from before a loss; UNSEEN: no evidence for or against it


def header_ok(state: ChunkState, at: Cursor, pos: int, unfinished: int = 0) -> int:
    """Could a chunk header be at `pos`? LIKELY, POSSIBLE, IMPOSSIBLE, or WAITING. `unfinished` is the csid of a message
    that is not part of the state yet and would continue there."""
    buf, end, final = at.buf, at.end, at.final
    if pos >= end:
        return int(pos == end) if final else WAITING
    header = parse_header(buf, pos, end)
    if header is None:
        return POSSIBLE if final else WAITING
    fmt, csid, field, type_id = header.fmt, header.csid, header.field, header.type_id
    cs = state.streams.get(csid)
    if fmt == 3:
        if csid == unfinished:
            return LIKELY
        return IMPOSSIBLE if cs is None else POSSIBLE + (cs.active or cs.orphan)
    if cs is None and fmt == 2:
        return IMPOSSIBLE
    if field < 0:
        return POSSIBLE if final else WAITING
    if fmt and 0x0F < field >> 16 < 0xFF:  # a delta of more than 17 minutes
        return IMPOSSIBLE
    if fmt == 2:
        return POSSIBLE
    if type_id not in TYPE_NAMES:
        return IMPOSSIBLE
    if type_id in CONTROL_TYPES and not SHORTEST_CONTROL <= header.length <= LONGEST_CONTROL:
        return IMPOSSIBLE
    if fmt == 0:
        if header.stream_id >= 1 << 16:
            return IMPOSSIBLE
        return LIKELY if csid < 64 or cs is not None else POSSIBLE
    return LIKELY if cs is not None else int(csid < 64)


def ext_repeated(state: ChunkState, cs: ChunkStream, at: Cursor, data: int, count: int) -> int:
    """1 if the fmt 3 chunk repeats the extended timestamp at `data`, 0 if its `count` payload bytes start there."""
    if data + 4 > at.end and not at.final:
        return state.wait(data + 4)
    same = int.from_bytes(at.buf[data : data + 4], "big") == cs.ext
    if same and state.dialect != ABSENT:
        return 1
    with_it = header_ok(state, at, data + 4 + count)
    without = header_ok(state, at, data + count)
    if with_it < 0 or without < 0:
        return state.wait(max(data + 4 + count, at.end) + 1)
    if cs.active and not same:  # a continuation repeats the value unchanged; only the next header can show otherwise
        return int(not without and with_it > 0)
    if with_it != without:
        return int(with_it > without)
    return int(same or (not cs.active and state.dialect != ABSENT))


def inside_message(state: ChunkState, cs: ChunkStream, at: Cursor, header: ChunkHeader) -> int:
    """A header of fmt 0 or 1 inside an unfinished message: CONTINUES, RESTARTS (another message), or WAITING."""
    if header.fmt == 1 and header.length == cs.length and header.type_id == cs.type_id:
        return CONTINUES
    continues = header.data + min(state.chunk_size, cs.length - cs.got)
    restarts = header.data + min(state.chunk_size, header.length)
    if continues == restarts:
        return RESTARTS
    as_restart = header_ok(state, at, restarts)
    as_continuation = header_ok(state, at, continues)
    if as_restart < 0 or as_continuation < 0:
        return state.wait(max(continues, restarts, at.end) + 1)
    return CONTINUES if as_continuation > as_restart else RESTARTS


def short_continuation(
    state: ChunkState, at: Cursor, data: int, regular: ChunkStream | None
) -> tuple[ChunkStream | None, bool]:
    """FFmpeg writes continuation headers of csid >= 64 in one byte, (0xC0 | csid) & 0xFF.

    Returns the chunk stream such a byte belongs to, if any, and whether enough bytes have arrived to decide. `regular`
    is the chunk stream of the header read by the specification, `data` the position of its payload."""
    if len(state.high_active) > SHORT_STREAMS:
        return None, True
    byte = at.buf[at.pos]
    for cs in state.high_active.values():
        if (0xC0 | cs.csid) & 0xFF != byte:
            continue
        if regular is None:
            return cs, True
        if regular is cs and cs.chunks > 1 and cs.basic_bytes == 2:  # csid 64: both forms begin with the same byte
            return None, True
        count = min(state.chunk_size, cs.length - cs.got)
        rest = min(state.chunk_size, regular.length - regular.got)
        as_short = header_ok(state, at, at.pos + 1 + count)
        as_regular = header_ok(state, at, data + rest)
        if regular.ext is not None and as_regular >= 0:  # its continuation may repeat the extended timestamp
            repeated = header_ok(state, at, data + 4 + rest)
            as_regular = max(as_regular, repeated) if repeated >= 0 else WAITING
        if as_short < 0 or as_regular < 0:
            state.wait(max(data + 4 + max(count, rest), at.end) + 1)
            return None, False
        if as_short > as_regular and (not as_regular or byte >= 0xC2):  # a longer form is preferred where possible
            return cs, True
    return None, True


def confirm_stale(state: ChunkState, cs: ChunkStream, at: Cursor, data: int, fmt: int) -> int:
    """After a loss, a length from before it is used only if the headers that follow are where it puts them.

    Returns CONFIRMED, REFUTED, UNSEEN (the message reaches a gap or the end), or WAITING."""
    if cs.type_id in (SET_CHUNK_SIZE, ABORT):  # a wrong one would change how everything after it is read
        return REFUTED
    buf, end = at.buf, at.end
    proof, first = 0, True  # the start of the first payload says nothing about its length
    while True:
        length, size = cs.length, state.chunk_size
        if length < 0 or cs.csid >= 64 or length > SETTLE_BYTES:
            return int(proof >= STALE_BITS)
        cuts = max(length - 1, 0) // size
        stop = data + length + cuts
        if cs.ext is not None and state.dialect != ABSENT:
            stop += 4 * cuts
        elif stop <= end and buf[data + size : stop : size + 1].count(0xC0 | cs.csid) != cuts:
            return REFUTED
        inside = payload_bits(cs.type_id, length, buf[data : data + PAYLOAD_HEAD_BYTES])
        if inside < 0 or (cs.type_id == AUDIO and data < end and cs.first not in (-1, buf[data])):
            return REFUTED
        if not first:
            proof += (14 if fmt == 2 else 0) + (0 if cs.type_id in CONTROL_TYPES else min(inside, 8))
        if at.final and stop >= end:
            return UNSEEN if first else int(proof >= STALE_BITS)  # a later message says little about this length
        first = False
        ok = header_ok(state, at, stop)
        if ok < 0:
            return state.wait(max(stop, end) + 1)
        if not ok:
            return REFUTED
        fmt = buf[stop] >> 6
        if stop + 1 + HEADER_BYTES[fmt] > end and buf[stop] & 63 not in state.streams:
            return int(proof >= STALE_BITS)  # a few bytes before a gap or the end, on an unused csid
        proof += 6
        if fmt < 2 or proof >= STALE_BITS:
            return CONFIRMED
        data = stop + 1 + HEADER_BYTES[fmt]
        cs = state.streams[buf[stop] & 63] if buf[stop] & 63 > 1 else cs
        if cs.active or cs.orphan or buf[stop] & 63 < 2:
            return int(proof >= STALE_BITS)
        if cs.ext is not None and state.dialect != ABSENT:
            data += 4


def orphan_stop(state: ChunkState, cs: ChunkStream, at: Cursor, data: int) -> int:
    """Where a chunk at `data` ends whose message lost its start: after a whole chunk, or at the next header."""
    size = state.chunk_size
    if data + size + 40 > at.end and not at.final:
        return state.wait(data + size + 40)
    pending = {0xC0 | s.csid: s.length - s.got for s in state.streams.values() if s.active and not s.orphan}
    stop = orphan_end(at.buf, data, size, pending, {0xC0 | s.csid for s in state.streams.values() if s.orphan})
    if cs.length > 0 and (stop is None or stop >= data + size):
        last = data + (cs.length - 1) % size + 1  # the length is known from before the loss, so its last chunk is too
        if header_ok(state, at, last) > header_ok(state, at, data + size):
            stop = last
    if stop is None and header_ok(state, at, data + size) == LIKELY:
        stop = data + size
    if stop is None:
        return state.lose("the rest of a message whose start was lost has no recognisable end")
    return stop
