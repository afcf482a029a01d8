"""The chunk size: the one that was announced, and the one in use.

A sender may announce a size and keep using another; after a loss it is unknown whether a new size was announced in the
lost bytes. The first message that the sizes in question would split differently shows which one is in use, by its
continuation headers and the header that follows it. Until then nothing is decided; afterwards the question is closed
until the next Set Chunk Size or loss.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import ViolationCode
from ..limits import SETTLE_BYTES, SIZE_AHEAD_BYTES
from ..message import DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE
from ..resync.cuts import COMMON_SIZES, believable_size, cuts_ahead, split_sizes
from ..resync.evidence import is_strong
from .cursor import Cursor
from .header import LONGEST_HEADER, ChunkHeader, continuation_header
from .lookahead import LIKELY, header_ok
from .state import ABSENT, ChunkState

_SETTLED: Final = 1


def resize(state: ChunkState, payload: bytes) -> None:
    """Apply a Set Chunk Size: bit 31 is masked, 0 keeps the size; message.parse_control reports both."""
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


def settle_at_first_cut(state: ChunkState, buf: bytes, data: int, length: int, csid: int) -> bool:
    """Whether the byte at which the smaller size would split the message at `data` shows that the new size is used."""
    new, old = state.chunk_size, state.old_size
    smaller = new if new < old else old
    first = data + smaller
    if not smaller < length <= SETTLE_BYTES or first >= len(buf) or (buf[first] == 0xC0 | csid) != (new < old):
        return False
    state.old_size = 0
    return True


def settle_size(state: ChunkState, at: Cursor, header: ChunkHeader) -> int:
    """Find out by the message at the cursor which chunk size is in use, and set it. Returns -1 to wait or if lost."""
    buf, end = at.buf, at.end
    length, data = header.length, header.data
    if state.size_floor and length <= SETTLE_BYTES:
        return _infer_size(state, at, header)
    if header.csid >= 64 or length > SETTLE_BYTES:
        state.old_size = state.size_floor = 0
        return _SETTLED
    mark = 0xC0 | header.csid
    new, old = state.chunk_size, state.old_size
    if length <= min(new, old):  # neither size splits it; a sender that ignores both still splits at the default
        return _settle_default(state, at, header)
    if settle_at_first_cut(state, buf, data, length, header.csid):
        return _SETTLED
    first = data + min(new, old)
    if first >= end:
        return _SETTLED if at.final else state.wait(first + 1)
    if new < old:  # is it split where it should be, with a chunk of another message in between?
        between = header_ok(state, at, first)
        if between < 0:
            return state.wait(end + 1)
        if between == LIKELY or (between and buf[first] < 0x80):
            state.old_size = 0
            return _SETTLED
    stops = [data + length + (length - 1) // size for size in (new, old)]
    if max(stops) + LONGEST_HEADER > end and not at.final:
        return state.wait(max(stops) + LONGEST_HEADER)
    fits_new, fits_old = (
        header_ok(state, at, stop) > 0 and _marks_fit(buf, data, stop, size, mark)
        for size, stop in ((new, stops[0]), (old, stops[1]))
    )
    if fits_old and not fits_new:
        _report_not_applied(state, old, at, data)
    elif not fits_new and old > DEFAULT_CHUNK_SIZE < new:
        if _settle_default(state, at, header) < 0:
            return -1
    state.old_size = 0
    return _SETTLED


def _marks_fit(buf: bytes, data: int, stop: int, size: int, mark: int) -> bool:
    """True if every `size` bytes from `data` to `stop` the continuation header `mark` follows."""
    marks = buf[data + size : stop : size + 1]
    return marks.count(mark) == (stop - data - 1) // (size + 1)


def _settle_default(state: ChunkState, at: Cursor, header: ChunkHeader) -> int:
    """Find out whether the message is split at 128 bytes although another size was announced."""
    size, length, data = DEFAULT_CHUNK_SIZE, header.length, header.data
    mark = 0xC0 | header.csid
    if at.buf[data + size : data + size + 1] != bytes((mark,)):
        return state.wait(data + size + 1) if data + size >= at.end and not at.final else _SETTLED
    stop = data + length + (length - 1) // size
    if stop + LONGEST_HEADER > at.end and not at.final:
        return state.wait(stop + LONGEST_HEADER)
    uncut = header_ok(state, at, data + length) > 0
    cut = header_ok(state, at, stop) > 0
    if cut and not uncut and _marks_fit(at.buf, data, stop, size, mark):
        _report_not_applied(state, size, at, data)
        state.old_size = 0
    return _SETTLED


def _report_not_applied(state: ChunkState, used: int, at: Cursor, data: int) -> None:
    detail = f"chunk size {state.chunk_size} was announced, but the sender still uses {used}"
    state.flag(at.out, ViolationCode.CHUNK_SIZE_NOT_APPLIED, state.base + data, detail, state.base + at.pos)
    state.chunk_size = used


class _Splitting(NamedTuple):
    """The ways in which one message may be split into chunks."""

    data: int
    length: int
    mark: bytes  # the continuation header
    mark_bytes: int  # with the extended timestamp, if it is repeated
    ext: int | None  # the extended timestamp that continuations repeat
    sizes: list[int]  # every chunk size that fits

    def stop(self, size: int) -> int:
        """Where the message ends if it is split at `size`."""
        return self.data + self.length + self.mark_bytes * ((self.length - 1) // size)


def _infer_size(state: ChunkState, at: Cursor, header: ChunkHeader) -> int:
    """After a resync: the first message longer than any before shows where it is split, or that it is not."""
    buf, end = at.buf, at.end
    data, length, floor = header.data, header.length, state.size_floor
    mark = continuation_header(buf, at.pos)
    ext = None if state.dialect == ABSENT else header.ext
    mark_bytes = len(mark) if ext is None else len(mark) + 4
    sizes = split_sizes(buf[: data + length + mark_bytes * (length // floor) + 1], data, mark, length, floor, ext)
    split = _Splitting(data, length, mark, mark_bytes, ext, sizes)
    far = split.stop(min(sizes, default=length)) + LONGEST_HEADER
    if far > end and not at.final:
        return state.wait(far)
    uncut = header_ok(state, at, data + length)
    guess = state.chunk_size
    if guess < length and not is_strong(buf, data + length):
        after = header_ok(state, at, data + guess)
        if buf.startswith(mark, data + guess) or after >= max(uncut, 1):
            state.size_floor = 0
            return _SETTLED
    size = _best_size(state, at, split, uncut)
    if not size and uncut <= 0:  # it is split, with a chunk of another message in between
        size = next((size for size in COMMON_SIZES if floor <= size < length and is_strong(buf, data + size)), 0)
    if not size and uncut < LIKELY and ext is None:  # its last byte may look like a header
        size = _size_ahead(state, at, split)
        if size < 0:
            return -1
    if size:
        state.chunk_size, state.size_floor = size, 0
    elif uncut > 0:
        state.chunk_size, state.size_floor = MAX_CHUNK_SIZE, length
    elif at.final and data + length > end:  # cut by a loss: it is whole so far, or the guess cannot be checked
        if data + guess < end:
            state.chunk_size, state.size_floor = MAX_CHUNK_SIZE, max(floor, end - data)
    else:
        return state.lose("no chunk size leads from this message to another header")
    return _SETTLED


def _best_size(state: ChunkState, at: Cursor, split: _Splitting, uncut: int) -> int:
    """The chunk size with the best evidence, if it is better than that for an unsplit message; else 0."""
    best, best_size = 8 * uncut - 1, 0
    for size in split.sizes:
        cuts = (split.length - 1) // size
        stop = split.stop(size)
        ok = header_ok(state, at, stop)
        seen = 60 if is_strong(at.buf, stop) else 0 if len(split.mark) == 1 else 8 * len(split.mark) * cuts
        # A common size needs no further proof if the message must be split, or if it then ends with the bytes.
        common = size in COMMON_SIZES and (uncut <= 0 or stop == at.end)
        if split.ext is None and not common and not believable_size(size, cuts, seen):
            continue
        if ok > 0 and 8 * (ok + cuts - 1) > best:
            best, best_size = 8 * (ok + cuts - 1), size
    return best_size


def _size_ahead(state: ChunkState, at: Cursor, split: _Splitting) -> int:
    """For an unusual size and a message split once or twice: the size that the next messages confirm, or 0."""
    stops = {size: split.stop(size) for size in split.sizes if is_strong(at.buf, split.stop(size))}
    if not stops:
        return 0
    far = split.data + split.length + SIZE_AHEAD_BYTES
    if at.end < far and not at.final:
        return state.wait(far)
    heads = {cs.csid: cs.head for cs in state.streams.values() if not cs.stale and cs.length >= 0}
    seen = {size: cuts_ahead(at.buf, stop, size, heads) for size, stop in stops.items()}
    best = max(seen, key=lambda size: seen[size])
    return best if seen[best] > 1 and list(seen.values()).count(seen[best]) == 1 else 0
