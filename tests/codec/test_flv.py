"""Tags in sequence and FLV files, by the golden vectors, by real streams and by properties."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec import flv
from rtmp_spark.codec.errors import DecodeError, EncodeError, Severity, UserError, ViolationCode
from rtmp_spark.codec.message import AUDIO, VIDEO

VECTORS = Path(flv.__file__).parents[1] / "vectors"
TAG_VECTORS = sorted(VECTORS.glob("*/tag/*.json"))
FLV_VECTORS = sorted(VECTORS.glob("*/flv/*.json"))


def joined(pieces: list[Any]) -> bytes:
    return b"".join(
        bytes.fromhex(piece) if isinstance(piece, str) else bytes.fromhex(piece["fill"]) * piece["length"]
        for piece in pieces
    )


def vector(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def compare(expect: dict[str, Any], tags: list[flv.MediaTag], faults: list[flv.Fault]) -> None:
    assert len(tags) == len(expect["tags"])
    for tag, wanted in zip(tags, expect["tags"]):
        assert {name: getattr(tag, name) for name in wanted} == wanted
    seen = list(dict.fromkeys(code.value for code, severity, _ in faults if severity is not Severity.INFO))
    assert seen == expect.get("findings", [])
    if "infos" in expect:
        infos = list(dict.fromkeys(code.value for code, severity, _ in faults if severity is Severity.INFO))
        assert infos == expect["infos"]


@pytest.mark.parametrize("path", TAG_VECTORS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_tag_vector(path: Path) -> None:
    described = vector(path)
    start = described["start"]
    reader = flv.TagReader(midstream=start.get("midstream", False))
    if "prelude" in described:
        reader.read(start["type_id"], 1, 0, joined(described["prelude"]))
    compare(described["expect"], *reader.read(start["type_id"], 1, 0, joined(described["input"])))


@pytest.mark.parametrize("path", FLV_VECTORS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_flv_vector(path: Path) -> None:
    described = vector(path)
    try:
        file = flv.parse_file(joined(described["input"]))
    except DecodeError as error:
        compare(described["expect"], [], [(error.code, error.code.severity, error.detail)])
        return
    tags, faults = read_all(file.tags)
    compare(described["expect"], tags, file.violations + faults)


def test_vectors_are_there() -> None:
    assert len(TAG_VECTORS) > 100
    assert len(FLV_VECTORS) > 10
    assert all(path.stem.startswith(tuple(ViolationCode.__members__)) for path in VECTORS.glob("invalid/[tf]*/*.json"))


def read_all(tags: list[flv.FlvTag], reader: flv.TagReader | None = None) -> tuple[list[flv.MediaTag], list[flv.Fault]]:
    reader = reader or flv.TagReader()
    found: list[flv.MediaTag] = []
    faults: list[flv.Fault] = []
    for tag in tags:
        if tag.type_id in (AUDIO, VIDEO):
            more, wrong = reader.read(tag.type_id, 1, tag.timestamp, tag.payload)
            found += more
            faults += wrong
    return found, faults


def sample_file() -> bytes:
    return joined(vector(VECTORS / "valid/flv/h264_aac.json")["input"])


# ---- FLV files


def test_a_file_cut_anywhere_gives_every_tag_before_the_cut() -> None:
    data = sample_file()
    whole = flv.parse_file(data)
    ends = [tag.offset + 11 + len(tag.payload) for tag in whole.tags]
    harmless = {9, 13, *ends, *(end + 4 for end in ends)}  # the back pointer only repeats a length
    for at in range(len(data)):
        try:
            file = flv.parse_file(data[:at])
        except DecodeError as error:
            assert at < 9
            assert error.code is ViolationCode.CAPTURE_TRUNCATED
            continue
        assert file.tags == whole.tags[: sum(end <= at for end in ends)]
        codes = [code for code, _, _ in file.violations]
        assert codes == ([] if at in harmless else [ViolationCode.CAPTURE_TRUNCATED])


@given(st.lists(st.tuples(st.sampled_from([8, 9, 18]), st.integers(0, 2**40), st.binary(max_size=300)), max_size=8))
def test_what_is_written_is_read_again(tags: list[tuple[int, int, bytes]]) -> None:
    data = flv.header(audio=True, video=False) + b"".join(flv.dump_tag(*tag) for tag in tags)
    file = flv.parse_file(data)
    assert (file.has_audio, file.has_video, file.violations) == (True, False, [])
    assert [(tag.type_id, tag.timestamp, tag.payload) for tag in file.tags] == [
        (type_id, timestamp % 2**32, payload) for type_id, timestamp, payload in tags
    ]


def test_the_writer_agrees_with_ffmpeg() -> None:
    """FFmpeg's file, taken apart and written again, is the same bytes."""
    data = sample_file()
    file = flv.parse_file(data)
    again = flv.header(file.has_audio, file.has_video)
    again += b"".join(flv.dump_tag(tag.type_id, tag.timestamp, tag.payload) for tag in file.tags)
    assert again == data


