"""Compressed captures: the same bytes whichever library inflates them, in a thread or not, and as many as possible of a
damaged file."""

from __future__ import annotations

import gzip
import io
import random
import sys
import zlib
from typing import Any

import pytest

from rtmp_spark.capture.files.compression import ByteStream, ReadAhead, open_stream
from rtmp_spark.capture.files.read_windows import Windows
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import DECOMPRESS_STEP_BYTES, DEFAULT_LIMITS

# A part of it compresses well: a step of output then takes little input, or much.
NIBBLES = bytes(n % 16 for n in range(256))
CONTENT = b"".join(random.Random(n).randbytes(80_000).translate(NIBBLES) + bytes([n]) * 60_000 for n in range(30))


@pytest.fixture(params=["zlib", "zlib_ng"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    else:
        pytest.importorskip("zlib_ng.zlib_ng")
    return str(request.param)


def opened(data: bytes, ahead: bool) -> ByteStream:
    stream = open_stream(io.BytesIO(data), DEFAULT_LIMITS)
    return ReadAhead(stream) if ahead else stream


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("window_bytes", [300, 70_000, 1 << 20, 1 << 23])
def test_windows_of_a_compressed_file(library: str, ahead: bool, window_bytes: int) -> None:
    content, rng = CONTENT[: 400 * window_bytes], random.Random(window_bytes)
    half = len(content) // 2
    stream = opened(gzip.compress(content[:half], 1) + gzip.compress(content[half:], 6), ahead)
    windows, taken, found = Windows(stream, window_bytes), 0, bytearray()
    while True:
        data, size, last = windows.after(taken)
        taken = size if last else rng.randint(0, max(size, 0))
        found += data[:taken]
        if last:
            break
    assert found == content
    assert stream.problem is None


def until_the_damage(data: bytes) -> bytes:
    """What can be inflated, byte by byte."""
    member, found = zlib.decompressobj(31), bytearray()
    for place in range(len(data)):
        try:
            found += member.decompress(data[place : place + 1])
        except zlib.error:
            break
    return bytes(found)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("place", [1000, 200_000, 700_000, 1_000_000])
def test_damage_costs_one_small_step(library: str, ahead: bool, place: int) -> None:
    packed = bytearray(gzip.compress(CONTENT, 6))
    packed[place : place + 5000] = random.Random(place).randbytes(5000)
    expected = until_the_damage(packed)
    assert 0 < len(expected) < len(CONTENT) * 0.9
    stream = opened(bytes(packed), ahead)
    found = stream.read(len(CONTENT))
    assert len(expected) - DECOMPRESS_STEP_BYTES <= len(found) <= len(expected) and expected.startswith(found)
    assert stream.read(1) == b""
    assert stream.problem is not None and stream.problem[0] is ViolationCode.CAPTURE_TRUNCATED


def test_an_error_of_the_file_reaches_the_reader() -> None:
    class Failing(io.BytesIO):
        def read(self, size: Any = -1) -> bytes:
            if self.tell() > 100_000:
                raise OSError(5, "Input/output error")
            return super().read(size)

    stream = ReadAhead(open_stream(Failing(gzip.compress(CONTENT, 1)), DEFAULT_LIMITS))
    with pytest.raises(OSError, match="Input/output"):
        stream.read(len(CONTENT))
