"""Single tags and sequences of tags: golden vectors, damaged bodies and properties."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tag_vectors import compare, joined, vector

from rtmp_spark.codec.errors import DecodeError, Severity, UserError, ViolationCode
from rtmp_spark.codec.limits import MAX_TRACKS
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.vectors import BUNDLED

TAG_VECTORS = sorted(BUNDLED.glob("*/tag/*.json"))


@pytest.mark.parametrize("path", TAG_VECTORS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_tag_vector(path: Path) -> None:
    described = vector(path)
    start = described["start"]
    reader = TagReader(midstream=start.get("midstream", False))
    if "prelude" in described:
        reader.read(start["type_id"], 1, 0, joined(described["prelude"]))
    compare(described["expect"], *reader.read(start["type_id"], 1, 0, joined(described["input"])))


def test_vectors_exist() -> None:
    assert len(TAG_VECTORS) > 100
    assert all(path.stem.startswith(tuple(ViolationCode.__members__)) for path in BUNDLED.glob("invalid/tag/*.json"))


def bodies() -> list[tuple[int, bytes]]:
    found = []
    for path in TAG_VECTORS:
        described = vector(path)
        for key in ("prelude", "input"):
            if key in described:
                found.append((described["start"]["type_id"], joined(described[key])))
    return found


BODIES = bodies()


@st.composite
def messages(draw: st.DrawFn) -> tuple[int, int, int, bytes]:
    """Bodies of the vectors, most of them damaged, on a few streams."""
    type_id, body = draw(st.sampled_from(BODIES))
    if draw(st.booleans()) and body:
        edited = bytearray(body)
        for _ in range(draw(st.integers(1, 3))):
            edited[draw(st.integers(0, min(len(edited), 60) - 1))] = draw(st.integers(0, 255))
        body = bytes(edited[: draw(st.integers(0, len(edited)))] if draw(st.booleans()) else edited)
    return type_id, draw(st.integers(0, 1)), draw(st.integers(0, 5000)), body


@given(st.sampled_from([AUDIO, VIDEO, 7]), st.binary(max_size=80))
def test_any_bytes_raise_nothing_but_decode_errors(type_id: int, payload: bytes) -> None:
    try:
        for tag in parse_tag(type_id, payload):
            assert 0 < tag.body_start <= tag.body_end <= len(payload)
            assert tag.size == tag.body_end - tag.body_start
    except DecodeError as error:
        assert error.code is ViolationCode.MEDIA_TAG
        assert 0 <= error.offset <= len(payload)


@given(st.lists(messages(), max_size=6))
def test_damaged_bodies_are_read_without_an_exception(stream: list[tuple[int, int, int, bytes]]) -> None:
    reader = TagReader()
    for message in stream:
        tags, faults = reader.read(*message)
        assert all(isinstance(code, ViolationCode) and detail for code, _, detail in faults)
        assert all(tag.pts == tag.dts + (tag.cts or 0) for tag in tags)


@given(st.lists(messages(), max_size=6), st.integers(0, 6))
def test_a_resumed_reader_gives_the_same_tags(stream: list[tuple[int, int, int, bytes]], cut: int) -> None:
    whole = TagReader()
    expected = [whole.read(*message) for message in stream]
    left = TagReader()
    got = [left.read(*message) for message in stream[:cut]]
    right = TagReader.resume(json.loads(json.dumps(left.state())))
    got += [right.read(*message) for message in stream[cut:]]
    assert got == expected
    assert right.state() == whole.state()


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(UserError):
        TagReader.resume({**TagReader().state(), "version": 0})


def body_of(name: str, key: str = "input") -> bytes:
    return joined(vector(next(BUNDLED.glob(f"*/tag/{name}.json")))[key])


def test_streams_and_tracks_have_separate_state() -> None:
    reader = TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_config"))
    frame = body_of("avc_key_frame")
    (tag,), faults = reader.read(VIDEO, 2, 0, frame)
    assert tag.width is None
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]
    (tag,), faults = reader.read(VIDEO, 1, 0, frame)
    assert (tag.stream_id, tag.width, faults) == (1, 320, [])


def test_gops_are_counted_by_key_frames() -> None:
    reader = TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_key_frame", "prelude"))
    key, inter = body_of("avc_key_frame"), body_of("avc_inter_frame")
    numbers = [reader.read(VIDEO, 1, 0, body)[0][0].gop_no for body in (inter, key, inter, inter, key, inter)]
    assert numbers == [None, 1, 1, 1, 2, 2]


def test_after_a_gap_a_missing_configuration_is_not_reported() -> None:
    reader = TagReader()
    reader.receive_gap()
    assert reader.read(AUDIO, 1, 0, b"\xaf\x01\x21\x1b") == (parse_tag(AUDIO, b"\xaf\x01\x21\x1b", 1), [])


def test_the_state_of_a_closed_stream_is_dropped() -> None:
    reader = TagReader()
    reader.read(AUDIO, 1, 0, b"\xaf\x00\x12\x10")
    reader.forget(1)
    (tag,), faults = reader.read(AUDIO, 1, 0, b"\xaf\x00\x11\x90")
    assert (tag.sample_rate, faults) == (48000, [])


def test_an_incomplete_message_has_no_violation_and_sets_no_configuration() -> None:
    reader = TagReader()
    for at in range(len(body_of("avc_config"))):
        tags, faults = reader.read(VIDEO, 1, 0, body_of("avc_config")[:at], complete=False)
        assert not faults
        assert all(tag.width is None for tag in tags)
    _, faults = reader.read(VIDEO, 1, 0, body_of("avc_key_frame"))
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]


def test_a_new_codec_needs_its_own_configuration() -> None:
    reader = TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_config"))
    (tag,), faults = reader.read(VIDEO, 1, 0, body_of("hvc1_frames_x"))
    assert tag.width is None
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]


def test_the_number_of_stream_and_track_ids_is_bounded() -> None:
    reader = TagReader()
    for stream_id in range(3 * MAX_TRACKS):
        reader.read(AUDIO, stream_id, 0, b"\xaf\x00\x12\x10")
    assert len(reader.state()["tracks"]) == MAX_TRACKS
    # a stream whose configuration was dropped by the limit has no MEDIA_CONFIG_MISSING
    assert reader.read(AUDIO, 0, 0, b"\xaf\x01\x21\x1b")[1] == []


def test_the_number_of_tracks_in_a_message_is_bounded() -> None:
    payload = b"\x96\x10av01" + bytes(4) * 10_000
    tags, faults = TagReader().read(VIDEO, 1, 0, payload)
    assert len(tags) == 256
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_TAG]


def test_unknown_nal_length_sizes_are_inferred() -> None:
    rng = random.Random(7)
    for size in (2, 3, 4):
        units = [bytes([1]) + rng.randbytes(rng.randrange(1, 300)) for _ in range(3)]
        payload = b"\x27\x01\0\0\0" + b"".join(len(unit).to_bytes(size, "big") + unit for unit in units)
        (tag,), faults = TagReader(midstream=True).read(VIDEO, 1, 0, payload)
        assert (tag.nal_types, faults) == ([1, 1, 1], [])


def test_both_severities_of_a_missing_configuration() -> None:
    severities = {}
    for name in ("MEDIA_CONFIG_MISSING_avc", "MEDIA_CONFIG_MISSING_vp9"):
        ((_, severity, _),) = TagReader().read(VIDEO, 1, 0, body_of(name))[1]
        severities[name[-3:]] = severity
    assert severities == {"avc": Severity.ERROR, "vp9": Severity.WARNING}
