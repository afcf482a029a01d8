"""AAC, Opus and FLAC configuration records, and audio frames that describe themselves.

`parse_*_config(record)` read a whole record and raise DecodeError; `frame_format` reads the header of an MPEG or
(E-)AC-3 frame, `is_adts` recognises an ADTS header, which RTMP does not allow. Only the fields needed for profile,
sample rate and channels are read.
"""

from __future__ import annotations

from ..errors import ViolationCode
from ..limits import RECORD_BYTES
from .record import AudioConfig, Bits, bad

# ---- AAC, ISO 14496-3 1.6.2.1 and 4.4.1

_AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_AAC_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8, 11: 7, 12: 8, 13: 24, 14: 8}
_SBR, _PS, _BSAC = 5, 29, 22
_GENERAL_AUDIO = {1, 2, 3, 4, 6, 7, 17, 19, 20, 21, 22, 23}


def parse_aac_config(record: bytes) -> AudioConfig:
    if is_adts(record):
        raise bad(0, "an ADTS header instead of the AudioSpecificConfig", ViolationCode.MEDIA_ADTS)
    bits = Bits(record[:RECORD_BYTES])
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


def _aac_object_type(bits: Bits) -> int:
    kind = bits.read(5)
    return 32 + bits.read(6) if kind == 31 else kind


def _aac_rate(bits: Bits) -> int:
    index = bits.read(4)
    if index == 15:
        return bits.read(24)
    if index >= len(_AAC_RATES):
        raise bad(bits.offset, f"unknown sampling frequency index {index}")
    return _AAC_RATES[index]


def _aac_program_channels(bits: Bits) -> int:
    """The channels of the program_config_element that follows channel configuration 0."""
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
    """True for a syncword with layer 0 and a frame length that fits; a raw_data_block never begins like this."""
    if len(data) - start < 7 or data[start] != 0xFF or data[start + 1] & 0xF6 != 0xF0:
        return False
    length = (data[start + 3] & 3) << 11 | data[start + 4] << 3 | data[start + 5] >> 5
    return 7 <= length <= len(data) - start


def parse_opus_config(record: bytes) -> AudioConfig:
    if len(record) < 19 or not record.startswith(b"OpusHead"):
        raise bad(0, "not an Opus identification header (RFC 7845 5.1)")
    return AudioConfig(None, 48000, record[9])  # the rate in the header is the input's; Opus plays at 48 kHz


def parse_flac_config(record: bytes) -> AudioConfig:
    start = 4 if record.startswith(b"fLaC") else 0
    if len(record) - start != 34:  # libavformat sends STREAMINFO bare, E-RTMP wants the marker and block headers
        if len(record) - start < 38 or record[start] & 127:
            raise bad(start, "not a FLAC STREAMINFO block")
        start += 4
    packed = int.from_bytes(record[start + 10 : start + 14], "big")
    return AudioConfig(None, packed >> 12, (packed >> 9 & 7) + 1)


# ---- frames that describe themselves

_AC3_RATES = (48000, 44100, 32000)
_AC3_CHANNELS = (2, 1, 2, 3, 3, 4, 4, 5)


def frame_format(codec: str, body: bytes, start: int = 0) -> tuple[int, int] | None:
    """Sample rate and channels from the header of an MPEG audio (ISO 11172-3) or (E-)AC-3 (ETSI TS 102 366) frame."""
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
