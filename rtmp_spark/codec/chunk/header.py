"""Chunk headers (RTMP 1.0 5.3.1), for every reader except the dechunker's fast path.

::

    basic header     1-3 bytes     fmt (2 bits) and csid
    message header   11 bytes      fmt 0: timestamp (3), length (3), type id (1), stream id (4, little-endian)
                     7 bytes       fmt 1: timestamp delta (3), length (3), type id (1)
                     3 bytes       fmt 2: timestamp delta (3)
                     0 bytes       fmt 3
    extended         4 bytes       if the timestamp field is 0xFFFFFF

`parse_header` reads what is there and never waits or reports. Whether fmt 3 repeats the extended timestamp cannot be
known from the header alone (senders differ): lookahead.py decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

EXTENDED: Final = 0xFFFFFF  # in the timestamp field: the 32-bit extended timestamp follows
MAX_CSID: Final = 65599
HEADER_BYTES: Final = (11, 7, 3, 0)  # message header of fmt 0, 1, 2, 3
LONGEST_HEADER: Final = 3 + HEADER_BYTES[0] + 4

_U32: Final = Struct(">I").unpack_from
_STREAM_ID: Final = Struct("<I").unpack_from  # the only little-endian field
_new: Final = object.__new__  # with assignments, half the cost of the constructor


class Head(NamedTuple):
    """The part of an earlier header that fmt 1, 2 and 3 refer back to."""

    length: int  # -1: unknown
    type_id: int
    stream_id: int


NO_HEAD: Final = Head(-1, -1, -1)
_NO_HEADS: dict[int, Head] = {}


@dataclass(slots=True)
class ChunkHeader:
    """A chunk header. `length`, `type_id` and `stream_id` are -1 if neither this header nor an earlier one has them."""

    fmt: int
    csid: int
    data: int  # position of the payload; beyond the end of the bytes if the header is incomplete
    field: int  # 24-bit timestamp or delta; -1 if the message header is incomplete, 0 for fmt 3
    ext: int | None  # extended timestamp of fmt 0, 1 and 2
    length: int
    type_id: int
    stream_id: int


def parse_header(buf: bytes, pos: int, end: int, heads: dict[int, Head] = _NO_HEADS) -> ChunkHeader | None:
    """The header at `pos` of `buf[:end]`; None if its basic header is incomplete.

    `heads` holds what the last header of each csid said; fmt 1, 2 and 3 take from it what they do not carry.
    """
    if pos >= end:
        return None
    byte = buf[pos]
    fmt = byte >> 6
    csid = byte & 63
    at = pos + 1
    if csid < 2:
        at += 1 + csid
        if at > end:
            return None
        csid = long_csid(buf, pos)
    data = at + HEADER_BYTES[fmt]
    header = _new(ChunkHeader)
    header.fmt = fmt
    header.csid = csid
    header.ext = None
    header.length, header.type_id, header.stream_id = heads.get(csid, NO_HEAD) if fmt else NO_HEAD
    if fmt == 3:
        header.field = 0
    elif data > end:
        header.field = -1
    else:
        word: int = _U32(buf, at - 1)[0]
        header.field = field = word & 0xFFFFFF
        if fmt < 2:
            word = _U32(buf, at + 3)[0]
            header.length = word >> 8
            header.type_id = word & 0xFF
            if fmt == 0:
                header.stream_id = _STREAM_ID(buf, at + 7)[0]
        if field == EXTENDED:
            data += 4
            if data <= end:
                header.ext = _U32(buf, data - 4)[0]
    header.data = data
    return header


def long_csid(buf: bytes, pos: int) -> int:
    """The csid of a basic header of two or three bytes (RTMP 1.0 5.3.1.1)."""
    return 64 + buf[pos + 1] + (buf[pos + 2] << 8 if buf[pos] & 63 else 0)


def continuation_header(buf: bytes, pos: int) -> bytes:
    """The fmt 3 basic header that continues the message whose header is at `pos`, its csid in the same form."""
    short = buf[pos] & 63
    return bytes((0xC0 | short,)) + (buf[pos + 1 : pos + 2 + short] if short < 2 else b"")
