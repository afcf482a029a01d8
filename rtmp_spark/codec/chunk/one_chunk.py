"""Reads one chunk in every possible case: all chunks that the dechunker's fast path does not take.

The state changes only if the whole chunk is there (or no more bytes will follow), so events never depend on how the
input was split. Every function returns the position after the chunk, or -1 if the state says why not: `need` bytes are
missing, or synchronisation is `lost`.
"""

from __future__ import annotations

from ..errors import Severity, ViolationCode
from ..events import COMPLETE, Skipped, Violation
from ..limits import CONFIRM_BYTES, LONGEST_CONTROL, PAYLOAD_HEAD_BYTES
from ..message import CONTROL_TYPES, DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE, OF_STREAMS, TYPE_NAMES
from ..resync.evidence import looks_like_start
from .assembly import emit, finish, interrupt, open_partial, store
from .cursor import Cursor
from .header import ChunkHeader, parse_header
from .lookahead import (
    CONTINUES,
    UNSEEN,
    WAITING,
    confirm_stale,
    ext_repeated,
    header_ok,
    inside_message,
    orphan_stop,
    short_continuation,
)
from .size import settle_size
from .state import ABSENT, PRESENT, UNKNOWN, ChunkState, CutChunk
from .stream import ChunkStream


def read_chunk(state: ChunkState, at: Cursor) -> int:
    """Read the chunk at the cursor."""
    header = parse_header(at.buf, at.pos, at.end)
    if header is None:
        return state.wait(at.pos + 2 + (at.buf[at.pos] & 63))
    fmt, data = header.fmt, header.data
    cs = state.streams.get(header.csid)
    if fmt == 3:
        return _chunk_without_header(state, cs, at, header)
    if data > at.end:
        return state.wait(data)
    if fmt == 2:
        if cs is None:
            return _fresh_csid(state, at, header)
        if cs.active and not cs.orphan:
            if state.inferred:
                return state.lose("fmt 2 inside an unfinished message")
            return _continue(state, cs, at, header)
        header.length, header.type_id, header.stream_id = cs.length, cs.type_id, cs.stream_id
        return _begin(state, cs, at, header)
    length, type_id = header.length, header.type_id
    if fmt == 1:
        header.stream_id = cs.stream_id if cs is not None else _assumed_stream_id(state, type_id)
    if cs is not None and cs.active and not cs.orphan:
        reading = inside_message(state, cs, at, header)
        if reading == WAITING:
            return -1
        if reading == CONTINUES and not state.inferred:
            return _continue(state, cs, at, header)
    doubtful = (
        type_id not in TYPE_NAMES
        or (type_id in CONTROL_TYPES and length > LONGEST_CONTROL)
        or (cs is None and header.stream_id >= 1 << 24)
    )
    if doubtful:
        count = min(state.chunk_size, length)
        following = 0 if count > CONFIRM_BYTES else header_ok(state, at, data + count, header.csid * (length > count))
        if following < 0:
            return state.wait(max(data + count, at.end) + 1)
        if not following:
            return state.lose("an invalid message header")
    if cs is None:
        cs = ChunkStream(header.csid)
        cs.drifted = state.inferred
    return _begin(state, cs, at, header)


def _assumed_stream_id(state: ChunkState, type_id: int) -> int:
    """The stream of fmt 1 on a csid whose fmt 0 was not seen: media is on a stream, which is nearly always 1."""
    return 1 if state.inferred and type_id in OF_STREAMS else 0


def _chunk_without_header(state: ChunkState, cs: ChunkStream | None, at: Cursor, header: ChunkHeader) -> int:
    """A chunk of fmt 3: it continues a message, repeats one, or belongs to one whose start was lost."""
    data = header.data
    if at.buf[at.pos] < 0xC2 or cs is None or not cs.active:
        short, certain = short_continuation(state, at, data, cs)
        if not certain:
            return -1
        if short is not None:
            header.data = at.pos + 1
            return _continue(state, short, at, header, short_form=True)
    if cs is None:
        if data + PAYLOAD_HEAD_BYTES > at.end and not at.final:
            return state.wait(data + PAYLOAD_HEAD_BYTES)
        known_size = state.chunk_size < MAX_CHUNK_SIZE
        if state.inferred and known_size and header.csid < 64 and not _looks_like_start(at, data):
            cs = state.streams[header.csid] = ChunkStream(header.csid)
            cs.orphan = cs.stale = cs.drifted = True
            cs.length = -1
        else:
            return _fresh_csid(state, at, header)
    if cs.orphan:
        return _skip_orphan(state, cs, at, data)
    if cs.active:
        return _continue(state, cs, at, header)
    return _repeat(state, cs, at, header)


