"""Places in unsynchronised bytes where a chunk header may be (RTMP 1.0 5.3.1).

`ANCHOR` matches what may be a header that carries a length; `read_header` reads the header at a place, with what is
known from headers before it. Whether to accept one is decided elsewhere: evidence.py says what it is worth.
"""

from __future__ import annotations

import re
from collections.abc import Container

from ..chunk.header import ChunkHeader, Head, long_csid, parse_header
from ..message import OF_STREAMS, TYPE_NAMES

_TYPES = b"".join(re.escape(bytes((t,))) for t in TYPE_NAMES)

# A header that carries a length: fmt 0 with a small stream id, or fmt 1 with a delta below 65536 ms (or 0xFFFFFF).
ANCHOR = re.compile(
    rb"(?=(?:[\x02-\x3f]|\x00.|\x01..)...[\x00-\x3f]..[" + _TYPES + rb"].\x00\x00\x00"
    rb"|(?:[\x42-\x7f]|\x40.|\x41..)(?:\x00..|\xff\xff\xff)[\x00-\x3f]..[" + _TYPES + rb"])",
    re.DOTALL,
)


def read_header(buf: bytes, pos: int, heads: dict[int, Head]) -> ChunkHeader | None:
    """The header at `pos`; None if it is incomplete. A length that no header carried is -1."""
    end = len(buf)
    header = parse_header(buf, pos, end, heads)
    if header is None or header.data > end:
        return None
    if header.fmt == 1 and header.stream_id < 0:
        header.stream_id = 1 if header.type_id in OF_STREAMS else 0
    return header


def one_reading(buf: bytes, anchors: list[int], used: Container[int]) -> list[int]:
    """The anchors without those that are a second reading of the same header.

    A header with a csid of one byte after a byte 0x00, 0x01, 0x40 or 0x41 also reads as one with a csid of two or three
    bytes. Such csids are rare: the long reading holds only if its csid is in use and that of the short one is not."""
    drop: set[int] = set()
    found = set(anchors)
    for pos in anchors:
        short = pos + 1 + (buf[pos] & 63)
        if buf[pos] & 63 < 2 and short in found:
            long = long_csid(buf, pos) in used and buf[short] & 63 not in used
            drop.add(short if long else pos)
    return [pos for pos in anchors if pos not in drop] if drop else anchors
