"""AV1, VP9, VP8 and older video: configuration records, and frames that describe themselves.

`parse_*_config(record)` read a whole record and raise DecodeError; `frame_header` reads the first bits of a frame,
where these codecs carry what others keep in a record. Only the fields needed for profile, level, size and random access
are read.
"""

from __future__ import annotations

from ..limits import OBUS_BEFORE_FRAME, RECORD_BYTES
from .record import Bits, VideoConfig, bad

# ---- AV1 (av1-isobmff 2.3.3, AV1 5.5), VP9 (vp-codec-iso-media-file-format)

_OBU_SEQUENCE, _OBU_FRAME_HEADER, _OBU_FRAME = 1, 3, 6


def parse_av1_config(record: bytes) -> VideoConfig:
    if len(record) < 4:
        raise bad(len(record), f"an AV1 configuration of {len(record)} bytes; the minimum is 4")
    if record[0] != 0x81:
        raise bad(0, f"AV1 configuration starts with {record[0]:#04x} instead of 0x81 (marker, version 1)")
    width = height = None
    for kind, start, end in _obus(record, 4):
        if kind == _OBU_SEQUENCE:
            width, height = _parse_av1_sequence(record[start:end][:RECORD_BYTES])
            break
    return VideoConfig(record[1] >> 5, record[1] & 31, width, height)


def _obus(data: bytes, pos: int) -> list[tuple[int, int, int]]:
    """Type, start and end of each OBU up to the first frame, or up to an impossible size."""
    units: list[tuple[int, int, int]] = []
    while pos < len(data) and len(units) < OBUS_BEFORE_FRAME:
        header, pos = data[pos], pos + 1 + (data[pos] >> 2 & 1)
        size = len(data) - pos
        if header & 2:
            size = shift = 0
            while True:
                if pos >= len(data) or shift > 49:
                    return units
                size |= (data[pos] & 127) << shift
                shift, pos = shift + 7, pos + 1
                if data[pos - 1] < 128:
                    break
        if size < 0 or pos + size > len(data):
            return units
        kind = header >> 3 & 15
        units.append((kind, pos, pos + size))
        if kind in (_OBU_FRAME, _OBU_FRAME_HEADER):
            return units
        pos += size
    return units


def _parse_av1_sequence(obu: bytes) -> tuple[int, int]:
    bits = Bits(obu)
    bits.read(3 + 1)
    if bits.read(1):
        bits.read(5)
    else:
        delay_bits = 0
        if bits.read(1):
            bits.read(64)
            if bits.read(1):
                bits.ue()
            if bits.read(1):
                delay_bits = bits.read(5) + 1
                bits.read(32 + 5 + 5)
        display_delay = bits.read(1)
        for _ in range(bits.read(5) + 1):
            bits.read(12)
            if bits.read(5) > 7:
                bits.read(1)
            if delay_bits and bits.read(1):
                bits.read(2 * delay_bits + 1)
            if display_delay and bits.read(1):
                bits.read(4)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    return bits.read(width_bits) + 1, bits.read(height_bits) + 1


def parse_vp9_config(record: bytes) -> VideoConfig:
    start = 4 if record.startswith(b"\1\0\0\0") and len(record) >= 12 else 0  # libavformat keeps the box's version
    if len(record) < start + 8:
        raise bad(len(record), f"a VP9 configuration of {len(record)} bytes; the minimum is 8")
    return VideoConfig(record[start], record[start + 1])


# ---- frames that describe themselves


def frame_header(codec: str, body: bytes) -> tuple[bool | None, int | None, int | None]:
    """Random access (None: unknown), width and height from the frame's own header."""
    if codec == "vp9" and len(body) >= 10 and body[0] >> 6 == 2:  # VP9 bitstream 6.2
        profile = body[0] >> 5 & 1 | body[0] >> 3 & 2
        bits = Bits(body[:16])
        bits.read(5 if profile == 3 else 4)
        if bits.read(1):
            return None, None, None
        if bits.read(1):
            return False, None, None
        bits.read(2 + 24 + (profile >= 2))
        if bits.read(3) != 7:
            bits.read(4 if profile & 1 else 1)
        elif profile & 1:
            bits.read(1)
        return True, bits.read(16) + 1, bits.read(16) + 1
    if codec == "vp8" and len(body) >= 10:  # RFC 6386 9.1
        if body[0] & 1:
            return False, None, None
        size = int.from_bytes(body[6:10], "little")
        return True, size & 0x3FFF, size >> 16 & 0x3FFF
    if codec == "av1":
        return _av1_picture(body)
    if codec in ("screen", "screen2") and len(body) >= 4:  # SWF 19, screen video packet
        size = int.from_bytes(body[:4], "big")
        return None, size >> 16 & 0xFFF, size & 0xFFF
    if codec == "h263" and len(body) >= 9:  # SWF 19, H.263 video packet
        bits = Bits(body[:9])
        bits.read(17 + 5 + 8)
        form = bits.read(3)
        if form < 2:
            return None, bits.read(8 << form), bits.read(8 << form)
        sizes = {2: (352, 288), 3: (176, 144), 4: (128, 96), 5: (320, 240), 6: (160, 120)}
        return None, *sizes.get(form, (None, None))
    return None, None, None


def _av1_picture(body: bytes) -> tuple[bool | None, int | None, int | None]:
    width = height = None
    for kind, start, end in _obus(body, 0):
        if kind == _OBU_SEQUENCE and end > start:
            if body[start] >> 3 & 1:  # reduced_still_picture_header: frames do not carry their type
                break
            width, height = _parse_av1_sequence(body[start:end][:RECORD_BYTES])
        elif kind in (_OBU_FRAME, _OBU_FRAME_HEADER) and end > start:
            existing, frame_type, shown = body[start] >> 7, body[start] >> 5 & 3, body[start] >> 4 & 1
            if existing or frame_type == 2 or (frame_type == 0 and not shown):
                break
            return frame_type == 0, width, height
    return None, width, height
