"""Follow messages forward through a buffer, and count what speaks for them.

A walk goes from header to header as the lengths and the chunk size say. Where these are not known it tries what they
may be (a size that cuts this message, an end of one that tells no length) and keeps the branch for which most speaks.
Every step is counted, and there are only so many: hostile bytes must not cost more than others.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from .cuts import MAX_SIZE, believable_size, maybe_cut, orphan_end, split_sizes
from .evidence import (
    CONTROL_LENGTHS,
    PROOF_BITS,
    PROOF_BITS_AT_END,
    header_bits,
    is_strong,
    looks_like_start,
    payload_bits,
    type_by_content,
)
from .header import Head, continuation, one_reading, read_header

ENOUGH_BITS = 120  # no need to walk further, ...
PATIENT_BITS = 1000  # unless a message is awaited that shows whether a guess was right
UNCUT_BITS = 16  # what must follow a message before it shows that it was not cut
TRUST_BITS = 28  # what must follow a message whose length is from before the loss
TRUST_BITS_AT_END = 20  # beyond its own, when nothing more will come
SHORTEST_BITS = 28  # what must follow a guessed length before no longer one is tried
GUESS_BITS = 12  # what a guessed length costs
ENDS_TRIED = 24  # of a message whose length is guessed
ORPHAN_BITS = 16  # what it costs to take the next thing that looks like a header for the end of a chunk
MAX_STEPS = 500  # headers looked at before an assumption about the size is given up, ...
STEPS_PER_BYTE = 1 / 32  # and more in a larger window, ...
MOST_STEPS = 4000  # but never more: whoever needs them is not sending RTMP
LEAST_EFFORT = 100  # of any search, in steps
# ADPCM, MP3, PCM, Nellymoser, G.711, Speex: audio whose first byte is all there is to see
_PLAIN_FORMATS = (1, 2, 3, 4, 5, 6, 7, 8, 11)


class Walk(NamedTuple):
    """What speaks for a chain of messages, and what was learnt along it."""

    bits: int
    size: int  # 0 while unknown
    floor: int
    heads: dict[int, Head]
    marks: dict[int, set[bytes]]  # per csid, how its payloads begin
    guessed: Mapping[int, Head] = MappingProxyType({})  # lengths that no header says
    orphans: frozenset[int] = frozenset()  # csids in the middle of a message at the start
    cuts: int = 0  # chunks that ended where the size says


class Sync(NamedTuple):
    """Where decoding can go on, and what to assume there."""

    position: int
    chunk_size: int
    size_floor: int  # 0: the chunk size is certain; else a guess, and it is at least this
    heads: dict[int, Head]  # what messages at and after `position` may refer back to
    orphans: frozenset[int]  # csids on which the rest of a message is still to come


class _UnderWay:
    """What has begun along a walk and goes on."""

    __slots__ = ("ext", "orphans", "rest", "started")

    def __init__(self) -> None:
        self.rest: dict[int, int] = {}  # bytes to come of messages
        self.ext: dict[int, int] = {}
        self.orphans: set[int] = set()
        self.started: set[int] = set()

    def copy(self) -> _UnderWay:
        other = _UnderWay()
        other.rest, other.ext = self.rest.copy(), self.ext.copy()
        other.orphans, other.started = self.orphans.copy(), self.started.copy()
        return other


class Chain:
    """Follows messages forward through a buffer."""

    def __init__(self, buf: bytes, anchors: list[int], dialect_absent: bool, final: bool) -> None:
        self.buf = buf
        self.anchors = anchors
        self.csids = {buf[anchor] & 63 for anchor in anchors}  # that are in use
        self.video_starts = _video_starts(buf, anchors)
        self.dialect_absent = dialect_absent
        self.final = final
        self.need = PROOF_BITS_AT_END if final else PROOF_BITS
        self.effort = LEAST_EFFORT + len(buf) // 64
        self.begin(interleaved=False)

    def begin(self, interleaved: bool, any_payload: bool = False) -> None:
        """Allow so many steps again; `any_payload` believes headers against what the payloads look like."""
        self.steps = min(int(MAX_STEPS + len(self.buf) * STEPS_PER_BYTE), MOST_STEPS)
        self.interleaved = interleaved
        self.any_payload = any_payload

    def _is_shorter(self, pos: int) -> bool:
        """Is what reads as a csid of two or three bytes, which nobody used, a byte before a header of one?"""
        short = pos + 1 + (self.buf[pos] & 63)
        return self.buf[short : short + 1] >= b"\x40" and is_strong(self.buf, short)

    def alone_bits(self, pos: int, heads: dict[int, Head]) -> int:
        """What the header at `pos` and the payload behind it say, whatever follows."""
        header = read_header(self.buf, pos, heads)
        if header is None:
            return -1
        inside = payload_bits(header.type_id, header.length, self.buf[header.data : header.data + 24])
        return header_bits(header, heads) + inside

    def walk(
        self,
        pos: int,
        size: int,
        known: dict[int, Head],
        floor: int = 0,
        guesses: int = 6,
        doubt: frozenset[int] | None = None,
        under_way: _UnderWay | None = None,
        awaited: frozenset[int] = frozenset(),
    ) -> Walk | None:
        """Follow the chain from `pos`. None when it breaks; what was gathered when it cannot be followed further.

        `size` 0 means that the chunk size is unknown, but at least `floor`; `doubt` names the csids whose heads are
        from before a loss, so that their lengths may have changed (None: all); those `awaited` must come again."""
        buf, end = self.buf, len(self.buf)
        heads: dict[int, Head] = dict(known)
        doubtful = set(known if doubt is None else doubt)
        now = _UnderWay() if under_way is None else under_way.copy()
        rest, ext, orphans, started = now.rest, now.ext, now.orphans, now.started
        marks: dict[int, set[bytes]] = {}
        bits = cuts = 0
        while bits < ENOUGH_BITS or (bits < PATIENT_BITS and not awaited.issubset(started)):
            self.steps -= 1
            self.effort += 1
            if self.steps < 0:
                return None
            header = read_header(buf, pos, heads)
            if header is None:
                break
            fmt, csid, data, _, ext_value, length, type_id, stream_id = header
            left = rest.get(csid, 0)
            if csid >= 64 and csid not in heads and self._is_shorter(pos):
                return None
            if fmt == 3 and left:
                bits += 8
                cuts += 1
                if csid in ext and not self.dialect_absent and int.from_bytes(buf[data : data + 4], "big") == ext[csid]:
                    data += 4
            elif left:
                return None  # a header inside an unfinished message
            else:
                if fmt >= 2 and csid in doubtful and not any(rest.values()):
                    trusting = self.walk(
                        pos, size, heads, floor, guesses, frozenset(doubtful - {csid}), now, awaited - started
                    )
                    enough = TRUST_BITS
                    if self.final:
                        own = payload_bits(type_id, length, buf[data : data + 24])
                        enough = TRUST_BITS_AT_END + header_bits(header, heads) + own
                    if trusting is not None and trusting.bits >= enough:
                        return _join(bits, cuts, marks, trusting)
                    length = type_id = -1
                if fmt == 3 and csid in ext and not self.dialect_absent:
                    data += 4
                if length < 0:
                    onward = (
                        self._guess(data, csid, type_id, size, floor, heads, guesses, doubtful, now, awaited - started)
                        if guesses
                        else None
                    )
                    if onward is not None:
                        return _join(bits, cuts, marks, onward)
                    seen = csid in self.csids or csid in heads
                    if fmt == 3 and size and self.interleaved and seen and csid not in started:
                        orphans.add(csid)
                        pending = {0xC0 | other: more for other, more in rest.items() if more}
                        stop = orphan_end(buf, data, size, pending, {0xC0 | other for other in orphans})
                        scanned = ((stop or data + size) - data) // 256
                        self.steps -= scanned
                        self.effort += scanned
                        if stop is not None:
                            bits -= 0 if stop == data + size else ORPHAN_BITS
                            pos = stop
                            continue
                    break  # it cannot be followed, but need not be wrong
                worth = header_bits(header, heads)
                head = buf[data : data + 24]
                inside = payload_bits(type_id, length, head)
                if inside < 0 and self.any_payload and type_id not in CONTROL_LENGTHS:
                    inside = 0
                if worth < 0 or inside < 0:
                    return None
                bits += worth + inside
                started.add(csid)
                heads[csid] = Head(length, type_id, stream_id)
                if fmt < 2:
                    doubtful.discard(csid)
                    ext.pop(csid, None)
                if ext_value is not None:
                    ext[csid] = ext_value
                if length:
                    marks.setdefault(csid, set()).add(head[:3])
                left = length
                repeated = None if self.dialect_absent else ext.get(csid)
                if not size and left > floor:
                    mark = continuation(buf, pos)
                    onward = self._branch(
                        data, mark, length, floor, heads, guesses, doubtful, repeated, awaited - started
                    )
                    return None if onward is None else _join(bits, cuts, marks, onward)
            count = min(size or MAX_SIZE, left)
            rest[csid] = left - count
            pos = data + count
            if pos > end:
                if self.final:
                    bits -= 8  # a message cut by the end proves less
                break
        return Walk(bits, size, floor, heads, marks, orphans=frozenset(orphans), cuts=cuts)

    def _branch(
        self,
        data: int,
        mark: bytes,
        length: int,
        floor: int,
        heads: dict[int, Head],
        guesses: int,
        doubtful: set[int],
        ext: int | None,
        awaited: frozenset[int],
    ) -> Walk | None:
        """The size is unknown and this message is longer than any before: it is cut somewhere, or not at all."""
        best: Walk | None = None
        end = len(self.buf)
        mark_bytes = len(mark)
        for size in (0, *split_sizes(self.buf, data, mark, length, floor, ext)):
            cuts = (length - 1) // size if size else 0
            stop = data + length + cuts * (mark_bytes if ext is None else mark_bytes + 4)
            if stop <= end:
                onward = self.walk(
                    stop, size, heads, 0 if size else length, guesses, frozenset(doubtful), awaited=awaited
                )
            else:  # not seen whole: an uncut message proves nothing about the size
                cuts = (end - data) // (size + mark_bytes) if size else 0
                onward = Walk(0, size, 0 if size else floor, heads, {}) if cuts > 1 or not size else None
            if onward is not None and size and not believable_size(size, cuts, onward.bits):
                continue
            if onward is not None and not size and onward.bits < UNCUT_BITS:
                onward = onward._replace(floor=floor)
            if onward is not None and (best is None or onward.bits + 8 * cuts > best.bits):
                best = onward._replace(bits=onward.bits + 8 * cuts, cuts=onward.cuts + cuts)
        return best

    def _guess(
        self,
        data: int,
        csid: int,
        type_id: int,
        size: int,
        floor: int,
        heads: dict[int, Head],
        guesses: int,
        doubtful: set[int],
        now: _UnderWay,
        awaited: frozenset[int],
    ) -> Walk | None:
        """fmt 2 or 3 whose length is unknown: it ends at a later header after which the chain goes on."""
        buf = self.buf
        if type_id < 0:
            type_id = type_by_content(buf[data : data + 24])
        if type_id < 0 and data < len(buf) and self.video_starts and buf[data : data + 1] not in self.video_starts:
            type_id = 8  # both could begin like this, but the video here begins otherwise
        inside = payload_bits(type_id, 1, buf[data : data + 24]) if type_id >= 0 else -1
        if inside < 0 or csid >= 64 or (type_id == 8 and inside < 8 and buf[data] >> 4 not in _PLAIN_FORMATS):
            return None
        price = GUESS_BITS if inside >= 8 or csid in heads else 2 * GUESS_BITS
        best: Walk | None = None
        for stop in self._ends(data, csid, heads):
            length = stop - data
            if size and length > size:
                length -= (length - 1) // (size + 1)
                if buf[data + size : stop : size + 1].count(0xC0 | csid) != (length - 1) // size:
                    continue
            if not size and maybe_cut(buf, data, csid, length, floor):
                continue
            certain = frozenset(doubtful - {csid})
            known = {**heads, csid: Head(length, type_id, 1)}
            onward = self.walk(stop, size, known, floor, guesses - 1, certain, now, awaited | {csid})
            first = buf[data : data + 1]
            if onward is None or not any(mark[:1] == first for mark in onward.marks.get(csid, ())):
                continue  # to be believed it must come again and look alike
            if best is None or onward.bits - price > best.bits:
                head = Head(length, type_id, 1)
                best = onward._replace(bits=onward.bits - price, guessed={**onward.guessed, csid: head})
                best.marks[csid].add(buf[data : data + 3])
                if best.bits >= SHORTEST_BITS:
                    break  # a header with a length is not by chance inside a longer message
        return best

    def _ends(self, data: int, csid: int, heads: dict[int, Head]) -> list[int]:
        """Where a message of `csid` at `data` may end: at a header with a length, at another of its own kind, or at
        one of another csid in use whose payload says loudly what it is."""
        buf = self.buf
        first = bisect_left(self.anchors, data + 1)
        ends = one_reading(buf, self.anchors[first : first + 32], heads)[:ENDS_TRIED]
        limit = ends[-1] if len(ends) == ENDS_TRIED else len(buf)
        headers = {fmt << 6 | other for other in {csid, *self.csids, *heads} if 1 < other < 64 for fmt in (2, 3)}
        compact = re.compile(b"[" + b"".join(re.escape(bytes((byte,))) for byte in sorted(headers)) + b"]")
        same = buf[data : data + 1]
        found = 0
        for match in compact.finditer(buf, data + 1, limit):
            pos = match.start()
            short = buf[pos] >= 0xC0
            if not short and buf[pos + 1 : pos + 2] != b"\0":
                continue
            head = buf[pos + 1 : pos + 25] if short else buf[pos + 4 : pos + 28]
            if head[:1] == same if buf[pos] & 63 == csid else looks_like_start(head):
                ends.append(pos)
                found += 1
                if found == ENDS_TRIED:
                    break
        return sorted(ends)[:ENDS_TRIED]


def _join(bits: int, cuts: int, marks: dict[int, set[bytes]], onward: Walk) -> Walk:
    for csid, heads in marks.items():
        onward.marks.setdefault(csid, set()).update(heads)
    return onward._replace(bits=bits + onward.bits, cuts=cuts + onward.cuts)


def _video_starts(buf: bytes, anchors: list[int]) -> set[bytes]:
    """How the payloads of video begin here, as far as headers that say a length tell."""
    seen: Counter[bytes] = Counter()
    for anchor in anchors[:200]:
        header = read_header(buf, anchor, {})
        if header is not None and header.type_id == 9 and header.csid < 64:
            head = buf[header.data : header.data + 24]
            if payload_bits(9, header.length, head) > 0:
                seen[head[:1]] += 1
    return {first for first, times in seen.items() if times > 1 and times * 10 >= seen.total()}
