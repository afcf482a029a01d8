"""Configuration records and frames. Expected numbers come from ffprobe or were read from the bits by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec.errors import DecodeError, ViolationCode
from rtmp_spark.codec.media import audio, nal, video
from rtmp_spark.codec.media.codecs import CONFIG_PARSERS
from rtmp_spark.codec.media.record import AudioConfig, VideoConfig
from rtmp_spark.vectors import BUNDLED

VECTORS = BUNDLED / "valid" / "tag"


def record(name: str, header: int) -> bytes:
    described = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return b"".join(bytes.fromhex(piece) for piece in described["input"])[header:]


# what ffprobe prints for the file of each record: size, profile_idc, level_idc, frame rate
@pytest.mark.parametrize(
    ("name", "width", "height", "profile", "level", "fps"),
    [
        ("avc_config", 320, 240, 100, 13, 25),
        ("avc_config_obs", 320, 240, 77, 13, 30),
        ("avc_config_gst", 320, 240, 244, 13, 25),
        ("avc_config_1080", 1920, 1080, 66, 40, 30),
        ("avc_config_854", 854, 480, 77, 30, 25),
        ("avc_config_interlaced", 720, 576, 100, 30, 25),
        ("avc_config_444", 322, 182, 244, 13, 24000 / 1001),
        ("avc_config_422", 640, 362, 122, 31, 60),
        ("avc_config_baseline", 176, 144, 66, 10, 15),
        ("avc_config_scaling", 320, 180, 100, 12, 25),
    ],
)
def test_avc(name: str, width: int, height: int, profile: int, level: int, fps: float) -> None:
    config = nal.parse_avc_config(record(name, 5))
    assert (config.width, config.height, config.profile, config.level) == (width, height, profile, level)
    assert config.fps == pytest.approx(fps)
    assert config.length_size == 4


def test_avc_without_parameter_sets() -> None:
    assert nal.parse_avc_config(bytes.fromhex("0164000dffe000")) == VideoConfig(100, 13, length_size=4)


def test_emulation_prevention_bytes_are_removed() -> None:
    """The VUI of this parameter set has such a byte before its timing."""
    sps = record("avc_config", 5)[8:31]
    assert sps.count(b"\0\0\3") >= 1
    assert nal.parse_avc_config(record("avc_config", 5)).fps == 25


@pytest.mark.parametrize(
    ("asc", "expected"),
    [
        ("1210", AudioConfig(2, 44100, 2, 1024)),
        ("1190", AudioConfig(2, 48000, 2, 1024)),
        ("1194", AudioConfig(2, 48000, 2, 960)),
        ("2b118800", AudioConfig(5, 48000, 2, 2048)),
        ("131056e598", AudioConfig(5, 48000, 2, 2048)),
        ("121056e500", AudioConfig(2, 44100, 2, 1024)),
        ("121056e5", AudioConfig(2, 44100, 2, 1024)),  # the flag of the extension is truncated
        ("131056e59d4880", AudioConfig(29, 48000, 2, 2048)),
        ("178049d410", AudioConfig(2, 37800, 2, 1024)),
        ("f94c2000", AudioConfig(42, 24000, 1, None)),  # xHE-AAC: object type by escape
    ],
)
def test_aac(asc: str, expected: AudioConfig) -> None:
    assert audio.parse_aac_config(bytes.fromhex(asc)) == expected


@pytest.mark.parametrize(
    ("data", "yes"),
    [
        ("fff15080013ffcaabb", True),  # frame length 9
        ("fff95080013ffcaabb", True),
        ("fff15080023ffcaabb", False),  # announces 17 bytes, has 9
        ("fffb5080013ffcaabb", False),  # layer III: an MP3 header
        ("fff150", False),
    ],
)
def test_adts(data: str, yes: bool) -> None:
    assert audio.is_adts(bytes.fromhex(data)) is yes
    assert audio.is_adts(b"\xaf\x01" + bytes.fromhex(data), 2) is yes


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_nal_units_of_every_length_size(size: int) -> None:
    units = [b"\x09\xf0", b"\x67" + bytes(20), b"\x65" + bytes(200)]
    body = b"".join(len(unit).to_bytes(size, "big") + unit for unit in units)
    assert nal.walk_nals(body, size) == [9, 7, 5]
    assert nal.walk_nals(b"xx" + body + b"yyy", size, "avc", 2, 2 + len(body)) == [9, 7, 5]
    borders = {0}
    for unit in units:
        borders.add(max(borders) + size + len(unit))
    for at in range(len(body)):
        if at in borders:
            nal.walk_nals(body, size, "avc", 0, at)
        else:
            with pytest.raises(DecodeError) as caught:
                nal.walk_nals(body, size, "avc", 0, at)
            assert caught.value.code is ViolationCode.MEDIA_NAL


def test_nal_types_of_each_codec() -> None:
    assert nal.walk_nals(bytes.fromhex("00000002 2601"), 4, "hevc") == [19]
    assert nal.walk_nals(bytes.fromhex("00000002 0041"), 4, "vvc") == [8]


def test_annex_b_is_detected() -> None:
    with pytest.raises(DecodeError) as caught:
        nal.walk_nals(bytes.fromhex("00000001 6764001f 00000001 68ee3cb0"), 4)
    assert caught.value.code is ViolationCode.MEDIA_ANNEXB


def test_a_unit_of_length_one_is_not_a_start_code() -> None:
    assert nal.walk_nals(bytes.fromhex("00000001 0a"), 4) == [10]


def test_a_recovery_point_after_another_message() -> None:
    """An SEI with a user data message of 255 + 3 bytes, followed by the recovery point."""
    sei = b"\x06" + b"\x05\xff\x03" + bytes(258) + b"\x06\x01\x80\x80"
    for unit, expected in ((sei, None), (sei[:-4] + b"\x80", False)):
        body = len(unit).to_bytes(4, "big") + unit + bytes.fromhex("00000002 419a")
        assert nal.random_access("avc", nal.walk_nals(body, 4), body, 4, 0, len(body)) is expected


PARSERS: list[Callable[[bytes], object]] = [
    *CONFIG_PARSERS.values(),
    *(lambda body, codec=codec: video.frame_header(codec, body) for codec in ("vp8", "vp9", "av1", "screen", "h263")),
    *(lambda body, codec=codec: audio.frame_format(codec, body) for codec in ("mp3", "ac3", "eac3")),
    audio.is_adts,
]
RECORDS = [
    record(name, header)
    for name, header in [
        ("avc_config_scaling", 5),
        ("avc_config_interlaced", 5),
        ("hvc1_config", 5),
        ("av01_config", 5),
        ("vp09_config", 5),
        ("vvc1_config", 5),
        ("opus_config_51", 5),
        ("flac_config", 5),
        ("aac_config_pce", 2),
    ]
]


@given(st.sampled_from(PARSERS), st.binary(max_size=120))
def test_any_bytes_raise_nothing_but_decode_errors(parse: Callable[[bytes], object], data: bytes) -> None:
    try:
        parse(data)
    except DecodeError as error:
        assert 0 <= error.offset <= max(len(data), 1)


@given(st.sampled_from(PARSERS), st.sampled_from(RECORDS), st.data())
def test_damaged_records_raise_nothing_but_decode_errors(
    parse: Callable[[bytes], object], data: bytes, draw: st.DataObject
) -> None:
    edited = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 4))):
        edited[draw.draw(st.integers(0, len(edited) - 1))] = draw.draw(st.integers(0, 255))
    try:
        parse(bytes(edited[: draw.draw(st.integers(0, len(edited)))]))
    except DecodeError:
        pass


@given(st.binary(max_size=60), st.integers(1, 4), st.sampled_from(["avc", "hevc", "vvc"]))
def test_arbitrary_frames_are_parsed_or_refused(body: bytes, size: int, codec: str) -> None:
    try:
        types = nal.walk_nals(body, size, codec)
    except DecodeError as error:
        assert error.code in (ViolationCode.MEDIA_NAL, ViolationCode.MEDIA_ANNEXB)
    else:
        nal.random_access(codec, types, body, size, 0, len(body))


@pytest.mark.parametrize("parse", CONFIG_PARSERS.values(), ids=CONFIG_PARSERS)
def test_a_record_cut_anywhere_raises_nothing_else(parse: Callable[[bytes], object]) -> None:
    refused = 0
    for data in RECORDS:
        for at in range(len(data)):
            try:
                parse(data[:at])
            except DecodeError:
                refused += 1
    assert refused
