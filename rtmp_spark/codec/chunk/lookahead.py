"""Readings that need a look ahead: the bytes of a chunk alone do not tell how to read it.

A continuation may or may not repeat its extended timestamp; a header inside an unfinished message may go on with it or
start another; a length may be from before a loss. Each function looks where the next header would stand under either
reading and takes the one after which that header makes sense. Where its bytes are not there yet the answer is
`WAITING`, so that it never depends on where the input was cut. Nothing is consumed here, and no event reported.
"""

from __future__ import annotations

from ..message import ABORT, AUDIO, CONTROL_TYPES, SET_CHUNK_SIZE, TYPE_NAMES
from ..resync.cuts import orphan_end
from ..resync.evidence import payload_bits
from ..resync.header import HEADER_BYTES
from .state import ABSENT, ChunkState
from .stream import ChunkStream

SHORTEST_CONTROL = 2  # an event type without anything
LONGEST_CONTROL = 64  # above this a control message is taken for noise until the next header confirms it
STALE_BITS = 20  # of proof that a header from before a loss still holds
SETTLE_BYTES = 1 << 20  # the longest message that is held back to see what follows it
SHORT_STREAMS = 8  # more csids >= 64 at a time has nobody who writes them wrong

WAITING, RESTARTS, CONTINUES = -1, 0, 1  # how to read a header inside an unfinished message
UNSEEN = 2  # nothing speaks against a length from before a loss, and nothing for it


def header_ok(state: ChunkState, buf: bytes, pos: int, end: int, final: bool) -> int:
    """Could a chunk header stand at `pos`? 2 it looks like one, 1 it may, 0 no, -1 the bytes are not there yet."""
    if pos >= end:
        return int(pos == end) if final else -1
    byte = buf[pos]
    fmt = byte >> 6
    csid = byte & 63
    data = pos + 1
    if csid < 2:
        data += 1 + csid
        if data > end:
            return 1 if final else -1
        csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
    cs = state.streams.get(csid)
    if fmt == 3:
        return 0 if cs is None else 1 + (cs.active or cs.orphan)
    if cs is None and fmt == 2:
        return 0
    if data + HEADER_BYTES[fmt] > end:
        return 1 if final else -1
    if fmt and 0x0F < buf[data] < 0xFF:  # a delta of more than 17 minutes
        return 0
    if fmt == 2:
        return 1
    type_id = buf[data + 6]
    if type_id not in TYPE_NAMES:
        return 0
    length = buf[data + 3] << 16 | buf[data + 4] << 8 | buf[data + 5]
    if type_id in CONTROL_TYPES and not SHORTEST_CONTROL <= length <= LONGEST_CONTROL:
        return 0
    if fmt == 0:
        if int.from_bytes(buf[data + 7 : data + 11], "little") >= 1 << 16:
            return 0
        return 2 if csid < 64 or cs is not None else 1
    return 2 if cs is not None else int(csid < 64)


def ext_repeated(
    state: ChunkState, cs: ChunkStream, buf: bytes, pos: int, data: int, count: int, end: int, final: bool
) -> int:
    """Does this fmt 3 chunk repeat the extended timestamp (1), or not (0)?"""
    if data + 4 > end and not final:
        return state.wait(data + 4)
    same = int.from_bytes(buf[data : data + 4], "big") == cs.ext
    if same and state.dialect != ABSENT:
        return 1
    with_it = header_ok(state, buf, data + 4 + count, end, final)
    without = header_ok(state, buf, data + count, end, final)
    if with_it < 0 or without < 0:
        return state.wait(max(data + 4 + count, end) + 1)
    if cs.active and not same:  # on a continuation another value is none: only a header behind it says otherwise
        return int(not without and with_it > 0)
    if with_it != without:
        return int(with_it > without)
    return int(same or (not cs.active and state.dialect != ABSENT))


def inside_message(
    state: ChunkState,
    cs: ChunkStream,
    buf: bytes,
    data: int,
    end: int,
    final: bool,
    fmt: int,
    length: int,
    type_id: int,
) -> int:
    """A header of fmt 0 or 1 inside an unfinished message: does it go on or restart?"""
    if fmt == 1 and length == cs.length and type_id == cs.type_id:
        return CONTINUES
    goes_on = data + min(state.chunk_size, cs.length - cs.got)
    restarts = data + min(state.chunk_size, length)
    if goes_on == restarts:
        return RESTARTS
    as_restart = header_ok(state, buf, restarts, end, final)
    as_continuation = header_ok(state, buf, goes_on, end, final)
    if as_restart < 0 or as_continuation < 0:
        return state.wait(max(goes_on, restarts, end) + 1)
    return CONTINUES if as_continuation > as_restart else RESTARTS


