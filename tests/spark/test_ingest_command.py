"""`rtmp-spark ingest` as a person runs it: stopped by Ctrl-C, started on nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.cli import main
from rtmp_spark.spark import Lake, ingest

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
