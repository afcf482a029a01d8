"""Go back from a proven boundary over the messages before it.

fmt 2 and 3 carry no length, so a message before the first header that does can only be recognised by its end: exactly
where the next message begins. If two could end there, or if one could be the tail of another, neither is accepted.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..chunk.header import HEADER_BYTES, ChunkHeader, Head
from ..limits import (
    BACK_BYTES,
    BACK_EFFORT,
    COMPACT_DELTA_MS,
    LENGTH_KNOWN_BITS,
    LENGTH_UNKNOWN_BITS,
    PAYLOAD_HEAD_BYTES,
)
from ..message import CONTROL_TYPES, MAX_CHUNK_SIZE
from .anchors import read_header
from .chain import Chain, Sync, Walk
from .cuts import interleaves, maybe_cut
from .evidence import header_bits, is_strong, payload_bits, type_by_content

# fmt 2 or 3, and the name at the start of a command or data message
_NAMED = re.compile(rb"(?=(?:[\x82-\xbf]\x00..|[\xc2-\xff])\x02\x00([\x03-\x3f])([@|_A-Za-z][!-~]{2}))", re.DOTALL)
_NAME = re.compile(rb"[\w@|.:/-]+")
_VALUES = frozenset(b"\0\1\2\3\5\6\x08\x0a\x0b\x0c\x11")  # AMF0 markers that can follow a name


class _Found(NamedTuple):
    """A message before the boundary."""

    bits: int
    pos: int
    header: ChunkHeader


@dataclass
class _Before:
    """The bytes before a boundary, and what is known about the messages in them."""

    buf: bytes
    size: int  # chunk size
    alone: bool  # messages do not interleave, so no other message can end inside one
    types: dict[int, Head]
    marks: dict[int, set[bytes]]  # per csid, how its payloads begin
    lengths: dict[int, int]  # per csid, the length that a message before may have
    certain: set[int]  # csids whose length a later message repeats
    heads: dict[int, Head] = field(default_factory=dict)  # what messages at the boundary refer back to

    def message_ending_at(self, stop: int, anchors: list[int], floor: int) -> _Found | None:
        """The message that ends at `stop`; `anchors` are the possible headers before it.

        A message of unknown length is accepted only if messages do not interleave, and not if a chunk size of `floor`
        or more may split it."""
        found = self._with_length(stop, anchors) or self._of_known_length(stop)
        if found is not None or not self.alone:
            return found
        low = max(0, stop - BACK_BYTES)
        # A message that contained what looks like a header is not accepted either.
        low = max(low, next((anchor + 1 for anchor in reversed(anchors) if is_strong(self.buf, anchor)), 0))
        return self._of_unknown_length(low, stop, floor)

    def _with_length(self, stop: int, anchors: list[int]) -> _Found | None:
        """A message whose header carries its length."""
        for anchor in reversed(anchors):
            if stop - anchor > BACK_BYTES:
                break
            header = read_header(self.buf, anchor, self.types)
            if header is not None and self._spans(header, stop) and header_bits(header, self.types) >= 0:
                head = self.buf[header.data : min(stop, header.data + PAYLOAD_HEAD_BYTES)]
                inside = payload_bits(header.type_id, header.length, head)
                if inside >= 0:
                    return _Found(inside, anchor, header)
        return None

    def _of_known_length(self, stop: int) -> _Found | None:
        """A message of fmt 2 or 3 whose csid has a known length."""
        for csid, length in self.lengths.items():
            if csid in self.types and csid < 64 and length >= 0:
                for fmt in (3, 2):
                    pos = stop - length - max(length - 1, 0) // self.size - 1 - HEADER_BYTES[fmt]
                    if pos >= 0 and self.buf[pos] == fmt << 6 | csid:
                        found = self._compact(pos, stop, self.types[csid])
                        if found is not None and found.bits >= LENGTH_KNOWN_BITS:
                            return found
        return None

    def _of_unknown_length(self, low: int, stop: int, floor: int) -> _Found | None:
        """A message of fmt 2 or 3 that begins at `low` or later, and whose length follows from its end."""
        named = self._named(low, stop, floor)
        uncertain = {csid for csid in self.types if csid < 64 and csid not in self.certain and self.marks.get(csid)}
        for pos in _compact_headers(self.buf, low if named is None else named.pos + 1, stop, uncertain):
            csid = self.buf[pos] & 63
            found = self._compact(pos, stop, self.types[csid])
            if found is None:
                continue
            if found.bits >= LENGTH_UNKNOWN_BITS and not self._maybe_cut(found.header, floor):
                return found
            if found.bits >= LENGTH_KNOWN_BITS:
                return None  # a message may begin here; one that begins earlier must not contain it
        if named is not None:
            self.types[named.header.csid] = Head(named.header.length, named.header.type_id, 1)
        return named

    def _named(self, low: int, stop: int, floor: int) -> _Found | None:
        """The nearest command or data message on a csid about which nothing is known yet."""
        buf = self.buf
        matches = {match.start(): match for match in _NAMED.finditer(buf, low, stop)}
        for pos, match in reversed(matches.items()):
            csid = buf[pos] & 63
            if buf[pos] >= 0xC0 and pos - HEADER_BYTES[2] in matches:
                continue  # the last byte of a timestamp delta
            if csid not in self.types and _is_name(buf[match.start(2) : stop], match[1][0]):
                data = pos + 1 + HEADER_BYTES[buf[pos] >> 6]
                type_id = type_by_content(buf[data : data + PAYLOAD_HEAD_BYTES])
                found = self._compact(pos, stop, Head(-1, type_id, 1))
                if found is None or self._maybe_cut(found.header, floor):
                    continue
                if found.bits >= LENGTH_UNKNOWN_BITS:
                    return found
        return None

    def _maybe_cut(self, header: ChunkHeader, floor: int) -> bool:
        return maybe_cut(self.buf, header.data, header.csid, header.length, floor)

    def _spans(self, header: ChunkHeader, stop: int) -> bool:
        """True if the message of `header` ends exactly at `stop`."""
        length, size = header.length, self.size
        cuts = max(length - 1, 0) // size
        if header.csid >= 64 or header.data + length + cuts != stop:
            return False
        return self.buf[header.data + size : stop : size + 1].count(0xC0 | header.csid) == cuts

    def _compact(self, pos: int, stop: int, head: Head) -> _Found | None:
        """The message from `pos` to `stop`, whose header has fmt 2 or 3, and the evidence of its bytes."""
        buf, size = self.buf, self.size
        fmt, csid = buf[pos] >> 6, buf[pos] & 63
        data = pos + 1 + HEADER_BYTES[fmt]
        if data > stop:
            return None
        bits = 8
        delta = 0
        if fmt == 2:
            delta = buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
            if delta > COMPACT_DELTA_MS:
                return None
            bits += 14 if delta != 3 else 2  # 00 00 03 occurs everywhere in H.264 and HEVC (ITU-T H.264 7.4.1)
        wire = stop - data
        cuts = wire // (size + 1) if wire % (size + 1) else max(wire // (size + 1) - 1, 0)
        length = wire - cuts
        if length <= 0 or buf[data + size : stop : size + 1].count(0xC0 | csid) != cuts:
            return None
        # The continuation headers are not evidence: the tail of any longer message has them too.
        inside = payload_bits(head.type_id, length, buf[data : min(stop, data + PAYLOAD_HEAD_BYTES)])
        if inside < 0 or head.type_id in CONTROL_TYPES:
            return None
        marks = self.marks.get(csid, set())
        if inside < 8 and any(payload_bits(head.type_id, length, seen) >= 8 for seen in marks):
            return None  # the other messages of this csid clearly show their type
        alike = max((_common_prefix(buf[data : data + 3], mark) for mark in marks), default=0)
        if not alike and inside < 24:
            return None
        header = ChunkHeader(fmt, csid, data, delta, None, length, head.type_id, head.stream_id)
        return _Found(bits + max(inside, 8 * alike), pos, header)


def back(chain: Chain, at: int, walk: Walk, known: dict[int, Head], interleaved: bool) -> Sync:
    """From a proven boundary, take in the messages before it that end exactly where the next one begins."""
    buf, size = chain.buf, walk.size or MAX_CHUNK_SIZE
    before = _Before(
        buf,
        size,
        alone=not interleaved and not walk.orphans and not interleaves(buf, at, size, known),
        types=dict(walk.heads),
        marks=walk.marks,
        lengths={csid: head.length for csid, head in {**known, **walk.guessed}.items()},
        certain=set(walk.guessed),
        heads=dict(known),
    )
    position, longest = at, max(walk.floor, 1)
    enough = chain.effort + BACK_EFFORT
    while chain.effort < enough:
        earlier = chain.anchors[: bisect_left(chain.anchors, position)]
        chain.effort += 1 + len(earlier) // 16 + min(position, BACK_BYTES) // 256
        found = before.message_ending_at(position, earlier, MAX_CHUNK_SIZE if walk.size else longest)
        if found is None:
            break
        position, header = found.pos, found.header
        longest = max(longest, header.length)
        if header.fmt >= 2:
            before.lengths[header.csid] = header.length
            before.certain.add(header.csid)
            before.heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
        else:
            before.lengths.pop(header.csid, None)
            before.certain.discard(header.csid)
            before.heads.pop(header.csid, None)
    heads = before.heads
    for csid, head in {**before.types, **walk.guessed}.items():
        heads.setdefault(csid, head if csid in walk.guessed else Head(-1, head.type_id, head.stream_id))
    return Sync(position, size, 0 if walk.size else longest, heads, walk.orphans)


def _is_name(buf: bytes, length: int) -> bool:
    """True for a name of `length` bytes and a value after it; three letters alone occur by chance."""
    return len(buf) > length and buf[length] in _VALUES and _NAME.fullmatch(buf, 0, length) is not None


def _compact_headers(buf: bytes, low: int, high: int, csids: Iterable[int]) -> Iterator[int]:
    """Positions of fmt 2 and 3 header bytes of `csids`, nearest to `high` first."""
    headers = {fmt << 6 | csid for csid in csids for fmt in (2, 3)}
    for pos in range(high - 1, low - 1, -1):
        if buf[pos] in headers:
            yield pos


def _common_prefix(a: bytes, b: bytes) -> int:
    """How many bytes two payloads share at their start."""
    count = 0
    for x, y in zip(a, b):
        if x != y:
            break
        count += 1
    return count
