"""Checks an FLV file before it is published: its header and the headers of all tags, without reading their bodies."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from rtmp_spark.codec import flv
from rtmp_spark.codec.errors import DecodeError, UserError, ViolationCode

_FILE_FAILED = 4  # exit code
_HEADER_BYTES = 32  # enough for the header of the file and for the signatures of other formats
_TAG_HEADER_BYTES = 11
_BACK_POINTER_BYTES = 4
_RECORD_AGAIN = "Record it again."
_PCAP = tuple(bytes.fromhex(magic) for magic in ("d4c3b2a1", "a1b2c3d4", "4d3cb2a1", "a1b23c4d", "0a0d0d0a"))


def check_flv_file(path: Path) -> str | None:
    """Raise a UserError if the file cannot be published. Returns a warning if it ends inside a tag, else None."""
    with path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
        try:
            first_tag = flv.parse_header(start)[2]
        except DecodeError as error:
            raise _unusable(path, start, error) from None
        tags, truncated = _count_tags(path, file, first_tag)
    if not tags:
        raise UserError(f"{path} has no {'complete ' if truncated else ''}tags.", _RECORD_AGAIN, _FILE_FAILED)
    return f"{path} ends inside a tag; its {tags} complete tags are published." if truncated else None


def _unusable(path: Path, start: bytes, error: DecodeError) -> UserError:
    convert = _convert(path)
    if not start:
        what, remedy = "is empty", "Give an FLV file, or `synthetic`."
    elif start[4:8] == b"ftyp":
        what, remedy = "is an MP4 file, not FLV", convert
    elif start.startswith(_PCAP):
        what = "is a packet capture, not FLV"
        remedy = f"Extract its stream first: rtmp-spark extract {path} -o out.flv"
    elif not start.startswith(b"FLV"):
        what, remedy = "is not an FLV file", convert
    elif error.code is ViolationCode.CAPTURE_TRUNCATED:
        what, remedy = "ends inside its header", _RECORD_AGAIN
    else:
        what, remedy = "has an invalid FLV header", convert
    return UserError(f"{path} {what}.", remedy, _FILE_FAILED)


def _count_tags(path: Path, file: BinaryIO, position: int) -> tuple[int, bool]:
    """The number of complete tags, and whether the file ends inside another one."""
    end = file.seek(0, 2)
    tags = 0
    while position < end:
        file.seek(position)
        header = file.read(_TAG_HEADER_BYTES)
        if len(header) < _TAG_HEADER_BYTES:
            return tags, True
        try:
            flv.take_tags(header, 0)
        except DecodeError:
            after = f"after {tags} tag{'' if tags == 1 else 's'}"
            text = f"{path} is damaged at byte {position} (tag type {header[0]} is invalid), {after}."
            raise UserError(text, _convert(path), _FILE_FAILED) from None
        position += _TAG_HEADER_BYTES + int.from_bytes(header[1:4], "big") + _BACK_POINTER_BYTES
        if position > end:
            return tags, True
        tags += 1
    return tags, False


def _convert(path: Path) -> str:
    return f"Convert it first: ffmpeg -i {path} -c copy out.flv"
