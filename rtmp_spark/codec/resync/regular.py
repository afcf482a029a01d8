"""Messages of which no header says a length, found by their regularity.

Audio in frames of one length, with headers of fmt 3 alone or with some of fmt 2 between them, and a receiver that sends
nothing but Acknowledgements. What comes again and again may as well be a tone, a pattern or the cuts of one long
message: where anything says so, nothing is found.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise

from ..message import ACKNOWLEDGEMENT, AUDIO
from .chain import Chain, Sync
from .cuts import COMMON_SIZES, MAX_SIZE
from .header import HEADER_BYTES, NO_HEAD, Head

SHORTEST_ALIKE = 8  # bytes; so close together anything comes again
ALIKE_TIMES = 8  # how often such a message must come, or half as often up to a header with a length
ROWS_TRIED = 8  # first messages from which a row of them is looked for
RECEIPT_BYTES = 5  # an Acknowledgement of fmt 3
MOST_UNRECEIVED = 1 << 28  # bytes between two of them

# fmt 3, and the first byte of audio that is sent in frames of one length
_ALIKE = re.compile(rb"(?=([\xc2-\xff][\x10-\x8f\xb0-\xbf\xe0-\xef]))", re.DOTALL)

# the same, or fmt 2 with a step of less than 4 s
_IN_A_ROW = re.compile(rb"(?=([\xc2-\xff]|[\x82-\xbf]\x00[\x00-\x0f].)[\x10-\x8f\xb0-\xbf\xe0-\xef])", re.DOTALL)


def all_alike(buf: bytes, chain: Chain) -> Sync | None:
    """Audio in messages of one length is sent with fmt 3 only: the same two bytes, again and again at one distance.

    Nothing may contradict: the chain goes to the end of the bytes or to a header with a length, and no other pair
    of bytes comes at that distance, as it would in a tone, nor this one in between, as it would in a pattern."""
    places: dict[bytes, list[int]] = {}
    for match in _ALIKE.finditer(buf):
        places.setdefault(match[1], []).append(match.start())
    found: dict[int, dict[int, bytes]] = {}  # distance, place: bytes
    dense: set[tuple[int, bytes]] = set()
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    for pair, at in places.items():
        if len(at) < ALIKE_TIMES // 2:
            continue
        known = set(at)
        for number, first in enumerate(at[:8], 1):
            for second in at[number : number + 16]:
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
                    if bisect_left(at, stop) - number + 1 > 2 * times - times // 2:  # they stand in between as well
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
    return Sync(first, MAX_SIZE, step - 1, {pair[0] & 63: Head(step - 1, 8, 1)}, frozenset())


def in_a_row(buf: bytes, chain: Chain, known: dict[int, Head], chunk_size: int) -> Sync | None:
    """The same with fmt 2 wherever the rounded step of time changes: one length, and a header of one or four bytes
    in front of it. Where the length is known from before a loss, half as many are enough, and fmt 3 alone."""
    places: dict[tuple[int, int], dict[int, int]] = {}  # csid and first byte: header, payload
    for match in _IN_A_ROW.finditer(buf):
        data = match.end(1)
        places.setdefault((buf[match.start()] & 63, buf[data]), {})[match.start()] = data
    ends = set(chain.anchors)
    chain.effort += len(buf) // 64
    rows: dict[tuple[int, bool], dict[tuple[int, int, int], int]] = {}  # length, as before: csid, byte, stop; first
    for (csid, byte), at in places.items():
        told = known.get(csid, NO_HEAD)
        enough = ALIKE_TIMES // 2 if told.type_id == AUDIO else ALIKE_TIMES
        if len(at) < enough:
            continue
        order = list(at)
        for number, first in enumerate(order[:ROWS_TRIED], 1):
            for second in order[number : number + 16]:
                length = second - at[first]
                as_before = told.type_id == AUDIO and length == told.length
                if length <= SHORTEST_ALIKE or (chunk_size and length > chunk_size):
                    continue
                times, twos, pos = 0, 0, first
                while pos in at:
                    times, twos, pos = times + 1, twos + (buf[pos] < 0xC0), at[pos] + length
                chain.effort += 1 + times // 16
                goes_on = pos >= len(buf) - HEADER_BYTES[2] or pos in ends
                mixed = 1 < twos < times and times >= ALIKE_TIMES
                if goes_on and times >= enough and (as_before or mixed):
                    rows.setdefault((length, as_before), {}).setdefault((csid, byte, pos), first)
    # a longer one may go from some messages of the row to others of it; two of one length are a tone or a pattern
    best = min(rows, key=lambda row: (not row[1], row[0]), default=(0, False))
    if len(rows.get(best, ())) != 1:
        return None
    ((csid, byte, _), first), *_ = rows[best].items()
    length = best[0]
    if chunk_size:
        return Sync(first, chunk_size, chunk_size, {**known, csid: Head(length, AUDIO, 1)}, frozenset())
    size = _always_cut(buf, places[csid, byte], first, length)
    if size < 0:
        return None
    if size:
        return Sync(first, size, 0, {csid: Head(length - length // (size + 1), AUDIO, 1)}, frozenset())
    return Sync(first, MAX_SIZE, length, {csid: Head(length, AUDIO, 1)}, frozenset())


def _always_cut(buf: bytes, at: dict[int, int], first: int, length: int) -> int:
    """The size at which each message of a row is cut, 0 where no message is, -1 where it cannot be told."""
    mark = 0xC0 | buf[first] & 63
    marks = set(range(1, length))  # where that byte stands in each of them
    while first in at and marks:
        data = at[first]
        marks = {offset for offset in marks if buf[data + offset : data + offset + 1] in (b"", bytes((mark,)))}
        first = data + length
    size = min(marks, default=0)
    if not size:
        return 0
    return size if size in COMMON_SIZES and marks.issuperset(range(size, length, size + 1)) else -1


def all_receipts(buf: bytes, to_the_end: bool) -> Sync | None:
    """A receiver that says nothing but how much it got: fmt 3 on csid 2 and a number that grows (RTMP 1.0 5.4.3)."""
    phases = range(min(RECEIPT_BYTES, len(buf))) if to_the_end else (len(buf) % RECEIPT_BYTES,)
    for first in phases:
        marks = buf[first::RECEIPT_BYTES]
        if len(marks) > ALIKE_TIMES // 2 and marks.count(0xC2) == len(marks):
            starts = range(first + 1, len(buf) - RECEIPT_BYTES + 2, RECEIPT_BYTES)
            numbers = [int.from_bytes(buf[at : at + 4], "big") for at in starts]
            if all(0 < later - number < MOST_UNRECEIVED for number, later in pairwise(numbers)):
                return Sync(first, MAX_SIZE, 4, {2: Head(4, ACKNOWLEDGEMENT, 0)}, frozenset())
    return None


def _marks_of_chunks(buf: bytes, first: int, step: int) -> bool:
    """Are these the continuations of one long message, with the like of them in between?"""
    some = range(first, min(first + ALIKE_TIMES // 2 * step, len(buf)))
    sizes = [size for size in COMMON_SIZES if step % (size + 1) == 0]
    return any(all(buf[at] == buf[first] for at in some[:: size + 1]) for size in sizes)


def _repeats_itself(buf: bytes, first: int, step: int) -> bool:
    """Is what comes after one step mostly the same again? That is a pattern or a tone, and no row of messages."""
    stop = min(first + ALIKE_TIMES // 2 * step, len(buf) - step)
    same = sum(buf[at] == buf[at + step] for at in range(first, stop))
    return same * 3 > stop - first
