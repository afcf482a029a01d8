"""From a proven boundary back over the messages before it.

fmt 2 and 3 carry no length, so a message before the first header that does can only be known by where it ends: exactly
where the next one begins. Two that could both end there, or one that could be the tail of another, are left alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from .chain import Chain, Sync, Walk
from .cuts import MAX_SIZE, interleaves, maybe_cut
from .evidence import CONTROL_LENGTHS, header_bits, is_strong, payload_bits, type_by_content
from .header import HEADER_BYTES, Head, Header, read_header

BACK_EFFORT = 20_000  # after which messages before a boundary are given up
BACK_BYTES = 1 << 17  # how far before a boundary the message that ends there is looked for

# fmt 2 or 3 and the name at the start of a command or data message
_NAMED = re.compile(rb"(?=(?:[\x82-\xbf]\x00..|[\xc2-\xff])\x02\x00([\x03-\x3f])([@|_A-Za-z][!-~]{2}))", re.DOTALL)
_NAME = re.compile(rb"[\w@|.:/-]+")
_VALUES = frozenset(b"\0\1\2\3\5\6\x08\x0a\x0b\x0c\x11")  # how the value behind a name begins


def back(chain: Chain, at: int, walk: Walk, known: dict[int, Head], interleaved: bool) -> Sync:
    """From a proven boundary, take in the messages before it that end exactly where the next one begins."""
    buf, size = chain.buf, walk.size or MAX_SIZE
    alone = not interleaved and not walk.orphans and not interleaves(buf, at, size, known)
    lengths: dict[int, int] = {csid: head.length for csid, head in {**known, **walk.guessed}.items()}
    types = dict(walk.heads)
    heads = dict(known)
    certain = set(walk.guessed)  # csids whose length a later message repeats
    position, longest = at, max(walk.floor, 1)
    enough = chain.effort + BACK_EFFORT
    while chain.effort < enough:
        earlier = chain.anchors[: bisect_left(chain.anchors, position)]
        chain.effort += 1 + len(earlier) // 16 + min(position, BACK_BYTES) // 256
        floor = MAX_SIZE if walk.size else longest
        step = _before(buf, position, size, earlier, lengths, certain, types, walk.marks, alone, floor)
        if step is None:
            break
        position, header = step
        longest = max(longest, header.length)
        if header.fmt >= 2:
            lengths[header.csid] = header.length
            certain.add(header.csid)
            heads[header.csid] = Head(header.length, header.type_id, header.stream_id)
        else:
            lengths.pop(header.csid, None)
            certain.discard(header.csid)
            heads.pop(header.csid, None)
    for csid, head in {**types, **walk.guessed}.items():
        heads.setdefault(csid, head if csid in walk.guessed else Head(-1, head.type_id, head.stream_id))
    return Sync(position, size, 0 if walk.size else longest, heads, walk.orphans)


def _before(
    buf: bytes,
    stop: int,
    size: int,
    anchors: list[int],
    lengths: dict[int, int],
    certain: set[int],
    types: dict[int, Head],
    marks: dict[int, set[bytes]],
    alone: bool,
    floor: int,
) -> tuple[int, Header] | None:
    """The message that ends at `stop`. Only where messages stand `alone` can one be believed whose length is unknown:
    otherwise the end of another may stand behind it; nor one that may be cut, at a size of `floor` or more."""
    for anchor in reversed(anchors):
        if stop - anchor > BACK_BYTES:
            break
        header = read_header(buf, anchor, types)
        if header is not None and _spans(buf, header, stop, size) and header_bits(header, types) >= 0:
            inside = payload_bits(header.type_id, header.length, buf[header.data : min(stop, header.data + 24)])
            if inside >= 0:
                return anchor, header
    for csid, length in lengths.items():
        if csid in types and csid < 64 and length >= 0:
            for fmt in (3, 2):
                pos = stop - length - max(length - 1, 0) // size - 1 - HEADER_BYTES[fmt]
                found = _compact(buf, pos, stop, fmt, csid, size, types[csid], marks)
                if found is not None and found[0] >= 16:
                    return found[1:]
    if not alone:
        return None
    low = max(0, stop - BACK_BYTES)  # and no message is believed that would swallow what looks like a header
    low = max(low, next((anchor + 1 for anchor in reversed(anchors) if is_strong(buf, anchor)), 0))
    named = _named_before(buf, low, stop, size, types, marks, floor)
    uncertain = {csid for csid in types if csid < 64 and csid not in certain and marks.get(csid)}
    for pos in _candidates(buf, low if named is None else named[0] + 1, stop, uncertain):
        csid = buf[pos] & 63
        found = _compact(buf, pos, stop, buf[pos] >> 6, csid, size, types[csid], marks)
        if found is not None and found[0] >= 30 and not maybe_cut(buf, found[2].data, csid, found[2].length, floor):
            return found[1:]
        if found is not None and found[0] >= 16:
            return None  # it may well begin here: do not swallow it with what stands before, whatever its csid
    if named is not None:
        types[named[1].csid] = Head(named[1].length, named[1].type_id, 1)
    return named


def _named_before(
    buf: bytes, low: int, stop: int, size: int, types: dict[int, Head], marks: dict[int, set[bytes]], floor: int
) -> tuple[int, Header] | None:
    """The nearest command or data message on a csid of which nothing is known yet."""
    matches = {match.start(): match for match in _NAMED.finditer(buf, low, stop)}
    for pos, match in reversed(matches.items()):
        csid = buf[pos] & 63
        if buf[pos] >= 0xC0 and pos - HEADER_BYTES[2] in matches:
            continue  # the last byte of a step of time
        if csid not in types and _is_name(buf[match.start(2) : stop], match[1][0]):
            type_id = type_by_content(buf[pos + 1 + HEADER_BYTES[buf[pos] >> 6] :][:24])
            found = _compact(buf, pos, stop, buf[pos] >> 6, csid, size, Head(-1, type_id, 1), marks)
            if found is None or maybe_cut(buf, found[2].data, csid, found[2].length, floor):
                continue
            if found[0] >= 30:
                return found[1:]
    return None


def _is_name(buf: bytes, length: int) -> bool:
    """Is this a name of `length` bytes, and a value behind it? Three letters alone come by chance."""
    return len(buf) > length and buf[length] in _VALUES and _NAME.fullmatch(buf, 0, length) is not None


def _candidates(buf: bytes, low: int, high: int, csids: Iterable[int]) -> Iterator[int]:
    """Positions of fmt 2 and 3 header bytes of `csids`, nearest to `high` first."""
    headers = {fmt << 6 | csid for csid in csids for fmt in (2, 3)}
    for pos in range(high - 1, low - 1, -1):
        if buf[pos] in headers:
            yield pos


def _spans(buf: bytes, header: Header, stop: int, size: int) -> bool:
    """Does the message of `header` end exactly at `stop`?"""
    length = header.length
    cuts = max(length - 1, 0) // size
    if header.csid >= 64 or header.data + length + cuts != stop:
        return False
    mark = 0xC0 | header.csid
    return buf[header.data + size : stop : size + 1].count(mark) == cuts


def _compact(
    buf: bytes,
    pos: int,
    stop: int,
    fmt: int,
    csid: int,
    size: int,
    head: Head,
    marks: dict[int, set[bytes]],
) -> tuple[int, int, Header] | None:
    """A message with a header of fmt 2 or 3 from `pos` to `stop`: how loudly its bytes say so, and the message."""
    if pos < 0 or buf[pos] != (fmt << 6 | csid):
        return None
    data = pos + 1 + HEADER_BYTES[fmt]
    if data > stop:
        return None
    bits = 8
    delta = 0
    if fmt == 2:
        delta = buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
        if delta > 1024:
            return None
        bits += 14 if delta != 3 else 2  # 00 00 03 stands all over H.264 and HEVC (ITU-T H.264 7.4.1)
    wire = stop - data
    cuts = wire // (size + 1) if wire % (size + 1) else max(wire // (size + 1) - 1, 0)
    length = wire - cuts
    mark = 0xC0 | csid
    if length <= 0 or buf[data + size : stop : size + 1].count(mark) != cuts:
        return None
    # the marks are no evidence: the tail of any longer message has them too
    inside = payload_bits(head.type_id, length, buf[data : min(stop, data + 24)])
    if inside < 0 or head.type_id in CONTROL_LENGTHS:
        return None
    if inside < 8 and any(payload_bits(head.type_id, length, seen) >= 8 for seen in marks.get(csid, ())):
        return None  # the others of its csid say loudly what they are
    alike = max((_alike(buf[data : data + 3], mark) for mark in marks.get(csid, ())), default=0)
    if not alike and inside < 24:
        return None
    return (
        bits + max(inside, 8 * alike),
        pos,
        Header(fmt, csid, data, delta, None, length, head.type_id, head.stream_id),
    )


def _alike(a: bytes, b: bytes) -> int:
    """How many bytes two beginnings share."""
    count = 0
    for x, y in zip(a, b):
        if x != y:
            break
        count += 1
    return count