def short_continuation(
    state: ChunkState, buf: bytes, pos: int, data: int, regular: ChunkStream | None, end: int, final: bool
) -> tuple[ChunkStream | None, bool]:
    """FFmpeg writes continuation headers of csid >= 64 in one byte, (0xC0 | csid) & 0xFF.

    Returns the chunk stream such a byte belongs to, if any, and whether that can be said already."""
    if len(state.high_active) > SHORT_STREAMS:
        return None, True
    for cs in state.high_active.values():
        if (0xC0 | cs.csid) & 0xFF != buf[pos]:
            continue
        if regular is None:
            return cs, True
        count = min(state.chunk_size, cs.length - cs.got)
        rest = min(state.chunk_size, regular.length - regular.got)
        as_short = header_ok(state, buf, pos + 1 + count, end, final)
        as_regular = header_ok(state, buf, data + rest, end, final)
        if regular.ext is not None and as_regular >= 0:  # its continuation may repeat the extended timestamp
            repeated = header_ok(state, buf, data + 4 + rest, end, final)
            as_regular = max(as_regular, repeated) if repeated >= 0 else -1
        if as_short < 0 or as_regular < 0:
            state.wait(max(data + 4 + max(count, rest), end) + 1)
            return None, False
        if as_short > as_regular and (not as_regular or buf[pos] >= 0xC2):  # a longer form is believed if it can be
            return cs, True
    return None, True


def confirm_stale(state: ChunkState, cs: ChunkStream, buf: bytes, data: int, end: int, final: bool, fmt: int) -> int:
    """After a loss: a length from before it is used only where the headers after it stand right."""
    if cs.type_id in (SET_CHUNK_SIZE, ABORT):  # too much hangs on them
        return 0
    proof, first = 0, True  # what stands at its beginning says nothing of its length
    while True:
        length, size = cs.length, state.chunk_size
        if length < 0 or cs.csid >= 64 or length > SETTLE_BYTES:
            return int(proof >= STALE_BITS)
        cuts = max(length - 1, 0) // size
        stop = data + length + cuts
        if cs.ext is not None and state.dialect != ABSENT:
            stop += 4 * cuts
        elif stop <= end and buf[data + size : stop : size + 1].count(0xC0 | cs.csid) != cuts:
            return 0
        inside = payload_bits(cs.type_id, length, buf[data : data + 24])
        if inside < 0 or (cs.type_id == AUDIO and data < end and cs.first not in (-1, buf[data])):
            return 0
        if not first:
            proof += (14 if fmt == 2 else 0) + (0 if cs.type_id in CONTROL_TYPES else min(inside, 8))
        first = False
        if final and stop >= end:
            return UNSEEN  # a gap cuts it: the first header beyond will tell
        ok = header_ok(state, buf, stop, end, final)
        if ok < 0:
            return state.wait(max(stop, end) + 1)
        if not ok:
            return 0
        fmt = buf[stop] >> 6
        if stop + 1 + HEADER_BYTES[fmt] > end and buf[stop] & 63 not in state.streams:
            return int(proof >= STALE_BITS)  # a few bytes before a gap or the end, of a csid that nobody used
        proof += 6
        if fmt < 2 or proof >= STALE_BITS:
            return 1
        data = stop + 1 + HEADER_BYTES[fmt]
        cs = state.streams[buf[stop] & 63] if buf[stop] & 63 > 1 else cs
        if cs.active or cs.orphan or buf[stop] & 63 < 2:
            return int(proof >= STALE_BITS)
        if cs.ext is not None and state.dialect != ABSENT:
            data += 4


def orphan_stop(state: ChunkState, cs: ChunkStream, buf: bytes, data: int, end: int, final: bool) -> int:
    """Where the chunk at `data` ends of a message whose beginning was lost: after a whole chunk, or at a header."""
    size = state.chunk_size
    if data + size + 40 > end and not final:
        return state.wait(data + size + 40)
    pending = {0xC0 | s.csid: s.length - s.got for s in state.streams.values() if s.active and not s.orphan}
    stop = orphan_end(buf, data, size, pending, {0xC0 | s.csid for s in state.streams.values() if s.orphan})
    if cs.length > 0 and (stop is None or stop >= data + size):
        last = data + (cs.length - 1) % size + 1  # known from before the loss: so long its last chunk must be
        if header_ok(state, buf, last, end, final) > header_ok(state, buf, data + size, end, final):
            stop = last
    if stop is None and header_ok(state, buf, data + size, end, final) > 1:
        stop = data + size
    if stop is None:
        return state.lose("the rest of a message whose beginning was lost")
    return stop
