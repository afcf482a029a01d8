"""What codecs write into FLV tags: decoder configuration records, NAL units, the first bits of a picture.

`parse_*_config(record)` read a whole configuration record and raise DecodeError; offsets count from the
record's first byte. `walk_nals` lists the NAL units of a frame. `picture` and `sound` look at a frame's own
first bits where a codec says there what others keep in a record. Nothing here decodes a sample: what does not
help to say profile, level, size, rate, channels or random access is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from .errors import DecodeError, ViolationCode

_SPS_BYTES = 4096  # the longest legal parameter set is far shorter; bounds the work on hostile ones


def _bad(offset: int, detail: str, code: ViolationCode = ViolationCode.MEDIA_TAG) -> DecodeError:
    return DecodeError(code, offset, detail)


@dataclass(frozen=True, slots=True)
class VideoConfig:
    """Numbers as the bitstream has them: profile_idc and level_idc, seq_profile and seq_level_idx, ..."""

    profile: int | None = None
    level: int | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None
    length_size: int | None = None  # bytes of a NAL unit's length, where the codec has NAL units


@dataclass(frozen=True, slots=True)
class AudioConfig:
    """`profile` is the MPEG-4 audio object type; `sample_rate` and `channels` are those that come out."""

    profile: int | None = None
    sample_rate: int | None = None
    channels: int | None = None
    frame_samples: int | None = None


class _Bits:
    """Bits of a byte string from the left; refuses to read past the end."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8 - start * 8
        self._size = len(data)

    @property
    def offset(self) -> int:
        return self._size - (self._left + 7) // 8

    @property
    def left(self) -> int:
        return self._left

    def read(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise _bad(self._size, "the configuration record ends too early")
        return (self._value >> self._left) & ((1 << count) - 1)

    def ue(self) -> int:
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise _bad(self.offset, "an Exp-Golomb code of more than 32 bits")
        return (1 << zeros) - 1 + self.read(zeros)

    def se(self) -> int:
        code = self.ue()
        return (code + 1) // 2 if code & 1 else -(code // 2)

    def align(self) -> None:
        self._left -= self._left % 8


def _rbsp(nal: bytes, header: int) -> _Bits:
    """The payload of a NAL unit without its header and its emulation prevention bytes."""
    return _Bits(nal[header:_SPS_BYTES].replace(b"\0\0\3", b"\0\0"))


# ---- H.264, ISO 14496-15 5.3.3.1 and ITU-T H.264 7.3.2.1

_AVC_CHROMA_PROFILES = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}


def parse_avc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    if len(record) < 7:
        raise _bad(len(record), f"an AVC configuration of {len(record)} bytes; the smallest has 7")
    if record[0] != 1:
        raise _bad(0, f"AVC configuration version {record[0]}, must be 1")
    units, pos = _parameter_sets(record, 6, record[5] & 31)
    if pos >= len(record):
        raise _bad(pos, "the AVC configuration ends before its picture parameter sets")
    _parameter_sets(record, pos + 1, record[pos])
    width = height = fps = None
    if units:
        width, height, fps = _parse_avc_sps(units[0])
    return VideoConfig(record[1], record[3], width, height, fps, (record[4] & 3) + 1)


def _refuse_start_code(record: bytes) -> None:
    if record.startswith((b"\0\0\0\1", b"\0\0\1")):
        raise _bad(0, "a start code where the configuration record belongs", ViolationCode.MEDIA_ANNEXB)


def _parameter_sets(record: bytes, pos: int, count: int) -> tuple[list[bytes], int]:
    units = []
    for _ in range(count):
        end = pos + 2 + int.from_bytes(record[pos : pos + 2], "big")
        if end > len(record) or pos + 2 > len(record):
            raise _bad(pos, "a parameter set reaches past the end of the configuration record")
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
    if width <= 0 or height <= 0 or max(width, height) > 0xFFFF:
        raise _bad(0, f"a sequence parameter set with a picture of {width} x {height}")
    return width, height, _avc_vui_fps(bits)


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) & 255
        last = following or last


