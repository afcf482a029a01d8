"""`rtmp-spark ingest` as a person runs it: stopped by Ctrl-C, started on nothing."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.cli import main
from rtmp_spark.commands import ingest as command
from rtmp_spark.commands.ingest import follow
from rtmp_spark.spark import Lake, ingest
from rtmp_spark.spark.paths import closed_files, list_captures

STOPPED = "rtmp-spark: Stopped: nothing of this ingest landed. Run it again to go on."


def stopped_at(phase: str, captures: Path, lake: Path) -> list[str]:
    """What an ingest tells that gets Ctrl-C, as all processes of a terminal do, when it tells this phase."""
    command = [sys.executable, "-m", "rtmp_spark.cli", "ingest", str(captures), "--lake", str(lake)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line.rstrip("\n"))
            if phase in line:
                os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) == 130, told
    return told


def test_stopped_in_the_middle_and_run_again(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    capture, lake = sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tmp_path / "lake"
    for phase in ("Spark starts", "scan:", "write:"):
        told = stopped_at(phase, capture, lake)
        assert phase in told[-2]
        assert told[-1] == STOPPED
    summary = ingest(spark, [str(capture)], str(lake))
    assert summary.ingested == [str(capture)]
    assert Lake(spark, str(lake)).messages.count() == summary.rows["messages"] > 0


def test_a_directory_without_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rtmp_spark.spark.session.start_spark", lambda *_, **__: pytest.fail("Spark was started"))
    assert main(["ingest", "empty", "--lake", "lake"]) == 2
    assert capsys.readouterr().err.startswith("rtmp-spark: There are no captures in empty. ")
    assert not (tmp_path / "lake").exists()


def capture(path: Path, modified: float, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def test_a_followed_file_is_closed_when_it_rests(tmp_path: Path) -> None:
    """Long, or for a moment when the recorder is at the next one; two recorders may share a directory."""
    now = 1_000_000.0
    capture(tmp_path / "long.pcap", now - 11)
    capture(tmp_path / "rotated.pcap", now - 3)
    capture(tmp_path / "of another recorder.pcap", now - 1.5)
    capture(tmp_path / "newest.pcap", now - 1)
    capture(tmp_path / "alone" / "pause.pcap", now - 9)
    closed = closed_files(list_captures([str(tmp_path)]), 10, now)
    assert sorted(Path(file.path).name for file in closed) == ["long.pcap", "rotated.pcap"]


def test_following_a_ring_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, but a name that is used again is another capture, and one that is gone is no error."""
    ring = [capture(tmp_path / f"{n}.pcap", 1000 + n, "first") for n in range(2)]
    rounds: list[list[str]] = []
    stop = threading.Event()

    def once(_: argparse.Namespace, paths: Iterable[str], __: threading.Event) -> int:
        rounds.append(sorted(Path(path).name for path in paths))
        if len(rounds) == 1:
            capture(ring[0], 2000, "second")
            ring[1].unlink()
            capture(tmp_path / "2.pcap", 1500, "first")
        else:
            stop.set()
        return 0

    monkeypatch.setattr(command, "_once", once)
    watchdog = threading.Timer(30, stop.set)
    watchdog.start()
    follow(argparse.Namespace(follow=str(tmp_path), settle=0.01), stop)  # type: ignore[arg-type]
    watchdog.cancel()
    assert rounds == [["0.pcap", "1.pcap"], ["0.pcap", "2.pcap"]]
