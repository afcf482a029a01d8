"""Paths that are not ordinary files: pipes are read once, devices are refused, names may be absurd."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rtmp_spark import cli
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.codec.errors import UserError

CAPTURE = "ffmpeg_publish_h264_aac.pcap"


def _fill(pipe: Path, data: bytes) -> None:
    threading.Thread(target=lambda: pipe.write_bytes(data), daemon=True).start()


def test_a_pipe_alone_is_read_once(tmp_path: Path, sample_pcaps: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _fill(pipe, (sample_pcaps / CAPTURE).read_bytes())
    command = [sys.executable, "-m", "rtmp_spark.cli", "inspect", str(pipe)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "1 RTMP connection, 361 messages" in done.stdout


@pytest.mark.parametrize("others", [[CAPTURE], []])
def test_a_pipe_cannot_be_read_twice(
    others: list[str], tmp_path: Path, sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ["inspect"] if others else ["slice", "-o", str(tmp_path / "out.pcap"), "--uid", "C1"]
    assert cli.main([*command, str(pipe), *(str(sample_pcaps / name) for name in others)]) == 2
    assert "can only be read once" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_a_device_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "/dev/zero"]) == 2
    assert "/dev/zero is not a file." in capsys.readouterr().err


def test_a_key_log_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is not a file"):
        keylog.load(["/dev/zero"], environment=False)
    monkeypatch.setattr(keylog, "KEYLOG_BYTES", 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _fill(pipe, b"#" * 5000)
    with pytest.raises(UserError, match="is longer than"):
        keylog.load([pipe], environment=False)


@pytest.mark.parametrize(
    "words",
    [["inspect"], ["check"], ["extract", "-o", "x.flv"], ["inspect", __file__, "--keylog"], ["sql", "SELECT 1"]],
)
def test_a_path_of_5000_characters_is_an_ordinary_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "x" * 5000]) == 2
    printed = capsys.readouterr().err
    assert "file name too long. Check the path." in printed
    assert len(printed) < 500
