"""How many bits of evidence a header or the start of a payload is worth.

One bit halves the chance that random bytes look the same; the numbers are rough. -1 means that the bytes cannot be what
they are taken for. Nothing here looks further than one header and the first bytes after it; chain.py does.
"""

from __future__ import annotations

from ..chunk.header import ChunkHeader, Head
from ..limits import PAYLOAD_HEAD_BYTES
from ..media.codecs import AUDIO_FOURCC, VIDEO_FOURCC
from ..message import (
    AUDIO,
    COMMAND_AMF0,
    COMMAND_AMF3,
    CONTROL_LENGTHS,
    DATA_AMF0,
    DATA_AMF3,
    TYPE_NAMES,
    VIDEO,
)
from .anchors import read_header

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
_NAMED = frozenset((DATA_AMF3, COMMAND_AMF3, DATA_AMF0, COMMAND_AMF0))  # types that begin with a short name


def header_bits(header: ChunkHeader, heads: dict[int, Head]) -> int:
    """The evidence of a header that starts a message; -1 if it cannot be one."""
    fmt, csid, delta, ext = header.fmt, header.csid, header.field, header.ext
    length, type_id, stream_id = header.length, header.type_id, header.stream_id
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
        bits -= 16  # more often a stray byte before a one-byte header
    return max(bits, 0)


def payload_bits(type_id: int, length: int, head: bytes) -> int:
    """The evidence of the first bytes of a payload for its type; -1 if they contradict it."""
    if type_id in CONTROL_LENGTHS:
        return 16 if length in CONTROL_LENGTHS[type_id] else -1
    if length == 0:
        return 0
    if not head:
        return 0
    first = head[0]
    if type_id == AUDIO:
        if first >> 4 == 9:
            return 16 if any(fourcc in head for fourcc in _AUDIO_FOURCC) else -1
        if first >> 4 in (12, 13):
            return -1
        if first >> 4 == 10 and len(head) > 1:
            return 8 if head[1] < 2 else -1
        if first >> 4 in _MP3 and len(head) > 2 and head[1] == 0xFF and head[2] >= 0xE0:
            return 11  # the sync word of a frame
        return 1
    if type_id == VIDEO:
        if first & 0x80:
            return 16 if length < 3 or any(fourcc in head for fourcc in _VIDEO_FOURCC) else -1
        if not 1 <= first >> 4 <= 5 or first & 15 not in (1, 2, 3, 4, 5, 6, 7, 12):
            return -1
        if first & 15 in (7, 12) and len(head) > 2:
            return 14 if head[1] < 3 and head[2] in (0, 255) else -1
        return 2
    if type_id in (DATA_AMF3, COMMAND_AMF3) and first == 0:
        head = head[1:]
    if type_id in _NAMED:
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
    """True for a header that carries a length and whose payload looks like its type."""
    header = read_header(buf, pos, {})
    if header is None or header.fmt > 1 or header.csid >= 64 or header_bits(header, {}) < 20:
        return False
    return payload_bits(header.type_id, header.length, buf[header.data : header.data + PAYLOAD_HEAD_BYTES]) >= 8


def looks_like_start(head: bytes) -> bool:
    """True if a message very likely begins with these bytes."""
    return max(payload_bits(type_id, PAYLOAD_HEAD_BYTES, head) for type_id in (AUDIO, VIDEO, DATA_AMF0)) >= 8


def type_by_content(head: bytes) -> int:
    """The message type, if only audio, video, or a named command or data message can begin like this; else -1."""
    if payload_bits(DATA_AMF0, len(head), head) >= 24:
        return DATA_AMF0 if head[3:].startswith(_DATA_NAMES) else COMMAND_AMF0
    video, audio = payload_bits(VIDEO, len(head), head), payload_bits(AUDIO, len(head), head)
    if video >= 14 or (video >= 0 > audio):
        return VIDEO
    return AUDIO if audio >= 0 > video else -1
