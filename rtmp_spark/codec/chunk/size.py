"""The chunk size: what was announced, and what is in use.

A sender may announce a size and go on cutting at another, and after a loss nobody knows whether one was announced in
it. The first message that the sizes in question would cut in different ways shows which it is, by its marks and the
header behind it. Until one comes nothing is decided; what was decided is not looked at again before the next Set Chunk
Size or loss.
"""

from __future__ import annotations

from ..errors import ViolationCode
from ..events import Event
from ..message import DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE
from ..resync.cuts import COMMON_SIZES, believable_size, cuts_ahead, split_sizes
from ..resync.evidence import is_strong
from ..resync.header import Head, continuation
from .lookahead import SETTLE_BYTES, header_ok
from .state import ABSENT, ChunkState

SIZE_AHEAD = 1 << 15  # bytes in which a second message must show a chunk size


def resize(state: ChunkState, payload: bytes) -> None:
    """Bit 31 is masked, 0 keeps the size; message.parse_control finds the fault in either."""
    if len(payload) < 4:
        return
    size = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
    if not size:
        return
    state.old_size = state.chunk_size if state.size_floor == 0 else 0
    state.chunk_size = min(size, MAX_CHUNK_SIZE)
    state.size_floor = 0
    state.size_announced = True
    if state.old_size == state.chunk_size:
        state.old_size = 0


