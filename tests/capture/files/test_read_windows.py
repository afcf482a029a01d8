"""Windows of a file: the same bytes whether the source can step back or not."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from rtmp_spark.capture.files.compression import ByteStream
from rtmp_spark.capture.files.content_hash import TreeHash
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.files.read_windows import Windows

SAMPLES = Path(__file__).parents[3] / "sample_pcaps"


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
@pytest.mark.parametrize("window_bytes", [1, 255, 256, 257, 1000, 5000])
def test_unused_bytes_begin_the_next_window(kind: type[io.BytesIO], window_bytes: int) -> None:
    whole, rng = random.Random(2).randbytes(4000), random.Random(window_bytes)
    windows, taken, found = Windows(ByteStream(kind(whole)), window_bytes), 0, b""
    while True:
        data, size, last = windows.after(taken)
        assert last or len(data) - size >= 256 or size < 0
        taken = size if last else rng.randint(0, max(size, 0))
        found += data[:taken]
        if last:
            break
    assert found == whole


@pytest.mark.parametrize("name", ["rtmps_tls12_ffmpeg_publish.pcap", "ffmpeg_publish_g711mu_audio_only.pcap"])
@pytest.mark.parametrize("window_bytes", [700, 1 << 12, 1 << 16])
@pytest.mark.parametrize("damage", [b"", b"\xff" * 50_000])
def test_packets_and_hash_do_not_depend_on_seeking(name: str, window_bytes: int, damage: bytes) -> None:
    """The hash also covers bytes after damage: a file read from a pipe must have the same capture_id."""
    content = (SAMPLES / name).read_bytes() + damage
    results = []
    for kind in (io.BytesIO, Pipe):
        tree = TreeHash()
        capture = open_capture(kind(content), window_bytes=window_bytes, on_bytes=tree.update)
        packets = [block.packet(i) for block in capture for i in range(len(block))]
        results.append((packets, capture.facts.status, capture.size_bytes, tree.result()))
    assert results[0] == results[1]
    assert results[0][2] == len(content)