def test_tags_taken_piece_by_piece() -> None:
    data = sample_file()
    for size in (1, 7, 100, 1000):
        buffer, got, base = b"", [], 13
        for start in range(13, len(data), size):
            buffer += data[start : start + size]
            tags, used = flv.take_tags(buffer, 0)
            got += [tag._replace(offset=tag.offset + base) for tag in tags]
            buffer, base = buffer[used:], base + used
        assert not buffer
        assert got == flv.parse_file(data).tags


def test_the_writer_refuses_what_flv_cannot_hold() -> None:
    with pytest.raises(EncodeError):
        flv.dump_tag(8, 0, bytes(0x1000000))
    with pytest.raises(EncodeError):
        flv.dump_tag(300, 0, b"")


def test_an_encrypted_tag_is_marked() -> None:
    data = bytearray(flv.header() + flv.dump_tag(9, 0, b"\x17\x01"))
    data[13] |= 0x20
    (tag,) = flv.parse_file(bytes(data)).tags
    assert (tag.type_id, tag.filtered) == (9, True)


@given(st.binary(max_size=200))
def test_any_file_ends_in_tags_or_a_decode_error(data: bytes) -> None:
    for given_bytes in (data, flv.header() + data):
        try:
            flv.parse_file(given_bytes)
        except DecodeError:
            pass


# ---- tags


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
    """Bodies of the vectors, mostly damaged, on a few streams."""
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
        for tag in flv.parse_tag(type_id, payload):
            assert 0 < tag.body_start <= tag.body_end <= len(payload)
            assert tag.size == tag.body_end - tag.body_start
    except DecodeError as error:
        assert error.code is ViolationCode.MEDIA_TAG
        assert 0 <= error.offset <= len(payload)


@given(st.lists(messages(), max_size=6))
def test_damaged_bodies_are_read_without_an_exception(stream: list[tuple[int, int, int, bytes]]) -> None:
    reader = flv.TagReader()
    for message in stream:
        tags, faults = reader.read(*message)
        assert all(isinstance(code, ViolationCode) and detail for code, _, detail in faults)
        assert all(tag.pts == tag.dts + (tag.cts or 0) for tag in tags)


@given(st.lists(messages(), max_size=6), st.integers(0, 6))
def test_a_resumed_reader_goes_on_alike(stream: list[tuple[int, int, int, bytes]], cut: int) -> None:
    whole = flv.TagReader()
    expected = [whole.read(*message) for message in stream]
    left = flv.TagReader()
    got = [left.read(*message) for message in stream[:cut]]
    right = flv.TagReader.resume(json.loads(json.dumps(left.state())))
    got += [right.read(*message) for message in stream[cut:]]
    assert got == expected
    assert right.state() == whole.state()


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(UserError):
        flv.TagReader.resume({**flv.TagReader().state(), "version": 0})


def body_of(name: str, key: str = "input") -> bytes:
    return joined(vector(next(VECTORS.glob(f"*/tag/{name}.json")))[key])


