"""Synthetic media is valid: ffmpeg and our reader accept it, and sizes and timestamps are as requested."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec import flv
from rtmp_spark.codec.media.reader import TagReader
from rtmp_spark.codec.message import AUDIO, VIDEO


def write(path: Path, media: Synthetic) -> None:
    tags = b"".join(flv.dump_tag(*tag) for tag in media.tags())
    path.write_bytes(flv.header(media.audio, media.video) + tags)


@pytest.mark.parametrize("size", [(320, 240), (300, 200), (1280, 720)])
def test_ffmpeg_decodes_every_frame_without_warnings(tmp_path: Path, size: tuple[int, int]) -> None:
    if shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None:
        pytest.skip("ffmpeg is not installed")
    path = tmp_path / "a.flv"
    write(path, Synthetic(seconds=2.0, width=size[0], height=size[1]))
    decode = ["ffmpeg", "-v", "warning", "-i", path, "-f", "null", "-"]
    done = subprocess.run(decode, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    probe = ["ffprobe", "-v", "error", "-count_frames", "-show_streams", "-of", "json", path]
    streams = json.loads(subprocess.run(probe, capture_output=True, check=True).stdout)["streams"]
    video = next(s for s in streams if s["codec_type"] == "video")
    audio = next(s for s in streams if s["codec_type"] == "audio")
    assert (video["codec_name"], video["width"], video["height"]) == ("h264", *size)
    assert (video["nb_read_frames"], video["r_frame_rate"]) == ("50", "25/1")
    assert (audio["codec_name"], audio["sample_rate"], audio["channels"]) == ("aac", "44100", 1)
    assert audio["nb_read_frames"] == str(round(2.0 * 44100 / 1024))


@pytest.mark.parametrize("media", [Synthetic(), Synthetic(enhanced=True), Synthetic(audio_tracks=2)])
def test_our_tag_reader_reports_no_violations(media: Synthetic) -> None:
    reader = TagReader()
    keys = 0
    for tag in media.tags():
        if tag.type_id in (AUDIO, VIDEO):
            tags, faults = reader.read(tag.type_id, 1, tag.timestamp, tag.payload)
            assert faults == []
            keys += sum(one.is_key for one in tags if one.kind == "video")
    assert keys == 5


def test_bodies_are_unique_and_timestamps_increase() -> None:
    frames = [tag for tag in Synthetic(seconds=4).tags() if tag.type_id in (AUDIO, VIDEO)][2:]
    assert len({tag.payload for tag in frames}) == len(frames)
    assert [tag.timestamp for tag in frames] == sorted(tag.timestamp for tag in frames)


def test_the_bitrate_is_within_10_percent_of_the_request() -> None:
    for kind, wanted in ((VIDEO, 2_400_000), (AUDIO, 64_000)):
        tags = Synthetic(seconds=4, video_bitrate=2_400_000, audio_bitrate=64_000).tags()
        bits = sum(len(tag.payload) for tag in tags if tag.type_id == kind) * 8 / 4
        assert abs(bits - wanted) < wanted * 0.1
