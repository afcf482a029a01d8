"""FLV files (FLV 10.1 E.2, E.3): tags and their timestamps.

`parse_file` and `take_tags` read, `header` and `dump_tag` write; none of them does I/O. media/ and amf0.py read the
payloads of tags.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from .errors import DecodeError, EncodeError, Fault, ViolationCode
from .message import AUDIO, DATA_AMF0, VIDEO


class FlvTag(NamedTuple):
    offset: int  # of the tag in the parsed bytes
    type_id: int
    timestamp: int  # 32 bits, ms
    payload: bytes
    filtered: bool  # encrypted: the payload is not a tag body


class FlvFile(NamedTuple):
    has_audio: bool
    has_video: bool
    tags: list[FlvTag]
    violations: list[Fault]


_FILE_HEADER = Struct(">3sBBI")
_TAG_HEADER = Struct(">II3x")  # type and size; timestamp, its upper byte last; stream id
_U32 = Struct(">I")


def header(audio: bool = True, video: bool = True) -> bytes:
    """The header of an FLV file and the back pointer 0 that follows it."""
    return _FILE_HEADER.pack(b"FLV", 1, 4 * audio | video, 9) + bytes(4)


def dump_tag(type_id: int, timestamp: int, payload: bytes) -> bytes:
    """A tag and its back pointer; the timestamp wraps at 32 bits."""
    size = len(payload)
    if size > 0xFFFFFF or not 0 <= type_id < 32:
        raise EncodeError(f"FLV cannot hold a tag of type {type_id} and {size} bytes")
    time = (timestamp & 0xFFFFFF) << 8 | timestamp >> 24 & 255
    return b"".join((_U32.pack(type_id << 24 | size), _U32.pack(time), bytes(3), payload, _U32.pack(size + 11)))


def parse_header(data: bytes) -> tuple[bool, bool, int]:
    """Audio and video flags, and the offset of the first tag."""
    if not b"FLV".startswith(data[:3]):
        raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, 0, "not an FLV file: it does not start with FLV")
    if len(data) < 9:
        raise DecodeError(ViolationCode.CAPTURE_TRUNCATED, len(data), "the file ends inside its header")
    _, _, flags, size = _FILE_HEADER.unpack_from(data)
    if size < 9:
        raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, 5, f"the FLV header has {size} bytes; the minimum is 9")
    return bool(flags & 4), bool(flags & 1), size + 4


def take_tags(data: bytes, start: int) -> tuple[list[FlvTag], int]:
    """Every complete tag (with its back pointer) from `start` on, and where the first incomplete one starts."""
    tags: list[FlvTag] = []
    return tags, _take(data, start, tags, 4)


def _take(data: bytes, pos: int, tags: list[FlvTag], back_pointer: int) -> int:
    while pos + 11 <= len(data):
        word, time = _TAG_HEADER.unpack_from(data, pos)
        end = pos + 11 + (word & 0xFFFFFF)
        kind = word >> 24
        if kind & 31 not in (AUDIO, VIDEO, DATA_AMF0) or kind & 0xC0:
            detail = f"tag type {kind} is invalid, so no tag starts here"
            raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, pos, detail)
        if end + back_pointer > len(data):
            break
        timestamp = time >> 8 | (time & 255) << 24
        tags.append(FlvTag(pos, kind & 31, timestamp, data[pos + 11 : end], bool(kind & 32)))
        pos = end + 4
    return pos


def parse_file(data: bytes) -> FlvFile:
    """Parse a whole file. Of a damaged file, everything before the damage is returned, with the violation."""
    has_audio, has_video, pos = parse_header(data)
    tags: list[FlvTag] = []
    try:
        pos = _take(data, pos, tags, 0)
        # A writer that was stopped may omit the last back pointer and nothing else.
        if len(data) not in (pos - 4, pos):
            raise DecodeError(ViolationCode.CAPTURE_TRUNCATED, pos, "the file ends inside a tag")
    except DecodeError as error:
        return FlvFile(has_audio, has_video, tags, [(error.code, error.code.severity, error.detail)])
    return FlvFile(has_audio, has_video, tags, [])