def test_streams_and_tracks_are_kept_apart() -> None:
    reader = flv.TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_config"))
    frame = body_of("avc_key_frame")
    (tag,), faults = reader.read(VIDEO, 2, 0, frame)
    assert tag.width is None
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]
    (tag,), faults = reader.read(VIDEO, 1, 0, frame)
    assert (tag.stream_id, tag.width, faults) == (1, 320, [])


def test_gops_are_counted_by_key_frames() -> None:
    reader = flv.TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_key_frame", "prelude"))
    key, inter = body_of("avc_key_frame"), body_of("avc_inter_frame")
    numbers = [reader.read(VIDEO, 1, 0, body)[0][0].gop_no for body in (inter, key, inter, inter, key, inter)]
    assert numbers == [None, 1, 1, 1, 2, 2]


def test_after_a_gap_no_configuration_is_missed() -> None:
    reader = flv.TagReader()
    reader.receive_gap()
    assert reader.read(AUDIO, 1, 0, b"\xaf\x01\x21\x1b") == (flv.parse_tag(AUDIO, b"\xaf\x01\x21\x1b", 1), [])


def test_a_stream_that_was_closed_is_forgotten() -> None:
    reader = flv.TagReader()
    reader.read(AUDIO, 1, 0, b"\xaf\x00\x12\x10")
    reader.forget(1)
    (tag,), faults = reader.read(AUDIO, 1, 0, b"\xaf\x00\x11\x90")
    assert (tag.sample_rate, faults) == (48000, [])


def test_an_incomplete_message_is_not_blamed_and_configures_nothing() -> None:
    reader = flv.TagReader()
    for at in range(len(body_of("avc_config"))):
        tags, faults = reader.read(VIDEO, 1, 0, body_of("avc_config")[:at], complete=False)
        assert not faults
        assert all(tag.width is None for tag in tags)
    _, faults = reader.read(VIDEO, 1, 0, body_of("avc_key_frame"))
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]


def test_a_codec_that_takes_the_place_of_another_needs_its_own_configuration() -> None:
    reader = flv.TagReader()
    reader.read(VIDEO, 1, 0, body_of("avc_config"))
    (tag,), faults = reader.read(VIDEO, 1, 0, body_of("hvc1_frames_x"))
    assert tag.width is None
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_CONFIG_MISSING]


def test_ids_from_the_wire_cannot_fill_the_memory() -> None:
    reader = flv.TagReader()
    for stream_id in range(3 * flv.TagReader.MAX_TRACKS):
        reader.read(AUDIO, stream_id, 0, b"\xaf\x00\x12\x10")
    assert len(reader.state()["tracks"]) == flv.TagReader.MAX_TRACKS
    # one whose configuration was forgotten is not accused of having sent none
    assert reader.read(AUDIO, 0, 0, b"\xaf\x01\x21\x1b")[1] == []


def test_a_message_holds_no_more_tracks_than_there_are_ids() -> None:
    payload = b"\x96\x10av01" + bytes(4) * 10_000
    tags, faults = flv.TagReader().read(VIDEO, 1, 0, payload)
    assert len(tags) == 256
    assert [code for code, _, _ in faults] == [ViolationCode.MEDIA_TAG]


def test_unseen_length_sizes_are_found_out() -> None:
    rng = random.Random(7)
    for size in (2, 3, 4):
        units = [bytes([1]) + rng.randbytes(rng.randrange(1, 300)) for _ in range(3)]
        payload = b"\x27\x01\0\0\0" + b"".join(len(unit).to_bytes(size, "big") + unit for unit in units)
        (tag,), faults = flv.TagReader(midstream=True).read(VIDEO, 1, 0, payload)
        assert (tag.nal_types, faults) == ([1, 1, 1], [])


def test_both_severities_of_a_missing_configuration() -> None:
    severities = {}
    for name in ("MEDIA_CONFIG_MISSING_avc", "MEDIA_CONFIG_MISSING_vp9"):
        ((_, severity, _),) = flv.TagReader().read(VIDEO, 1, 0, body_of(name))[1]
        severities[name[-3:]] = severity
    assert severities == {"avc": Severity.ERROR, "vp9": Severity.WARNING}
