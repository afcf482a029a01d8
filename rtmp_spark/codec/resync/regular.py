"""Messages without any header that carries a length, recognised by their regularity.

These are audio in frames of one length, with headers of fmt 3 alone or with some of fmt 2 between them, and a receiver
that sends nothing but Acknowledgements. Regular bytes may also be a tone, a pattern, or the continuation headers of one
long message: if anything suggests that, nothing is found.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

from ..chunk.header import HEADER_BYTES, NO_HEAD, Head
from ..limits import ALIKE_TIMES, MOST_UNRECEIVED, ROWS_TRIED, SECONDS_TRIED, SHORTEST_ALIKE
from ..message import ACKNOWLEDGEMENT, AUDIO, MAX_CHUNK_SIZE
from .chain import Chain, Sync
from .cuts import COMMON_SIZES

_ACKNOWLEDGEMENT_BYTES = 5  # basic header of fmt 3 and the body

# fmt 3, and the first byte of audio that is sent in frames of one length
_ALIKE = re.compile(rb"(?=([\xc2-\xff][\x10-\x8f\xb0-\xbf\xe0-\xef]))", re.DOTALL)

# the same, or fmt 2 with a delta of less than 4 s
_IN_A_ROW = re.compile(rb"(?=([\xc2-\xff]|[\x82-\xbf]\x00[\x00-\x0f].)[\x10-\x8f\xb0-\xbf\xe0-\xef])", re.DOTALL)


class _Length(NamedTuple):
    length: int
    as_before: bool  # the length of this csid before the loss


class _Row(NamedTuple):
    """Messages of one length, each beginning where the previous one ends."""

    csid: int
    byte: int  # first byte of each payload
    stop: int


def fixed_length_audio(buf: bytes, chain: Chain) -> Sync | None:
    """Audio in messages of one length, sent with fmt 3 only: header and first byte repeat at one distance.

    Nothing may contradict it: the chain reaches the end of the bytes or a header with a length; no other pair of bytes
    repeats at that distance (a tone would), and this pair does not also occur in between (a pattern would)."""
    places: dict[bytes, list[int]] = {}
    for match in _ALIKE.finditer(buf):
        places.setdefault(match[1], []).append(match.start())
    found: dict[int, dict[int, bytes]] = {}  # distance -> phase -> the two bytes
    dense: set[tuple[int, bytes]] = set()
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    for pair, at in places.items():
        if len(at) < ALIKE_TIMES // 2:
            continue
        known = set(at)
        for number, first in enumerate(at[:ROWS_TRIED], 1):
            for second in at[number : number + SECONDS_TRIED]:
                step = second - first
                if step <= SHORTEST_ALIKE:
                    continue
                times, stop = 1, second
                while stop in known:
                    times, stop = times + 1, stop + step
                chain.effort += 1 + times // 16
                wanted = ALIKE_TIMES // 2 if stop in ends else ALIKE_TIMES if stop >= len(buf) - 1 else len(buf)
                if times >= wanted:
                    found.setdefault(step, {})[first % step] = pair
                    if bisect_left(at, stop) - number + 1 > 2 * times - times // 2:  # the pair also occurs in between
                        dense.add((step, pair))
    single = {step: next(iter(phases)) for step, phases in found.items() if len(phases) == 1}
    step = min(single, default=1)
    if not single or any(other % step or phase % step != single[step] for other, phase in single.items()):
        return None
    phase = single[step]
    pair = found[step][phase]
    first = next(at for at in places[pair] if at % step == phase)
    if (step, pair) in dense or _marks_of_chunks(buf, first, step) or _repeats_itself(buf, first, step):
        return None
    return Sync(first, MAX_CHUNK_SIZE, step - 1, {pair[0] & 63: Head(step - 1, AUDIO, 1)}, frozenset())


def fixed_length_audio_with_deltas(buf: bytes, chain: Chain, known: dict[int, Head], chunk_size: int) -> Sync | None:
    """The same with fmt 2 wherever the rounded delta changes: one length, and headers of one or four bytes.

    If the length is known from before a loss, half as many messages are enough, and all may have fmt 3."""
    places: dict[tuple[int, int], dict[int, int]] = {}  # csid, first byte -> position of header -> of payload
    for match in _IN_A_ROW.finditer(buf):
        data = match.end(1)
        places.setdefault((buf[match.start()] & 63, buf[data]), {})[match.start()] = data
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    rows: dict[_Length, dict[_Row, int]] = {}  # with the position of the first message
    for (csid, byte), at in places.items():
        head = known.get(csid, NO_HEAD)
        enough = ALIKE_TIMES // 2 if head.type_id == AUDIO else ALIKE_TIMES
        if len(at) < enough:
            continue
        order = list(at)
        for number, first in enumerate(order[:ROWS_TRIED], 1):
            for second in order[number : number + SECONDS_TRIED]:
                length = second - at[first]
                as_before = head.type_id == AUDIO and length == head.length
                if length <= SHORTEST_ALIKE or (chunk_size and length > chunk_size):
                    continue
                times, twos, pos = 0, 0, first
                while pos in at:
                    times, twos, pos = times + 1, twos + (buf[pos] < 0xC0), at[pos] + length
                chain.effort += 1 + times // 16
                reaches_end = pos >= len(buf) - HEADER_BYTES[2] or pos in ends
                mixed = 1 < twos < times and times >= ALIKE_TIMES
                if reaches_end and times >= enough and (as_before or mixed):
                    rows.setdefault(_Length(length, as_before), {}).setdefault(_Row(csid, byte, pos), first)
    # A longer length may lead from one message of the row to another; two rows of one length are a tone or a pattern.
    best = min(rows, key=lambda row: (not row.as_before, row.length), default=_Length(0, False))
    if len(rows.get(best, ())) != 1:
        return None
    ((csid, byte, _), first), *_ = rows[best].items()
    length = best.length
    if chunk_size:
        return Sync(first, chunk_size, chunk_size, {**known, csid: Head(length, AUDIO, 1)}, frozenset())
    size = _always_cut(buf, places[csid, byte], first, length)
    if size < 0:
        return None
    if size:
        return Sync(first, size, 0, {csid: Head(length - length // (size + 1), AUDIO, 1)}, frozenset())
    return Sync(first, MAX_CHUNK_SIZE, length, {csid: Head(length, AUDIO, 1)}, frozenset())


def _always_cut(buf: bytes, at: dict[int, int], first: int, length: int) -> int:
    """The chunk size at which each message of a row is split; 0 if none is, -1 if it cannot be decided."""
    mark = 0xC0 | buf[first] & 63
    marks = set(range(1, length))  # offsets at which each of them has that byte
    while first in at and marks:
        data = at[first]
        marks = {offset for offset in marks if buf[data + offset : data + offset + 1] in (b"", bytes((mark,)))}
        first = data + length
    size = min(marks, default=0)
    if not size:
        return 0
    return size if size in COMMON_SIZES and marks.issuperset(range(size, length, size + 1)) else -1


def acknowledgements_only(buf: bytes, to_the_end: bool) -> Sync | None:
    """A receiver that only acknowledges: fmt 3 on csid 2 and a growing number (RTMP 1.0 5.4.3)."""
    phases = range(min(_ACKNOWLEDGEMENT_BYTES, len(buf))) if to_the_end else (len(buf) % _ACKNOWLEDGEMENT_BYTES,)
    for first in phases:
        marks = buf[first::_ACKNOWLEDGEMENT_BYTES]
        if len(marks) > ALIKE_TIMES // 2 and marks.count(0xC2) == len(marks):
            starts = range(first + 1, len(buf) - _ACKNOWLEDGEMENT_BYTES + 2, _ACKNOWLEDGEMENT_BYTES)
            numbers = [int.from_bytes(buf[at : at + 4], "big") for at in starts]
            if all(0 < later - number < MOST_UNRECEIVED for number, later in pairwise(numbers)):
                return Sync(first, MAX_CHUNK_SIZE, 4, {2: Head(4, ACKNOWLEDGEMENT, 0)}, frozenset())
    return None


def _marks_of_chunks(buf: bytes, first: int, step: int) -> bool:
    """True if these are the continuation headers of one long message, with more of them in between."""
    some = range(first, min(first + ALIKE_TIMES // 2 * step, len(buf)))
    sizes = [size for size in COMMON_SIZES if step % (size + 1) == 0]
    return any(all(buf[at] == buf[first] for at in some[:: size + 1]) for size in sizes)


def _repeats_itself(buf: bytes, first: int, step: int) -> bool:
    """True if most bytes equal those one step later: a pattern or a tone, not a row of messages."""
    stop = min(first + ALIKE_TIMES // 2 * step, len(buf) - step)
    same = sum(buf[at] == buf[at + step] for at in range(first, stop))
    return same * 3 > stop - first
