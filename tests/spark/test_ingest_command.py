"""`rtmp-spark ingest` from the shell: stopped by Ctrl-C, given no captures, following a directory."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.in_process_ingest import lake_rows
from pyspark.sql import SparkSession

from rtmp_spark.cli import main
from rtmp_spark.commands import ingest as command
from rtmp_spark.commands.ingest import follow
from rtmp_spark.ingest.captures.capture_paths import closed_files, list_captures
from rtmp_spark.spark import ingest
from rtmp_spark.spark.cancellable import Stop
from rtmp_spark.spark.session import spark_session


def stopped_at(phase: str, captures: Path, lake: Path) -> tuple[int, str]:
    """Exit code and last line of an ingest whose process group gets Ctrl-C when it prints this phase."""
    command = [sys.executable, "-m", "rtmp_spark.cli", "ingest", str(captures), "--lake", str(lake)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if phase in line:
                os.killpg(process.pid, signal.SIGINT)
        return process.wait(120), lines[-1]


def published(lake: Path) -> int:
    """How many captures a lake has; 0 if it does not exist."""
    return len(lake_rows(lake, "captures")) if (lake / "_ingests").exists() else 0


@pytest.mark.slow
def test_stopped_in_the_middle_and_run_again(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """The last line states whether the ingest was published; the last phase may end before the signal arrives."""
    capture, lake = sample_pcaps / "ffmpeg_publish_h264_aac.pcap", tmp_path / "lake"
    for phase in ("Starting Spark", "scan", "write"):
        code, last = stopped_at(phase, capture, lake)
        if phase == "write" and published(lake):
            assert code == 0 or (code == 130 and last.startswith("rtmp-spark: Stopped: this ingest was published."))
        else:
            assert code == 130 and last.startswith("rtmp-spark: Stopped: nothing was published."), phase
            assert published(lake) == 0
    summary = ingest(spark, [str(capture)], str(lake))
    assert summary.ingested + summary.known == [str(capture)]
    assert published(lake) == 1 and lake_rows(lake, "messages")


@pytest.mark.parametrize("is_own", [True, False])
def test_only_a_session_that_outlives_the_process_is_stopped(is_own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping a session takes a second; our own Java ends when its input is closed."""
    stopped: list[bool] = []
    own = {"spark.rtmp_spark.own": "true"} if is_own else {}
    session = SimpleNamespace(conf=own, stop=lambda: stopped.append(True))
    monkeypatch.setattr(spark_session, "start_spark", lambda *args, **kwargs: session)
    args = argparse.Namespace(quiet=True, follow=None, master=None, paths=())
    assert command._with_spark(args, (), Stop()) == 0
    assert stopped == ([] if is_own else [True])


def test_a_directory_without_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "rtmp_spark.spark.session.spark_session.start_spark", lambda *_, **__: pytest.fail("Spark was started")
    )
    assert main(["ingest", "empty", "--lake", "lake"]) == 2
    assert capsys.readouterr().err.startswith("rtmp-spark: No captures found in empty. ")
    assert not (tmp_path / "lake").exists()


def capture(path: Path, modified: float, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def test_a_followed_file_is_closed_when_it_stops_growing(tmp_path: Path) -> None:
    """After `--settle`, or sooner if a newer file exists; two capture tools may share a directory."""
    now = 1_000_000.0
    capture(tmp_path / "long.pcap", now - 11)
    capture(tmp_path / "rotated.pcap", now - 3)
    capture(tmp_path / "of another recorder.pcap", now - 1.5)
    capture(tmp_path / "newest.pcap", now - 1)
    capture(tmp_path / "alone" / "pause.pcap", now - 9)
    closed = closed_files(list_captures([str(tmp_path)]), 10, now)
    assert sorted(Path(file.path).name for file in closed) == ["long.pcap", "rotated.pcap"]


def test_following_a_ring_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is ingested once; a reused name is another capture; a deleted file is not an error."""
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
