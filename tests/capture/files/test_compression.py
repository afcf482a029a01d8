"""Compressed captures: the same bytes whichever library inflates them, in a thread or not, and as many as possible of a
damaged file."""

from __future__ import annotations

import gzip
import io
import random
import sys
import zlib
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from rtmp_spark.capture.files.compression import ByteStream, ReadAhead, open_stream
from rtmp_spark.capture.files.read_windows import Windows
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import DEFAULT_LIMITS

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


@cache
def damaged(place: int) -> tuple[bytes, bytes]:
    """A compressed file with damage in this place, and what can be inflated of it, byte by byte."""
    packed = bytearray(gzip.compress(CONTENT, 6))
    packed[place : place + 5000] = random.Random(place).randbytes(5000)
    member, found, at, given = zlib.decompressobj(31), bytearray(), 0, b""
    with suppress(zlib.error):
        while True:
            if not given:
                given, at = bytes(packed[at : at + 256]), at + 256
            found += member.decompress(given, 1)
            given = member.unconsumed_tail
    return bytes(packed), bytes(found)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("place", [1000, 200_000, 700_000, 1_000_000])
@pytest.mark.parametrize("window_bytes", [5000, 1 << 20, 1 << 23])
def test_everything_before_damage_is_read(library: str, ahead: bool, place: int, window_bytes: int) -> None:
    packed, expected = damaged(place)
    assert 0 < len(expected) < len(CONTENT) * 0.9
    stream = opened(packed, ahead)
    found = b"".join(iter(lambda: stream.read(window_bytes), b""))
    assert found == expected
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