def settle_size(
    state: ChunkState,
    buf: bytes,
    pos: int,
    data: int,
    csid: int,
    length: int,
    end: int,
    final: bool,
    out: list[Event],
    ext: int | None,
) -> int:
    """Look at the first message whose cutting tells whether the chunk size in force is really used."""
    if state.size_floor and length <= SETTLE_BYTES:
        return _infer_size(state, buf, data, continuation(buf, pos), length, end, final, ext)
    if csid >= 64 or length > SETTLE_BYTES:
        state.old_size = state.size_floor = 0
        return 1
    mark = 0xC0 | csid
    new, old = state.chunk_size, state.old_size
    if length <= min(new, old):  # neither cuts it: a sender that heeds neither still cuts at the default
        return _settle_default(state, buf, pos, data, mark, length, end, final, out)
    first = data + min(new, old)
    if first >= end:
        if not final:
            return state.wait(first + 1)
        return 1
    if (buf[first] == mark) == (new < old):
        state.old_size = 0
        return 1
    if new < old:  # cut where it should be, with another message in between?
        between = header_ok(state, buf, first, end, final)
        if between < 0:
            return state.wait(end + 1)
        if between == 2 or (between and buf[first] < 0x80):
            state.old_size = 0
            return 1
    stops = [data + length + (length - 1) // size for size in (new, old)]
    if max(stops) + 18 > end and not final:
        return state.wait(max(stops) + 18)
    fits = [
        header_ok(state, buf, stop, end, final) > 0
        and buf[data + size : stop : size + 1].count(mark) == (length - 1) // size
        for size, stop in ((new, stops[0]), (old, stops[1]))
    ]
    if fits[1] and not fits[0]:
        _not_applied(state, old, pos, data, out)
    elif not fits[0] and old > DEFAULT_CHUNK_SIZE < new:
        settled = _settle_default(state, buf, pos, data, mark, length, end, final, out)
        if settled < 0:
            return -1
    state.old_size = 0
    return 1


def _settle_default(
    state: ChunkState, buf: bytes, pos: int, data: int, mark: int, length: int, end: int, final: bool, out: list[Event]
) -> int:
    """Is a message cut at 128, whatever was announced?"""
    size = DEFAULT_CHUNK_SIZE
    if buf[data + size : data + size + 1] != bytes((mark,)):
        return state.wait(data + size + 1) if data + size >= end and not final else 1
    stop = data + length + (length - 1) // size
    if stop + 18 > end and not final:
        return state.wait(stop + 18)
    uncut = header_ok(state, buf, data + length, end, final) > 0
    cut = header_ok(state, buf, stop, end, final) > 0
    if cut and not uncut and buf[data + size : stop : size + 1].count(mark) == (length - 1) // size:
        _not_applied(state, size, pos, data, out)
        state.old_size = 0
    return 1


def _not_applied(state: ChunkState, used: int, pos: int, data: int, out: list[Event]) -> None:
    state.flag(
        out,
        ViolationCode.CHUNK_SIZE_NOT_APPLIED,
        state.base + data,
        f"chunk size {state.chunk_size} was announced, yet chunks are still cut at {used}",
        state.base + pos,
    )
    state.chunk_size = used


def _infer_size(
    state: ChunkState, buf: bytes, data: int, mark: bytes, length: int, end: int, final: bool, ext: int | None
) -> int:
    """After a resync: the first message longer than any before shows where it is cut, or that it is not."""
    floor = state.size_floor
    if ext is not None and state.dialect == ABSENT:
        ext = None
    mark_bytes = len(mark) if ext is None else len(mark) + 4
    sizes = split_sizes(buf[: data + length + mark_bytes * (length // floor) + 1], data, mark, length, floor, ext)
    far = data + length + mark_bytes * ((length - 1) // min(sizes, default=length)) + 18
    if far > end and not final:
        return state.wait(far)
    uncut = header_ok(state, buf, data + length, end, final)
    guess = state.chunk_size
    if guess < length and not is_strong(buf, data + length):
        after = header_ok(state, buf, data + guess, end, final)
        if buf.startswith(mark, data + guess) or after >= max(uncut, 1):
            state.size_floor = 0
            return 1
    best, best_size = 8 * uncut - 1, 0
    for size in sizes:
        cuts = (length - 1) // size
        stop = data + length + mark_bytes * cuts
        ok = header_ok(state, buf, stop, end, final)
        seen = 60 if is_strong(buf, stop) else 0 if len(mark) == 1 else 8 * len(mark) * cuts
        # it is cut somewhere, with or without proof behind it; or so that it ends where the recorded bytes do
        common = size in COMMON_SIZES and (uncut <= 0 or stop == end)
        if ext is None and not common and not believable_size(size, cuts, seen):
            continue
        if ok > 0 and 8 * (ok + cuts - 1) > best:
            best, best_size = 8 * (ok + cuts - 1), size
    if not best_size and uncut <= 0:  # cut, with another message in between
        best_size = next((size for size in COMMON_SIZES if floor <= size < length and is_strong(buf, data + size)), 0)
    if not best_size and uncut < 2 and ext is None:  # its last byte may look like a header
        best_size = _size_ahead(state, buf, data + length, mark_bytes, length, sizes, end, final)
        if best_size < 0:
            return -1
    if best_size:
        state.chunk_size, state.size_floor = best_size, 0
    elif uncut > 0:
        state.chunk_size, state.size_floor = MAX_CHUNK_SIZE, length
    elif final and data + length > end:  # cut by a loss: it is whole so far, or the guess cannot be judged
        if data + guess < end:
            state.chunk_size, state.size_floor = MAX_CHUNK_SIZE, max(floor, end - data)
    else:
        return state.lose("a message that ends nowhere, cut or not")
    return 1


def _size_ahead(
    state: ChunkState, buf: bytes, uncut: int, mark_bytes: int, length: int, sizes: list[int], end: int, final: bool
) -> int:
    """A size that nobody uses, and one message that is cut once or twice: do the next ones show the same?"""
    stops = {size: uncut + mark_bytes * ((length - 1) // size) for size in sizes}
    stops = {size: stop for size, stop in stops.items() if is_strong(buf, stop)}
    if not stops:
        return 0
    if end < uncut + SIZE_AHEAD and not final:
        return state.wait(uncut + SIZE_AHEAD)
    heads = {
        cs.csid: Head(cs.length, cs.type_id, cs.stream_id)
        for cs in state.streams.values()
        if not cs.stale and cs.length >= 0
    }
    seen = {size: cuts_ahead(buf, stop, size, heads) for size, stop in stops.items()}
    best = max(seen, key=lambda size: seen[size])
    return best if seen[best] > 1 and list(seen.values()).count(seen[best]) == 1 else 0
