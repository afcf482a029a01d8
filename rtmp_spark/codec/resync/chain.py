"""Follow messages forward through a buffer, and count the evidence for them.

A walk goes from header to header as lengths and chunk size say. If these are unknown it tries the possibilities (a size
that splits this message, an end of one whose length is unknown) and keeps the branch with the most evidence. The number
of steps is bounded, so that hostile bytes cost no more than others.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..chunk.header import ChunkHeader, Head, continuation_header
from ..limits import (
    ENDS_TRIED,
    ENOUGH_BITS,
    GUESS_BITS,
    GUESSES,
    LEAST_EFFORT,
    MAX_STEPS,
    MOST_STEPS,
    ORPHAN_BITS,
    PATIENT_BITS,
    PAYLOAD_HEAD_BYTES,
    PROOF_BITS,
    PROOF_BITS_AT_END,
    SHORTEST_BITS,
    STEPS_PER_BYTE,
    TRUST_BITS,
    TRUST_BITS_AT_END,
    UNCUT_BITS,
)
from ..message import AUDIO, CONTROL_TYPES, MAX_CHUNK_SIZE, VIDEO
from .anchors import one_reading, read_header
from .cuts import believable_size, maybe_cut, orphan_end, split_sizes
from .evidence import header_bits, is_strong, looks_like_start, payload_bits, type_by_content

# ADPCM, MP3, PCM, Nellymoser, G.711, Speex: formats whose audio shows nothing but its first byte
_PLAIN_FORMATS = (1, 2, 3, 4, 5, 6, 7, 8, 11)
_STOP = -1  # the chain cannot be followed further, which does not make it wrong


class Walk(NamedTuple):
    """The evidence for a chain of messages, and what was learnt along it."""

    bits: int
    size: int  # chunk size; 0 while unknown
    floor: int  # if it is unknown: at least this
    heads: dict[int, Head]
    marks: dict[int, set[bytes]]  # per csid, how its payloads begin
    guessed: Mapping[int, Head] = MappingProxyType({})  # lengths that no header carries
    orphans: frozenset[int] = frozenset()  # csids in the middle of a message at the start
    cuts: int = 0  # chunks that ended where the size says


class Sync(NamedTuple):
    """Where decoding can continue, and what to assume there."""

    position: int
    chunk_size: int
    size_floor: int  # 0: the chunk size is certain; otherwise it is a guess of at least this
    heads: dict[int, Head]  # what messages at and after `position` may refer back to
    orphans: frozenset[int]  # csids on which the rest of a message is still to come


class Assumed(NamedTuple):
    """What a walk assumes about the sender."""

    size: int  # chunk size; 0: unknown
    floor: int = 0  # if it is unknown: at least this
    guesses: int = GUESSES  # lengths that may still be guessed
    doubtful: frozenset[int] | None = None  # csids whose heads are from before a loss and may be outdated; None: all
    awaited: frozenset[int] = frozenset()  # csids that must appear again to confirm a guess


class _Unfinished:
    """Messages that have begun along a walk, and which of them are not finished."""

    __slots__ = ("ext", "orphans", "rest", "started")

    def __init__(self) -> None:
        self.rest: dict[int, int] = {}  # bytes to come of messages
        self.ext: dict[int, int] = {}  # extended timestamps
        self.orphans: set[int] = set()
        self.started: set[int] = set()

    def copy(self) -> _Unfinished:
        other = _Unfinished()
        other.rest, other.ext = self.rest.copy(), self.ext.copy()
        other.orphans, other.started = self.orphans.copy(), self.started.copy()
        return other


class _Trail:
    """What a walk has gathered so far."""

    __slots__ = ("bits", "cuts", "doubtful", "heads", "marks", "now")

    def __init__(self, known: dict[int, Head], doubtful: frozenset[int] | None, now: _Unfinished | None) -> None:
        self.bits = self.cuts = 0
        self.heads = dict(known)
        self.doubtful = set(known if doubtful is None else doubtful)
        self.marks: dict[int, set[bytes]] = {}
        self.now = _Unfinished() if now is None else now.copy()

    def joined(self, onward: Walk) -> Walk:
        """The walk that continues this one, with what was gathered before it."""
        for csid, heads in self.marks.items():
            onward.marks.setdefault(csid, set()).update(heads)
        return onward._replace(bits=self.bits + onward.bits, cuts=self.cuts + onward.cuts)

    def onward(self, assumed: Assumed) -> Assumed:
        """What a walk that continues this one assumes."""
        return assumed._replace(doubtful=frozenset(self.doubtful), awaited=assumed.awaited - self.now.started)


class Chain:
    """Follows messages forward through a buffer."""

    def __init__(self, buf: bytes, anchors: list[int], dialect_absent: bool, final: bool) -> None:
        self.buf = buf
        self.anchors = anchors
        self.csids = {buf[anchor] & 63 for anchor in anchors}  # csids in use
        self.video_starts = _video_starts(buf, anchors)
        self.dialect_absent = dialect_absent
        self.final = final
        self.need = PROOF_BITS_AT_END if final else PROOF_BITS
        self.effort = LEAST_EFFORT + len(buf) // 64
        self.begin(interleaved=False)

    def begin(self, interleaved: bool, any_payload: bool = False) -> None:
        """Renew the number of steps. `any_payload` accepts headers even if payloads contradict their type."""
        self.steps = min(int(MAX_STEPS + len(self.buf) * STEPS_PER_BYTE), MOST_STEPS)
        self.interleaved = interleaved
        self.any_payload = any_payload

    def _head_at(self, data: int) -> bytes:
        return self.buf[data : data + PAYLOAD_HEAD_BYTES]

    def _is_shorter(self, pos: int) -> bool:
        """True if an apparent multi-byte csid is really a stray byte before a one-byte header."""
        short = pos + 1 + (self.buf[pos] & 63)
        return self.buf[short : short + 1] >= b"\x40" and is_strong(self.buf, short)

    def alone_bits(self, pos: int, heads: dict[int, Head]) -> int:
        """The evidence of the header at `pos` and the start of its payload, without what follows."""
        header = read_header(self.buf, pos, heads)
        if header is None:
            return -1
        return header_bits(header, heads) + payload_bits(header.type_id, header.length, self._head_at(header.data))

    def walk(
        self, pos: int, known: dict[int, Head], assumed: Assumed, unfinished: _Unfinished | None = None
    ) -> Walk | None:
        """Follow the chain from `pos`. None if it breaks; what was gathered if it cannot be followed further.

        `known` holds the last head of each csid, `unfinished` the messages that have begun before `pos`."""
        buf, end = self.buf, len(self.buf)
        trail = _Trail(known, assumed.doubtful, unfinished)
        awaited, started = assumed.awaited, trail.now.started
        while trail.bits < ENOUGH_BITS or (trail.bits < PATIENT_BITS and not awaited.issubset(started)):
            self.steps -= 1
            self.effort += 1
            if self.steps < 0:
                return None
            header = read_header(buf, pos, trail.heads)
            if header is None:
                break
            if header.csid >= 64 and header.csid not in trail.heads and self._is_shorter(pos):
                return None
            left = trail.now.rest.get(header.csid, 0)
            step: int | Walk | None
            if not left:
                step = self._message(pos, header, trail, assumed)
                if step is None or isinstance(step, Walk):
                    return step
            elif header.fmt == 3:
                step = self._continuation(header, left, trail, assumed.size)
            else:
                return None  # a header inside an unfinished message
            if step < 0:
                break
            pos = step
            if pos > end:
                if self.final:
                    trail.bits -= 8  # a message cut by the end proves less
                break
        orphans = frozenset(trail.now.orphans)
        return Walk(trail.bits, assumed.size, assumed.floor, trail.heads, trail.marks, orphans=orphans, cuts=trail.cuts)

    def _continuation(self, header: ChunkHeader, left: int, trail: _Trail, size: int) -> int:
        """A further chunk of an unfinished message, which lacks `left` bytes. Returns where the chunk ends."""
        csid, data, ext = header.csid, header.data, trail.now.ext
        trail.bits += 8
        trail.cuts += 1
        if csid in ext and not self.dialect_absent and int.from_bytes(self.buf[data : data + 4], "big") == ext[csid]:
            data += 4
        count = min(size or MAX_CHUNK_SIZE, left)
        trail.now.rest[csid] = left - count
        return data + count

    def _message(self, pos: int, header: ChunkHeader, trail: _Trail, assumed: Assumed) -> int | Walk | None:
        """A header that starts a message. Returns where its first chunk ends, _STOP, the best of several ways to
        follow the rest of the chain, or None if the chain is broken here."""
        now, heads = trail.now, trail.heads
        fmt, csid, data, ext = header.fmt, header.csid, header.data, header.ext
        length, type_id = header.length, header.type_id
        if fmt >= 2 and csid in trail.doubtful and not any(now.rest.values()):
            trusting = self._trusting(pos, header, trail, assumed)
            if trusting is not None:
                return trusting
            length = type_id = -1
        if fmt == 3 and csid in now.ext and not self.dialect_absent:
            data += 4
        if length < 0:
            return self._unknown_length(header, data, type_id, trail, assumed)
        worth = header_bits(header, heads)
        head = self._head_at(data)
        inside = payload_bits(type_id, length, head)
        if inside < 0 and self.any_payload and type_id not in CONTROL_TYPES:
            inside = 0
        if worth < 0 or inside < 0:
            return None
        trail.bits += worth + inside
        now.started.add(csid)
        heads[csid] = Head(length, type_id, header.stream_id)
        if fmt < 2:
            trail.doubtful.discard(csid)
            now.ext.pop(csid, None)
        if ext is not None:
            now.ext[csid] = ext
        if length:
            trail.marks.setdefault(csid, set()).add(head[:3])
        if not assumed.size and length > assumed.floor:
            repeated = None if self.dialect_absent else now.ext.get(csid)
            mark = continuation_header(self.buf, pos)
            onward = self._split(data, mark, length, repeated, heads, trail.onward(assumed))
            return None if onward is None else trail.joined(onward)
        count = min(assumed.size or MAX_CHUNK_SIZE, length)
        now.rest[csid] = length - count
        return data + count

    def _trusting(self, pos: int, header: ChunkHeader, trail: _Trail, assumed: Assumed) -> Walk | None:
        """The chain if the length from before the loss still holds for this header, and what follows proves it."""
        onward = trail.onward(assumed)
        certain = frozenset(trail.doubtful - {header.csid})
        trusting = self.walk(pos, trail.heads, onward._replace(doubtful=certain), trail.now)
        enough = TRUST_BITS
        if self.final:
            own = payload_bits(header.type_id, header.length, self._head_at(header.data))
            enough = TRUST_BITS_AT_END + header_bits(header, trail.heads) + own
        return trail.joined(trusting) if trusting is not None and trusting.bits >= enough else None

    def _unknown_length(
        self, header: ChunkHeader, data: int, type_id: int, trail: _Trail, assumed: Assumed
    ) -> int | Walk:
        """fmt 2 or 3 whose length is unknown: guess it, or skip a chunk of a message that began before the walk."""
        csid, size, now = header.csid, assumed.size, trail.now
        if assumed.guesses:
            onward = self._guess(data, csid, type_id, trail, trail.onward(assumed))
            if onward is not None:
                return trail.joined(onward)
        in_use = csid in self.csids or csid in trail.heads
        if header.fmt == 3 and size and self.interleaved and in_use and csid not in now.started:
            now.orphans.add(csid)
            pending = {0xC0 | other: more for other, more in now.rest.items() if more}
            stop = orphan_end(self.buf, data, size, pending, {0xC0 | other for other in now.orphans})
            scanned = ((stop or data + size) - data) // 256
            self.steps -= scanned
            self.effort += scanned
            if stop is not None:
                trail.bits -= 0 if stop == data + size else ORPHAN_BITS
                return stop
        return _STOP

    def _split(
        self, data: int, mark: bytes, length: int, ext: int | None, heads: dict[int, Head], assumed: Assumed
    ) -> Walk | None:
        """The size is unknown and this message is longer than any before: it is split somewhere, or not at all."""
        best: Walk | None = None
        end = len(self.buf)
        floor, mark_bytes = assumed.floor, len(mark)
        for size in (0, *split_sizes(self.buf, data, mark, length, floor, ext)):
            cuts = (length - 1) // size if size else 0
            stop = data + length + cuts * (mark_bytes if ext is None else mark_bytes + 4)
            onward: Walk | None
            if stop <= end:
                onward = self.walk(stop, heads, assumed._replace(size=size, floor=0 if size else length))
            else:  # its end is not visible, so an unsplit message proves nothing about the size
                cuts = (end - data) // (size + mark_bytes) if size else 0
                onward = Walk(0, size, 0 if size else floor, heads, {}) if cuts > 1 or not size else None
            if onward is not None and size and not believable_size(size, cuts, onward.bits):
                continue
            if onward is not None and not size and onward.bits < UNCUT_BITS:
                onward = onward._replace(floor=floor)
            if onward is not None and (best is None or onward.bits + 8 * cuts > best.bits):
                best = onward._replace(bits=onward.bits + 8 * cuts, cuts=onward.cuts + cuts)
        return best

    def _guess(self, data: int, csid: int, type_id: int, trail: _Trail, assumed: Assumed) -> Walk | None:
        """fmt 2 or 3 whose length is unknown: it ends at a later header from which the chain continues."""
        buf, heads, size = self.buf, trail.heads, assumed.size
        start = self._head_at(data)
        if type_id < 0:
            type_id = type_by_content(start)
        if type_id < 0 and data < len(buf) and self.video_starts and start[:1] not in self.video_starts:
            type_id = AUDIO  # video could begin like this too, but the video in these bytes begins differently
        inside = payload_bits(type_id, 1, start) if type_id >= 0 else -1
        if inside < 0 or csid >= 64 or (type_id == AUDIO and inside < 8 and buf[data] >> 4 not in _PLAIN_FORMATS):
            return None
        price = GUESS_BITS if inside >= 8 or csid in heads else 2 * GUESS_BITS
        assumed = assumed._replace(
            guesses=assumed.guesses - 1,
            doubtful=frozenset(trail.doubtful - {csid}),
            awaited=assumed.awaited | {csid},
        )
        best: Walk | None = None
        for stop in self._ends(data, csid, heads):
            length = stop - data
            if size and length > size:
                length -= (length - 1) // (size + 1)
                if buf[data + size : stop : size + 1].count(0xC0 | csid) != (length - 1) // size:
                    continue
            if not size and maybe_cut(buf, data, csid, length, assumed.floor):
                continue
            head = Head(length, type_id, 1)
            onward = self.walk(stop, {**heads, csid: head}, assumed, trail.now)
            if onward is None or not any(mark[:1] == start[:1] for mark in onward.marks.get(csid, ())):
                continue  # the guess needs another message of this csid that begins alike
            if best is None or onward.bits - price > best.bits:
                best = onward._replace(bits=onward.bits - price, guessed={**onward.guessed, csid: head})
                best.marks[csid].add(start[:3])
                if best.bits >= SHORTEST_BITS:
                    break  # a header with a length is not by chance inside a longer message
        return best

    def _ends(self, data: int, csid: int, heads: dict[int, Head]) -> list[int]:
        """Where a message of `csid` at `data` may end: at a header with a length, at a header of its own csid whose
        payload begins alike, or at one of another csid in use whose payload clearly shows its type."""
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
            head = self._head_at(pos + 1 if short else pos + 4)
            if head[:1] == same if buf[pos] & 63 == csid else looks_like_start(head):
                ends.append(pos)
                found += 1
                if found == ENDS_TRIED:
                    break
        return sorted(ends)[:ENDS_TRIED]


def _video_starts(buf: bytes, anchors: list[int]) -> set[bytes]:
    """The first bytes of video payloads in this buffer, by the headers that carry a length."""
    seen: Counter[bytes] = Counter()
    for anchor in anchors[:200]:
        header = read_header(buf, anchor, {})
        if header is not None and header.type_id == VIDEO and header.csid < 64:
            head = buf[header.data : header.data + PAYLOAD_HEAD_BYTES]
            if payload_bits(VIDEO, header.length, head) > 0:
                seen[head[:1]] += 1
    return {first for first, times in seen.items() if times > 1 and times * 10 >= seen.total()}
