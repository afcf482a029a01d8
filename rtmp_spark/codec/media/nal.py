"""H.264, H.265 and H.266: parameter sets in their configuration records, and the NAL units of a frame.

`parse_*_config(record)` read a whole record and raise DecodeError. `walk_nals` lists the NAL units of a frame;
`random_access` says whether a decoder can start there. Only the fields needed for profile, level, size, frame rate and
random access are read.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ..errors import DecodeError, ViolationCode
from ..limits import MAX_PICTURE_SIDE, RECORD_BYTES
from .record import Bits, VideoConfig, bad

_LENGTH4: Final = Struct(">IB").unpack_from


def _rbsp(nal: bytes, header: int) -> Bits:
    """The payload of a NAL unit without its header and its emulation prevention bytes."""
    return Bits(nal[header:RECORD_BYTES].replace(b"\0\0\3", b"\0\0"))


# ---- H.264, ISO 14496-15 5.3.3.1 and ITU-T H.264 7.3.2.1

_AVC_CHROMA_PROFILES: Final = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}


def parse_avc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    if len(record) < 7:
        raise bad(len(record), f"an AVC configuration of {len(record)} bytes; the minimum is 7")
    if record[0] != 1:
        raise bad(0, f"AVC configuration version {record[0]} instead of 1")
    units, pos = _parameter_sets(record, 6, record[5] & 31)
    if pos >= len(record):
        raise bad(pos, "the AVC configuration ends before its picture parameter sets")
    _parameter_sets(record, pos + 1, record[pos])
    width = height = fps = None
    if units:
        width, height, fps = _parse_avc_sps(units[0])
    return VideoConfig(record[1], record[3], width, height, fps, (record[4] & 3) + 1)


def _refuse_start_code(record: bytes) -> None:
    if record.startswith((b"\0\0\0\1", b"\0\0\1")):
        raise bad(0, "a start code instead of the configuration record", ViolationCode.MEDIA_ANNEXB)


def _parameter_sets(record: bytes, pos: int, count: int) -> tuple[list[bytes], int]:
    units = []
    for _ in range(count):
        end = pos + 2 + int.from_bytes(record[pos : pos + 2], "big")
        if end > len(record) or pos + 2 > len(record):
            raise bad(pos, "a parameter set extends past the end of the configuration record")
        units.append(record[pos + 2 : end])
        pos = end
    return units, pos


def _parse_avc_sps(nal: bytes) -> tuple[int, int, float | None]:
    bits = _rbsp(nal, 1)
    profile = bits.read(8)
    bits.read(16)
    bits.ue()
    chroma, separate_planes = 1, 0
    if profile in _AVC_CHROMA_PROFILES:
        chroma = bits.ue()
        if chroma == 3:
            separate_planes = bits.read(1)
        bits.ue(), bits.ue(), bits.read(1)
        if bits.read(1):
            for index in range(8 if chroma != 3 else 12):
                if bits.read(1):
                    _skip_scaling_list(bits, 16 if index < 6 else 64)
    bits.ue()
    order_type = bits.ue()
    if order_type == 0:
        bits.ue()
    elif order_type == 1:
        bits.read(1), bits.se(), bits.se()
        for _ in range(min(bits.ue(), 256)):
            bits.se()
    bits.ue(), bits.read(1)
    width, map_units = (bits.ue() + 1) * 16, bits.ue() + 1
    frame_only = bits.read(1)
    if not frame_only:
        bits.read(1)
    height = (2 - frame_only) * map_units * 16
    bits.read(1)
    if bits.read(1):
        left, right, top, bottom = bits.ue(), bits.ue(), bits.ue(), bits.ue()
        array = 0 if separate_planes else chroma
        width -= (left + right) * (2 if array in (1, 2) else 1)
        height -= (top + bottom) * (2 if array == 1 else 1) * (2 - frame_only)
    if width <= 0 or height <= 0 or max(width, height) > MAX_PICTURE_SIDE:
        raise bad(0, f"the sequence parameter set declares a picture of {width} x {height}")
    return width, height, _avc_vui_fps(bits)


def _skip_scaling_list(bits: Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) & 255
        last = following or last


def _avc_vui_fps(bits: Bits) -> float | None:
    """The frame rate in the VUI parameters (ITU-T H.264 E.1.1)."""
    if not bits.read(1):
        return None
    if bits.read(1) and bits.read(8) == 255:
        bits.read(32)
    if bits.read(1):
        bits.read(1)
    if bits.read(1):
        bits.read(4)
        if bits.read(1):
            bits.read(24)
    if bits.read(1):
        bits.ue(), bits.ue()
    if not bits.read(1):
        return None
    ticks, scale = bits.read(32), bits.read(32)
    return scale / (2 * ticks) if ticks and scale else None


# ---- H.265, ISO 14496-15 8.3.3.1 and ITU-T H.265 7.3.2.2; H.266, ISO 14496-15 11.2.4.2

_HEVC_SPS: Final = 33


def parse_hevc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    if len(record) < 23:
        raise bad(len(record), f"an HEVC configuration of {len(record)} bytes; the minimum is 23")
    width = height = None
    pos = 23
    for _ in range(record[22]):
        if pos + 3 > len(record):
            raise bad(pos, "the HEVC configuration ends before its parameter sets")
        kind = record[pos] & 63
        units, pos = _parameter_sets(record, pos + 3, int.from_bytes(record[pos + 1 : pos + 3], "big"))
        if kind == _HEVC_SPS and units and width is None:
            width, height = _parse_hevc_sps(units[0])
    return VideoConfig(record[1] & 31, record[12], width, height, None, (record[21] & 3) + 1)


def _parse_hevc_sps(nal: bytes) -> tuple[int, int]:
    bits = _rbsp(nal, 2)
    bits.read(4)
    sub_layers = bits.read(3)
    bits.read(1 + 88 + 8)
    present = [(bits.read(1), bits.read(1)) for _ in range(sub_layers)]
    if sub_layers:
        bits.read(2 * (8 - sub_layers))
    for profile, level in present:
        bits.read(88 * profile + 8 * level)
    bits.ue()
    chroma = bits.ue()
    if chroma == 3 and bits.read(1):
        chroma = 0
    width, height = bits.ue(), bits.ue()
    if bits.read(1):
        left, right, top, bottom = bits.ue(), bits.ue(), bits.ue(), bits.ue()
        width -= (left + right) * (2 if chroma in (1, 2) else 1)
        height -= (top + bottom) * (2 if chroma == 1 else 1)
    if width <= 0 or height <= 0 or max(width, height) > MAX_PICTURE_SIDE:
        raise bad(0, f"the sequence parameter set declares a picture of {width} x {height}")
    return width, height


def parse_vvc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    # E-RTMP carries the record; a file box puts a version and flags, four zero bytes, before it
    bits = Bits(record[:RECORD_BYTES], 4 if record.startswith(b"\0\0\0\0") else 0)
    bits.read(5)
    length_size = bits.read(2) + 1
    if not bits.read(1):
        return VideoConfig(length_size=length_size)
    bits.read(9)
    sub_layers = bits.read(3)
    bits.read(4 + 8 + 2)
    constraint_bytes = bits.read(6)
    profile = bits.read(7)
    bits.read(1)
    level = bits.read(8)
    bits.read(8 * constraint_bytes or 2)
    levels = sum(bits.read(1) for _ in range(sub_layers - 1))
    bits.align()
    bits.read(8 * levels)
    bits.read(32 * bits.read(8))
    return VideoConfig(profile, level, bits.read(16) or None, bits.read(16) or None, None, length_size)


# ---- NAL units


def walk_nals(body: bytes, length_size: int, codec: str = "avc", start: int = 0, end: int | None = None) -> list[int]:
    """The types of the NAL units in `body[start:end]`, in order; MEDIA_NAL or MEDIA_ANNEXB where lengths fail."""
    stop = len(body) if end is None else end
    heads = []
    pos = start
    if length_size == 4:
        while pos + 4 < stop:
            length, head = _LENGTH4(body, pos)
            if not length:
                break
            heads.append(head)
            pos += 4 + length
    else:
        while pos + length_size < stop:
            length = int.from_bytes(body[pos : pos + length_size], "big")
            if not length:
                break
            heads.append(body[pos + length_size])
            pos += length_size + length
    if pos != stop:
        raise _nal_fault(body, start, stop, pos)
    if codec == "avc":
        return [head & 31 for head in heads]
    if codec == "hevc":
        return [head >> 1 & 63 for head in heads]
    return _vvc_types(body, length_size, start, stop)


def _vvc_types(body: bytes, length_size: int, pos: int, stop: int) -> list[int]:
    """The NAL unit types of H.266, which are in the second header byte (7.3.1.2)."""
    types = []
    while pos < stop:
        length = int.from_bytes(body[pos : pos + length_size], "big")
        if length < 2:
            raise bad(pos, "a NAL unit is shorter than its header", ViolationCode.MEDIA_NAL)
        types.append(body[pos + length_size + 1] >> 3)
        pos += length_size + length
    return types


def _nal_fault(body: bytes, start: int, stop: int, pos: int) -> DecodeError:
    if body[start : start + 4] == b"\0\0\0\1" or body[start : start + 3] == b"\0\0\1":
        return bad(start, "start codes instead of NAL unit lengths", ViolationCode.MEDIA_ANNEXB)
    if pos > stop:
        detail = f"the last NAL unit extends {pos - stop} bytes past the end"
    else:
        detail = f"{stop - pos} bytes at the end are not a NAL unit"
    return bad(min(pos, stop), detail, ViolationCode.MEDIA_NAL)


# NAL unit types of pictures where a decoder can always start, and of those where it cannot. The rest (CRA, GDR) may
# have either flag. ITU-T H.264 table 7-1, H.265 table 7-1, H.266 table 5
IDR_TYPES: Final = {"avc": frozenset((5,)), "hevc": frozenset(range(16, 21)), "vvc": frozenset((7, 8))}
_OTHER_TYPES: Final = {"avc": frozenset((1, 2, 3, 4)), "hevc": frozenset(range(16)), "vvc": frozenset(range(7))}


def random_access(codec: str, types: list[int], body: bytes, length_size: int, start: int, end: int) -> bool | None:
    """True if a decoder can start at this frame; None if either flag fits: no picture, open GOP, gradual refresh."""
    if not IDR_TYPES[codec].isdisjoint(types):
        return True
    if _OTHER_TYPES[codec].isdisjoint(types):
        return None
    if codec == "avc" and 6 in types and _recovery_point(body, length_size, start, end):
        return None
    return False


_OPEN_TYPES: Final = {"avc": frozenset[int](), "hevc": frozenset((21,)), "vvc": frozenset((9, 10))}  # CRA, GDR


def is_entry_point(codec: str, types: list[int], body: bytes, length_size: int, start: int, end: int) -> bool | None:
    """True if a player can join at this frame, open GOPs and gradual refresh included; None if it has no picture."""
    found = random_access(codec, types, body, length_size, start, end)
    if found is None and not (_OPEN_TYPES[codec] | _OTHER_TYPES[codec]).isdisjoint(types):
        return True  # random_access leaves the recovery points of H.264 and the open types undecided
    return found


def _recovery_point(body: bytes, length_size: int, pos: int, end: int) -> bool:
    """True if the frame has a recovery point SEI message (payload type 6, ITU-T H.264 D.1.8)."""
    while pos < end:
        unit, stop = pos + length_size, pos + length_size + int.from_bytes(body[pos : pos + length_size], "big")
        pos = stop
        if body[unit] & 31 != 6:
            continue
        unit += 1
        while unit + 2 < stop:
            fields = []
            for _ in range(2):
                value = 0
                while unit < stop and body[unit] == 255:
                    value, unit = value + 255, unit + 1
                fields.append(value + (body[unit] if unit < stop else 0))
                unit += 1
            if fields[0] == 6:
                return True
            unit += fields[1]
    return False
