"""Output files are complete or not there, and never an input of the command."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rtmp_spark.commands.output.output_file import whole_file


def rtmp_spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rtmp_spark.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("words", [("extract", "-o"), ("slice", "-o"), ("report", "-o"), ("check", "--junit")])
def test_no_command_overwrites_its_input(words: tuple[str, str], sample_pcaps: Path, tmp_path: Path) -> None:
    capture = tmp_path / "trace.pcap"
    shutil.copy(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap", capture)
    before = capture.read_bytes()
    done = rtmp_spark(words[0], str(capture), words[1], str(capture))
    assert done.returncode == 2
    assert done.stderr.startswith(f"rtmp-spark: {capture} is one of the input captures.")
    assert capture.read_bytes() == before and list(tmp_path.iterdir()) == [capture]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("extract", "-o"), ("slice", "-o"), ("report", "-o"), ("check", "--junit")])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_reported_in_one_sentence(words: tuple[str, str], sample_pcaps: Path) -> None:
    capture = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    done = rtmp_spark(words[0], str(capture), words[1], "/dev/full")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "rtmp-spark: /dev/full: no space left on device. Free disk space, or write elsewhere."
    )


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("the page of yesterday")
    with pytest.raises(OSError), whole_file(target) as file:
        file.write(b"the page of to")
        raise OSError(errno.ENOSPC, "no space")
    assert target.read_text() == "the page of yesterday" and list(tmp_path.iterdir()) == [target]
