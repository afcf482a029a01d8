"""How many bits a header or the beginning of a payload is worth.

A bit halves the chance that bytes look like this without being it; the numbers are rough. -1 says that they cannot be
it. Nothing here looks further than one header and the first bytes behind it: what follows is the work of chain.py.
"""

from __future__ import annotations

from ..media.tag import AUDIO_FOURCC, VIDEO_FOURCC
from ..message import TYPE_NAMES
from .header import Head, Header, read_header

PROOF_BITS = 60  # of a chain, with more bytes to come
PROOF_BITS_AT_END = 36  # when nothing more will come
CONTROL_LENGTHS = {1: (4,), 2: (4,), 3: (4,), 4: (6, 10, 3, 44), 5: (4,), 6: (5,)}
_VIDEO_FOURCC = [fourcc.encode() for fourcc in VIDEO_FOURCC]
_AUDIO_FOURCC = [fourcc.encode() for fourcc in AUDIO_FOURCC]
_DATA_NAMES = (
    b"@setDataFrame",
    b"@clearDataFrame",
    b"onMetaData",
    b"onCuePoint",
    b"onTextData",
    b"onCaption",
    b"|Rtmp",
)
_MP3 = (2, 14)


def header_bits(header: Header, heads: dict[int, Head]) -> int:
    """How much a header that starts a message says for itself; -1 when it cannot be one."""
    fmt, csid, _, delta, ext, length, type_id, stream_id = header
    known = heads.get(csid)
    if fmt == 3:
        return 6
    bits = 0
    if fmt == 0:
        if stream_id > 0xFFFF:
            return -1
        bits = 28 if stream_id < 16 else 16
    elif ext is None:
        if delta > 0xFFFFF:
            return -1
        bits = 14 if delta < 1024 else 8 if delta < 65536 else 3
    else:
        bits = 12 if ext < 0xFFFFFFF or ext > 0xFFFF0000 else 2
    if fmt == 2:
        return bits + 4
    if type_id not in TYPE_NAMES:
        return -1
    bits += 12 if length < 1 << 16 else 6 if length < 1 << 20 else 4
    if known is not None and known.type_id == type_id:
        bits += 4
    if known is None and csid >= 64:
        bits -= 16  # more often the byte before a header of one byte
    return max(bits, 0)


def payload_bits(type_id: int, length: int, head: bytes) -> int:
    """How much the first bytes of a payload say for its type; -1 when they contradict it."""
    if type_id in CONTROL_LENGTHS:
        return 16 if length in CONTROL_LENGTHS[type_id] else -1
    if length == 0:
        return 0
    if not head:
        return 0
    first = head[0]
    if type_id == 8:
        if first >> 4 == 9:
            return 16 if any(fourcc in head for fourcc in _AUDIO_FOURCC) else -1
        if first >> 4 in (12, 13):
            return -1
        if first >> 4 == 10 and len(head) > 1:
            return 8 if head[1] < 2 else -1
        if first >> 4 in _MP3 and len(head) > 2 and head[1] == 0xFF and head[2] >= 0xE0:
            return 11  # the sync word of a frame
        return 1
    if type_id == 9:
        if first & 0x80:
            return 16 if length < 3 or any(fourcc in head for fourcc in _VIDEO_FOURCC) else -1
        if not 1 <= first >> 4 <= 5 or first & 15 not in (1, 2, 3, 4, 5, 6, 7, 12):
            return -1
        if first & 15 in (7, 12) and len(head) > 2:
            return 14 if head[1] < 3 and head[2] in (0, 255) else -1
        return 2
    if type_id in (15, 17) and first == 0:
        head = head[1:]
    if type_id in (15, 17, 18, 20):  # they begin with a short name
        if len(head) < 4:
            return 0
        name = head[3 : 3 + min(head[2], 12)]
        return (
            24
            if head[:2] == b"\x02\x00" and 0 < head[2] < 64 and name.isascii() and name.decode().isprintable()
            else -1
        )
    return 0


def is_strong(buf: bytes, pos: int) -> bool:
    """A header with a length whose payload looks like what it says."""
    header = read_header(buf, pos, {})
    if header is None or header.fmt > 1 or header.csid >= 64 or header_bits(header, {}) < 20:
        return False
    return payload_bits(header.type_id, header.length, buf[header.data : header.data + 24]) >= 8


def looks_like_start(head: bytes) -> bool:
    """Do these bytes say loudly that a message begins with them?"""
    return max(payload_bits(type_id, 24, head) for type_id in (8, 9, 18)) >= 8


def type_by_content(head: bytes) -> int:
    """Audio, video, or a named command or data message, when only one of them can begin like this."""
    if payload_bits(18, len(head), head) >= 24:
        return 18 if head[3:].startswith(_DATA_NAMES) else 20
    video, audio = payload_bits(9, len(head), head), payload_bits(8, len(head), head)
    if video >= 14 or (video >= 0 > audio):
        return 9
    return 8 if audio >= 0 > video else -1