def _avc_vui_fps(bits: _Bits) -> float | None:
    """ITU-T H.264 E.1.1, as far as the timing."""
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

_HEVC_SPS = 33


def parse_hevc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    if len(record) < 23:
        raise _bad(len(record), f"an HEVC configuration of {len(record)} bytes; the smallest has 23")
    width = height = None
    pos = 23
    for _ in range(record[22]):
        if pos + 3 > len(record):
            raise _bad(pos, "the HEVC configuration ends before its parameter sets")
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
    if width <= 0 or height <= 0 or max(width, height) > 0xFFFF:
        raise _bad(0, f"a sequence parameter set with a picture of {width} x {height}")
    return width, height


def parse_vvc_config(record: bytes) -> VideoConfig:
    _refuse_start_code(record)
    # E-RTMP carries the record; a file box puts a version and flags, four zero bytes, before it
    bits = _Bits(record[:_SPS_BYTES], 4 if record.startswith(b"\0\0\0\0") else 0)
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


# ---- AV1 (av1-isobmff 2.3.3, AV1 5.5), VP9 (vp-codec-iso-media-file-format)

_OBU_SEQUENCE, _OBU_FRAME_HEADER, _OBU_FRAME = 1, 3, 6
_OBUS_BEFORE_FRAME = 64  # a delimiter, a sequence header and some metadata are usual


def parse_av1_config(record: bytes) -> VideoConfig:
    if len(record) < 4:
        raise _bad(len(record), f"an AV1 configuration of {len(record)} bytes; the smallest has 4")
    if record[0] != 0x81:
        raise _bad(0, f"AV1 configuration starts with {record[0]:#04x}, must be 0x81 (marker, version 1)")
    width = height = None
    for kind, start, end in _obus(record, 4):
        if kind == _OBU_SEQUENCE:
            width, height = _parse_av1_sequence(record[start:end][:_SPS_BYTES])
            break
    return VideoConfig(record[1] >> 5, record[1] & 31, width, height)


def _obus(data: bytes, pos: int) -> list[tuple[int, int, int]]:
    """Type, start and end of each OBU as far as the first frame; stops where sizes stop adding up."""
    units: list[tuple[int, int, int]] = []
    while pos < len(data) and len(units) < _OBUS_BEFORE_FRAME:
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
    bits = _Bits(obu)
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
        raise _bad(len(record), f"a VP9 configuration of {len(record)} bytes; the smallest has 8")
    return VideoConfig(record[start], record[start + 1])


# ---- AAC, ISO 14496-3 1.6.2.1 and 4.4.1

_AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_AAC_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8, 11: 7, 12: 8, 13: 24, 14: 8}
_SBR, _PS, _BSAC = 5, 29, 22
_GENERAL_AUDIO = {1, 2, 3, 4, 6, 7, 17, 19, 20, 21, 22, 23}


def parse_aac_config(record: bytes) -> AudioConfig:
    if is_adts(record):
        raise _bad(0, "an ADTS header where the AudioSpecificConfig belongs", ViolationCode.MEDIA_ADTS)
    bits = _Bits(record[:_SPS_BYTES])
    profile = _aac_object_type(bits)
    core_rate = rate = _aac_rate(bits)
    channel_config = bits.read(4)
    explicit, ps = profile in (_SBR, _PS), profile == _PS
    core = profile
    if explicit:
        rate = _aac_rate(bits)
        core = _aac_object_type(bits)
        if core == _BSAC:
            bits.read(4)
    channels = _AAC_CHANNELS.get(channel_config)
    samples = None
    if core in _GENERAL_AUDIO:
        samples = 960 if bits.read(1) else 1024
        if bits.read(1):
            bits.read(14)
        bits.read(1)
        if channel_config == 0:
            channels = _aac_program_channels(bits)
        if not explicit and bits.left >= 21 and bits.read(11) == 0x2B7:
            if _aac_object_type(bits) == _SBR and bits.read(1):
                profile, rate = _SBR, _aac_rate(bits)
                if bits.left >= 12 and bits.read(11) == 0x548 and bits.read(1):
                    profile, ps = _PS, True
    if ps and channels == 1:
        channels = 2
    if samples and rate == 2 * core_rate:
        samples *= 2
    return AudioConfig(profile, rate, channels, samples)


