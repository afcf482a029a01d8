"""FLV files: golden vectors, a file written by FFmpeg, and properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tag_vectors import compare, joined, vector

from rtmp_spark.codec import flv
from rtmp_spark.codec.errors import DecodeError, EncodeError, Fault, ViolationCode
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.media.tag import MediaTag
from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.vectors import BUNDLED

FLV_VECTORS = sorted(BUNDLED.glob("*/flv/*.json"))


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


def read_all(tags: list[flv.FlvTag]) -> tuple[list[MediaTag], list[Fault]]:
    reader = TagReader()
    found: list[MediaTag] = []
    faults: list[Fault] = []
    for tag in tags:
        if tag.type_id in (AUDIO, VIDEO):
            more, wrong = reader.read(tag.type_id, 1, tag.timestamp, tag.payload)
            found += more
            faults += wrong
    return found, faults


def test_vectors_exist() -> None:
    assert len(FLV_VECTORS) > 10
    assert all(path.stem.startswith(tuple(ViolationCode.__members__)) for path in BUNDLED.glob("invalid/flv/*.json"))


def sample_file() -> bytes:
    return joined(vector(BUNDLED / "valid/flv/h264_aac.json")["input"])


def test_a_file_cut_anywhere_gives_every_tag_before_the_cut() -> None:
    data = sample_file()
    whole = flv.parse_file(data)
    ends = [tag.offset + 11 + len(tag.payload) for tag in whole.tags]
    harmless = {9, 13, *ends, *(end + 4 for end in ends)}  # the previous tag size only repeats a length
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
def test_written_tags_are_read_unchanged(tags: list[tuple[int, int, bytes]]) -> None:
    data = flv.header(audio=True, video=False) + b"".join(flv.dump_tag(*tag) for tag in tags)
    file = flv.parse_file(data)
    assert (file.has_audio, file.has_video, file.violations) == (True, False, [])
    assert [(tag.type_id, tag.timestamp, tag.payload) for tag in file.tags] == [
        (type_id, timestamp % 2**32, payload) for type_id, timestamp, payload in tags
    ]


def test_the_writer_agrees_with_ffmpeg() -> None:
    """Reading FFmpeg's file and writing its tags gives the same bytes."""
    data = sample_file()
    file = flv.parse_file(data)
    again = flv.header(file.has_audio, file.has_video)
    again += b"".join(flv.dump_tag(tag.type_id, tag.timestamp, tag.payload) for tag in file.tags)
    assert again == data


def test_tags_from_input_in_pieces() -> None:
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
def test_arbitrary_bytes_give_tags_or_a_decode_error(data: bytes) -> None:
    for given_bytes in (data, flv.header() + data):
        try:
            flv.parse_file(given_bytes)
        except DecodeError:
            pass