def _looks_like_start(at: Cursor, data: int) -> bool:
    return looks_like_start(at.buf[data : data + PAYLOAD_HEAD_BYTES])


def _fresh_csid(state: ChunkState, at: Cursor, header: ChunkHeader) -> int:
    """fmt 2 or 3 on a csid without an earlier header. After a handshake this means that synchronisation is lost."""
    fmt, csid = header.fmt, header.csid
    if not state.inferred:
        offset = state.base + at.pos
        detail = f"the first chunk on csid {csid} has fmt {fmt}, which refers to an earlier header"
        at.out.append(Violation(ViolationCode.CHUNK_FRESH_CSID, Severity.ERROR, offset, detail))
    return state.lose(f"fmt {fmt} on csid {csid}, which has no earlier header")


def _repeat(state: ChunkState, cs: ChunkStream, at: Cursor, header: ChunkHeader) -> int:
    """fmt 3 that starts a message: length, type, stream and delta are those of the previous message."""
    data, ext = header.data, cs.ext
    omitted = False
    if ext is not None:
        present = int(state.dialect == PRESENT)
        if state.dialect == UNKNOWN:
            present = ext_repeated(state, cs, at, data, min(state.chunk_size, cs.length))
            if present == WAITING:
                return -1
        omitted = not present
        if present:
            data += 4
            if data > at.end:
                return state.wait(data)
            ext = int.from_bytes(at.buf[data - 4 : data], "big")
    header.data, header.field, header.ext = data, cs.field, ext
    header.length, header.type_id, header.stream_id = cs.length, cs.type_id, cs.stream_id
    return _begin(state, cs, at, header, omitted)


def _begin(state: ChunkState, cs: ChunkStream, at: Cursor, header: ChunkHeader, omitted: bool = False) -> int:
    """The first chunk of a message. `omitted`: it is fmt 3 without the extended timestamp it should repeat."""
    buf, end = at.buf, at.end
    fmt, data, length = header.fmt, header.data, header.length
    confirmed = 1
    if cs.stale and fmt >= 2:
        confirmed = confirm_stale(state, cs, at, data, fmt)
        if confirmed < 0:
            return -1
        if not confirmed:
            if fmt == 3 and state.chunk_size < MAX_CHUNK_SIZE and not _looks_like_start(at, data):
                cs.orphan = True
                return _skip_orphan(state, cs, at, data)
            return state.lose(f"fmt {fmt} on csid {cs.csid}, whose last header may have been lost")
    if state.size_floor:
        unsettled = length > state.size_floor
    else:
        unsettled = state.old_size > 0 and length > min(state.old_size, state.chunk_size, DEFAULT_CHUNK_SIZE)
    if unsettled and settle_size(state, at, header) < 0:
        return -1
    size = state.chunk_size
    stop = data + (length if length <= size else size)
    if stop > end and not at.final:
        return state.wait(stop)

    _accept_header(state, cs, at, header, omitted)
    cs.stale = confirmed == UNSEEN
    if stop > end:
        state.cut = CutChunk(cs, stop - end)
        stop = end
    elif length <= size and not cs.dropping:
        cs.chunks = 1
        emit(state, cs, state.base + stop, COMPLETE, 0, buf[data:stop], at.out)
        return stop
    open_partial(state, cs, buf[data:stop], at.out)
    if cs.got == cs.length:
        finish(state, cs, state.base + stop, at.out)
    return stop