def _aac_object_type(bits: _Bits) -> int:
    kind = bits.read(5)
    return 32 + bits.read(6) if kind == 31 else kind


def _aac_rate(bits: _Bits) -> int:
    index = bits.read(4)
    if index == 15:
        return bits.read(24)
    if index >= len(_AAC_RATES):
        raise _bad(bits.offset, f"sampling frequency index {index} of no meaning")
    return _AAC_RATES[index]


def _aac_program_channels(bits: _Bits) -> int:
    """The program_config_element that takes the place of channel configuration 0."""
    bits.read(4 + 2 + 4)
    sides = bits.read(4) + bits.read(4) + bits.read(4)
    low = bits.read(2)
    bits.read(3 + 4)
    for size in (4, 4, 3):
        if bits.read(1):
            bits.read(size)
    channels = low
    for _ in range(sides):
        channels += 1 + bits.read(1)
        bits.read(4)
    return channels


def is_adts(data: bytes, start: int = 0) -> bool:
    """A syncword with layer 0 and a frame length that fits; no raw_data_block begins like this."""
    if len(data) - start < 7 or data[start] != 0xFF or data[start + 1] & 0xF6 != 0xF0:
        return False
    length = (data[start + 3] & 3) << 11 | data[start + 4] << 3 | data[start + 5] >> 5
    return 7 <= length <= len(data) - start


def parse_opus_config(record: bytes) -> AudioConfig:
    if len(record) < 19 or not record.startswith(b"OpusHead"):
        raise _bad(0, "not an Opus identification header (RFC 7845 5.1)")
    return AudioConfig(None, 48000, record[9])  # the rate in the header is the input's; Opus plays at 48 kHz


def parse_flac_config(record: bytes) -> AudioConfig:
    start = 4 if record.startswith(b"fLaC") else 0
    if len(record) - start != 34:  # libavformat sends STREAMINFO bare, E-RTMP wants the marker and block headers
        if len(record) - start < 38 or record[start] & 127:
            raise _bad(start, "not a FLAC STREAMINFO block")
        start += 4
    packed = int.from_bytes(record[start + 10 : start + 14], "big")
    return AudioConfig(None, packed >> 12, (packed >> 9 & 7) + 1)


Config = VideoConfig | AudioConfig
CONFIG_PARSERS: dict[str, Callable[[bytes], Config]] = {
    "avc": parse_avc_config,
    "hevc": parse_hevc_config,
    "vvc": parse_vvc_config,
    "av1": parse_av1_config,
    "vp9": parse_vp9_config,
    "aac": parse_aac_config,
    "opus": parse_opus_config,
    "flac": parse_flac_config,
}

# ---- NAL units

_LENGTH4 = Struct(">IB").unpack_from


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
    """The type stands in the second header byte of H.266 (7.3.1.2)."""
    types = []
    while pos < stop:
        length = int.from_bytes(body[pos : pos + length_size], "big")
        if length < 2:
            raise _bad(pos, "a NAL unit shorter than its header", ViolationCode.MEDIA_NAL)
        types.append(body[pos + length_size + 1] >> 3)
        pos += length_size + length
    return types


def _nal_fault(body: bytes, start: int, stop: int, pos: int) -> DecodeError:
    if body[start : start + 4] == b"\0\0\0\1" or body[start : start + 3] == b"\0\0\1":
        return _bad(start, "start codes where NAL unit lengths belong", ViolationCode.MEDIA_ANNEXB)
    if pos > stop:
        detail = f"the last NAL unit reaches {pos - stop} bytes past the end"
    else:
        detail = f"{stop - pos} bytes at the end are no NAL unit"
    return _bad(min(pos, stop), detail, ViolationCode.MEDIA_NAL)


