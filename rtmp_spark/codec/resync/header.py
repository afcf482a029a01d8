"""Chunk headers in bytes of which nobody knows yet whether they are any (RTMP 1.0 5.3.1).

`ANCHOR` finds what may be a header that carries a length; `read_header` reads the header at a place with what is known
from headers before it. Whether to believe one is not judged here: evidence.py says what it is worth.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

from ..message import TYPE_NAMES

HEADER_BYTES = (11, 7, 3, 0)  # of fmt 0, 1, 2, 3, behind the basic header
_TYPES = b"".join(re.escape(bytes((t,))) for t in TYPE_NAMES)

# A header that carries a length: fmt 0 with a small stream id, or fmt 1 with a delta below 65536 ms (or 0xFFFFFF).
ANCHOR = re.compile(
    rb"(?=(?:[\x02-\x3f]|\x00.|\x01..)...[\x00-\x3f]..[" + _TYPES + rb"].\x00\x00\x00"
    rb"|(?:[\x42-\x7f]|\x40.|\x41..)(?:\x00..|\xff\xff\xff)[\x00-\x3f]..[" + _TYPES + rb"])",
    re.DOTALL,
)


class Head(NamedTuple):
    """What fmt 1, 2 and 3 refer back to."""

    length: int
    type_id: int
    stream_id: int


NO_HEAD = Head(-1, -1, -1)


class Header(NamedTuple):
    fmt: int
    csid: int
    data: int  # where the payload begins
    delta: int
    ext: int | None
    length: int
    type_id: int
    stream_id: int


def read_header(buf: bytes, pos: int, heads: dict[int, Head]) -> Header | None:
    """The header at `pos`, None when its bytes are not all there. Unknown lengths are -1."""
    end = len(buf)
    if pos >= end:
        return None
    byte = buf[pos]
    fmt = byte >> 6
    csid = byte & 63
    data = pos + 1
    if csid < 2:
        data += 1 + csid
        if data > end:
            return None
        csid = 64 + buf[pos + 1] + (buf[pos + 2] << 8 if csid else 0)
    field = data
    data += HEADER_BYTES[fmt]
    if data > end:
        return None
    length, type_id, stream_id = heads.get(csid, NO_HEAD)
    delta, ext = 0, None
    if fmt < 3:
        delta = buf[field] << 16 | buf[field + 1] << 8 | buf[field + 2]
        if delta == 0xFFFFFF:
            data += 4
            if data > end:
                return None
            ext = int.from_bytes(buf[data - 4 : data], "big")
        if fmt < 2:
            length = buf[field + 3] << 16 | buf[field + 4] << 8 | buf[field + 5]
            type_id = buf[field + 6]
            if fmt == 0:
                stream_id = int.from_bytes(buf[field + 7 : field + 11], "little")
            elif stream_id < 0:
                stream_id = 1 if type_id in (8, 9, 15, 18, 22) else 0
    return Header(fmt, csid, data, delta, ext, length, type_id, stream_id)


def long_csid(buf: bytes, pos: int) -> int:
    """The csid of the header at `pos`, which has two or three bytes for it."""
    return 64 + buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)


def one_reading(buf: bytes, anchors: list[int], used: Container[int]) -> list[int]:
    """A header of one byte behind a byte 0x00, 0x01, 0x40 or 0x41 also reads as a csid of two or three bytes.

    Such csids are rare: the long reading holds only where that csid is in use and the short one's is not."""
    drop: set[int] = set()
    found = set(anchors)
    for pos in anchors:
        short = pos + 1 + (buf[pos] & 63)
        if buf[pos] & 63 < 2 and short in found:
            long = long_csid(buf, pos) in used and buf[short] & 63 not in used
            drop.add(short if long else pos)
    return [pos for pos in anchors if pos not in drop] if drop else anchors


def continuation(buf: bytes, pos: int) -> bytes:
    """The header of a chunk that goes on with the message whose header is at `pos`, its csid in the same form
    (RTMP 1.0 5.3.1.1)."""
    short = buf[pos] & 63
    return bytes((0xC0 | short,)) + (buf[pos + 1 : pos + 2 + short] if short < 2 else b"")