def _accept_header(state: ChunkState, cs: ChunkStream, at: Cursor, header: ChunkHeader, omitted: bool) -> None:
    """Set the fields of `cs` for a message that starts at the cursor, and report what is wrong with its header."""
    fmt, ext, length, type_id, out = header.fmt, header.ext, header.length, header.type_id, at.out
    start = state.base + at.pos
    form = at.buf[at.pos] & 63
    if cs.csid not in state.streams:
        state.streams[cs.csid] = cs
        if fmt == 1 and not state.inferred:
            detail = f"the first chunk on csid {cs.csid} has fmt 1, which refers to an earlier header"
            state.flag(out, ViolationCode.CHUNK_FRESH_CSID, start, detail, start)
    if cs.basic_bytes > 1:  # otherwise its continuations use the short form, whatever form starts them
        cs.basic_bytes = 2 + form
    if form == 1 and cs.csid < 320:
        detail = f"csid {cs.csid} written in three bytes instead of two"
        state.flag(out, ViolationCode.CHUNK_CSID_FORM, start, detail, start)
    if cs.active and not cs.orphan:
        interrupt(state, cs, start, out)
    cs.take_time(fmt, header.field, ext, start, out)
    cs.length = length
    cs.type_id = type_id
    cs.stream_id = header.stream_id
    cs.start = start
    cs.fmt = fmt
    cs.chunk_size = state.chunk_size
    cs.flagged = cs.orphan = False
    if type_id not in TYPE_NAMES:
        detail = f"unknown message type {type_id}"
        state.flag(out, ViolationCode.MSG_TYPE_UNKNOWN, start, detail, start)
    if length > state.limits.message_bytes:
        detail = f"a message of {length} bytes exceeds the limit of {state.limits.message_bytes}"
        state.flag(out, ViolationCode.CHUNK_LIMIT, start, detail, start)
        cs.dropping = True
    if omitted:
        cs.flagged = True
        detail = "a message that starts with fmt 3 does not repeat the extended timestamp"
        state.flag(out, ViolationCode.CHUNK_EXT_TS_MISSING, start, detail, start)
    if fmt == 3 and ext is not None and state.dialect == UNKNOWN:
        state.dialect = ABSENT if omitted else PRESENT


def _continue(state: ChunkState, cs: ChunkStream, at: Cursor, header: ChunkHeader, short_form: bool = False) -> int:
    """A further chunk of the unfinished message of `cs`."""
    fmt, data = header.fmt, header.data
    basic_bytes = data - at.pos
    count = min(state.chunk_size, cs.length - cs.got)
    repeats = fmt == 3 and cs.ext is not None
    omitted = False
    if repeats:
        present = ext_repeated(state, cs, at, data, count)
        if present == WAITING:
            return -1
        if present:
            data += 4
        else:
            omitted = True
    stop = data + count
    if stop > at.end and not at.final:
        return state.wait(stop)
    offset = state.base + at.pos
    if fmt == 3:
        cs.basic_bytes = basic_bytes
    else:
        detail = f"a message continues with a header of fmt {fmt} instead of 3"
        state.flag(at.out, ViolationCode.CHUNK_CONTINUATION_FMT, offset, detail, cs.start)
    if repeats:
        state.dialect = ABSENT if omitted else PRESENT
        if omitted and not cs.flagged:
            cs.flagged = True
            detail = "a continuation chunk does not repeat the extended timestamp of its message"
            state.flag(at.out, ViolationCode.CHUNK_EXT_TS_MISSING, offset, detail, cs.start)
    if short_form:
        detail = f"continuation header of csid {cs.csid} written in one byte"
        state.flag(at.out, ViolationCode.CHUNK_CSID_SHORT_CONTINUATION, offset, detail, cs.start)
    if stop > at.end:
        state.cut = CutChunk(cs, stop - at.end)
        stop = at.end
        count = max(0, stop - data)
    cs.got += count
    cs.chunks += 1
    store(state, cs, at.buf[data:stop])
    if cs.got == cs.length:
        finish(state, cs, state.base + stop, at.out)
    return stop


def _skip_orphan(state: ChunkState, cs: ChunkStream, at: Cursor, data: int) -> int:
    """Skip a chunk of a message whose start was lost."""
    stop = orphan_stop(state, cs, at, data)
    if stop < 0:
        return -1
    if stop < data + state.chunk_size:
        cs.orphan = False
    at.out.append(Skipped(state.base + at.pos, state.base + stop, "rest of a message whose start was lost"))
    return stop