# NAL unit types of pictures where a decoder can always start, and of those where it cannot. The rest (CRA, GDR) may
# stand under either flag. ITU-T H.264 table 7-1, H.265 table 7-1, H.266 table 5
IDR_TYPES = {"avc": frozenset((5,)), "hevc": frozenset(range(16, 21)), "vvc": frozenset((7, 8))}
_OTHER_TYPES = {"avc": frozenset((1, 2, 3, 4)), "hevc": frozenset(range(16)), "vvc": frozenset(range(7))}


def random_access(codec: str, types: list[int], body: bytes, length_size: int, start: int, end: int) -> bool | None:
    """Can a decoder start at this frame? None where either flag is right: no picture, open GOP, gradual refresh."""
    if not IDR_TYPES[codec].isdisjoint(types):
        return True
    if _OTHER_TYPES[codec].isdisjoint(types):
        return None
    if codec == "avc" and 6 in types and _recovery_point(body, length_size, start, end):
        return None
    return False


def _recovery_point(body: bytes, length_size: int, pos: int, end: int) -> bool:
    """An SEI message of payload type 6, ITU-T H.264 D.1.8."""
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


# ---- frames that describe themselves


def picture(codec: str, body: bytes) -> tuple[bool | None, int | None, int | None]:
    """Random access (None: cannot tell), width and height by the frame's own header."""
    if codec == "vp9" and len(body) >= 10 and body[0] >> 6 == 2:  # VP9 bitstream 6.2
        profile = body[0] >> 5 & 1 | body[0] >> 3 & 2
        bits = _Bits(body[:16])
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
        bits = _Bits(body[:9])
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
            if body[start] >> 3 & 1:  # reduced_still_picture_header: frames do not say their type
                break
            width, height = _parse_av1_sequence(body[start:end][:_SPS_BYTES])
        elif kind in (_OBU_FRAME, _OBU_FRAME_HEADER) and end > start:
            existing, frame_type, shown = body[start] >> 7, body[start] >> 5 & 3, body[start] >> 4 & 1
            if existing or frame_type == 2 or (frame_type == 0 and not shown):
                break
            return frame_type == 0, width, height
    return None, width, height


_AC3_RATES = (48000, 44100, 32000)
_AC3_CHANNELS = (2, 1, 2, 3, 3, 4, 4, 5)


def sound(codec: str, body: bytes, start: int = 0) -> tuple[int, int] | None:
    """Sample rate and channels by the header of an MPEG audio (ISO 11172-3) or (E-)AC-3 (ETSI TS 102 366) frame."""
    if codec == "mp3":
        if len(body) < start + 4 or body[start] != 0xFF or body[start + 1] < 0xE0:
            return None
        version, index = body[start + 1] >> 3 & 3, body[start + 2] >> 2 & 3
        if version == 1 or index == 3:
            return None
        return (44100, 48000, 32000)[index] >> {3: 0, 2: 1, 0: 2}[version], 1 if body[start + 3] >> 6 == 3 else 2
    if len(body) < start + 8 or body[start : start + 2] != b"\x0b\x77":
        return None
    rate, mode = body[start + 4] >> 6, body[start + 6] >> 5
    if codec == "eac3":
        half, mode, low = body[start + 4] >> 4 & 3, body[start + 4] >> 1 & 7, body[start + 4] & 1
        if rate == half == 3:
            return None
        return (_AC3_RATES[rate] if rate < 3 else _AC3_RATES[half] // 2), _AC3_CHANNELS[mode] + low
    if rate == 3:
        return None
    skipped = 2 * (mode & 1 and mode != 1) + 2 * (mode >> 2) + 2 * (mode == 2)
    low = int.from_bytes(body[start + 6 : start + 8], "big") >> (12 - skipped) & 1
    return _AC3_RATES[rate], _AC3_CHANNELS[mode] + low
