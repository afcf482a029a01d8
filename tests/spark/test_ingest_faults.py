"""Faults during an ingest through Spark: nothing is published, or exactly what the fault did not affect.

Failpoints kill a Python worker, or an ingest in its own process, by SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kit.in_process_ingest import ingest_in_process, lake_rows
from kit.ingested_lakes import comparable_rows
from kit.separate_ingest import INGEST, QUICK_JAVA
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest import pipeline, rounds
from rtmp_spark.ingest.decode.decode_job import BucketResult, DecodeJob
from rtmp_spark.lake import failpoint
from rtmp_spark.redact import KEY_VARIABLE
from rtmp_spark.spark import ingest
from rtmp_spark.spark.stages import SparkStages

SMALL, PLAYED, TWO = (
    "ffmpeg_publish_g711mu_audio_only.pcap",
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "republish_same_name.pcap",
)
KEY = "of this test"


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets have the same hashes in every lake."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)


# -- the capture changes between the two passes ---------------------------------------------------------------------


def deleted(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def unreadable(path: Path) -> None:
    """Opening it fails with ELOOP, also for root."""
    path.unlink()
    path.symlink_to(path.name)


def test_a_capture_that_changes_between_scan_and_decode(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lake = tmp_path / "a.pcap", tmp_path / "lake"
    decode = SparkStages._decode
    for disturb in (deleted, truncated, unreadable):
        shutil.copy(sample_pcaps / PLAYED, path)

        def disturbed(
            self: SparkStages,
            *arguments: Any,
            disturb: Callable[[Path], None] = disturb,
        ) -> list[BucketResult]:
            disturb(path)
            return decode(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(SparkStages, "_decode", disturbed)
            with pytest.raises(UserError, match=r"published nothing.*a\.pcap") as caught:
                ingest(spark, [str(path)], str(lake))
        assert caught.value.exit_code == 3 and "\n" not in str(caught.value), disturb
        assert lake_rows(lake, "captures") == lake_rows(lake, "messages") == []
        path.unlink(missing_ok=True)
    shutil.copy(sample_pcaps / PLAYED, path)
    assert ingest(spark, [str(path)], str(lake)).ingested == [str(path)]
    ingest_in_process(tmp_path / "undisturbed", [path])
    assert comparable_rows(lake)["messages"] == comparable_rows(tmp_path / "undisturbed")["messages"] != []


# -- workers that die -----------------------------------------------------------------------------------------------


@pytest.fixture
def files(sample_pcaps: Path, tmp_path: Path) -> list[str]:
    good, poison = tmp_path / "good.pcap", tmp_path / "poison.pcap"
    shutil.copy(sample_pcaps / SMALL, good)
    shutil.copy(sample_pcaps / TWO, poison)
    return [str(good), str(poison)]


def kill_workers_at(spark: SparkSession, place: str, patch: pytest.MonkeyPatch) -> None:
    """The Python workers have the failpoint in their environment, this process has not."""
    patch.setitem(spark.sparkContext.environment, failpoint.VARIABLE, place)


def test_a_file_that_kills_its_worker_while_it_is_scanned(
    spark: SparkSession, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_workers_at(spark, "scan poison.pcap", monkeypatch)
    summary = ingest(spark, files, str(tmp_path / "lake"))
    assert summary.ingested == files[:1] and summary.exit_code == 4
    rows = {Path(row["path"]).name: row for row in lake_rows(tmp_path / "lake", "captures")}
    assert {name: row["status"] for name, row in rows.items()} == {"good.pcap": "ok", "poison.pcap": "failed"}
    assert rows["poison.pcap"]["error_code"] == "CRASHED"


def test_a_connection_that_kills_its_worker_is_marked_and_tried_again(
    spark: SparkSession, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    with monkeypatch.context() as patch:
        kill_workers_at(spark, "decode poison.pcap", patch)
        summary = ingest(spark, files, str(lake))
    assert len(summary.crashed) == 2 and len(lake_rows(lake, "connections")) == 1
    codes = {Path(row["path"]).name: row["error_code"] for row in lake_rows(lake, "captures")}
    assert codes == {"good.pcap": None, "poison.pcap": "CRASHED"}
    (finding,) = [row for row in lake_rows(lake, "findings") if row["rule_id"] == "CAPTURE_LIMIT"]
    assert finding["count"] == 2 and finding["detail"].count("kills the worker (the Python worker died)") == 2
    assert ingest(spark, files, str(lake)).known == files  # the same version is not tried again
    shutil.copytree(lake, tmp_path / "redo")
    ingest_in_process(tmp_path / "undisturbed", files)
    expected = comparable_rows(tmp_path / "undisturbed")
    ingest(spark, files[1:], str(tmp_path / "redo"), redo=True)
    assert comparable_rows(tmp_path / "redo")["connections"] == expected["connections"]
    for module in (pipeline, rounds):
        monkeypatch.setattr(module, "__version__", "99")
    summary = ingest(spark, files, str(lake))
    assert summary.ingested == files[1:] and not summary.crashed
    found = comparable_rows(lake)
    assert {name for name in expected if expected[name] != found[name]} <= {"findings"}
    assert not [row for row in lake_rows(lake, "findings") if row["rule_id"] == "CAPTURE_LIMIT"]


def test_a_worker_that_dies_once(
    spark: SparkSession, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an out-of-memory kill: the second attempt decodes everything, and no connection is left out."""
    decode = SparkStages._decode
    attempts: list[int] = []

    def dying_once(
        self: SparkStages, job: DecodeJob, pieces: pa.Table, buckets: int, groups: Sequence[int]
    ) -> list[BucketResult]:
        attempts.append(len(groups))
        with monkeypatch.context() as patch:
            if len(attempts) == 1:
                kill_workers_at(spark, "decode poison.pcap", patch)
            return decode(self, job, pieces, buckets, groups)

    monkeypatch.setattr(SparkStages, "_decode", dying_once)
    summary = ingest(spark, files, str(tmp_path / "lake"))
    assert len(attempts) == 2 and not summary.crashed and summary.ingested == files
    ingest_in_process(tmp_path / "undisturbed", files)
    assert comparable_rows(tmp_path / "lake") == comparable_rows(tmp_path / "undisturbed")


def test_a_resumed_connection_that_kills_its_worker_keeps_its_rows(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (str(path) for path in sorted(sample_pcaps.glob("rotated_*_0?.pcap"))[:2])
    lake = tmp_path / "lake"
    ingest_in_process(lake, [first])
    before = {name: lake_rows(lake, name) for name in ("connections", "streams", "messages", "open_flows")}
    assert all(before.values())
    kill_workers_at(spark, f"decode {Path(second).name}", monkeypatch)
    assert len(ingest(spark, [second], str(lake)).crashed) == 1
    assert {name: lake_rows(lake, name) for name in before} == before


# -- executors with disks of their own ------------------------------------------------------------------------------


def test_executors_that_write_to_their_own_disks(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python workers see an empty file system where the driver sees the lake."""
    private = tmp_path / "private"
    private.mkdir()
    program = tmp_path / "python"
    mounted = f'mount -t tmpfs tmpfs "{private}"'
    if subprocess.run(["unshare", "-m", "sh", "-c", mounted], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    program.write_text(f'#!/bin/sh\nexec unshare -m sh -c \'{mounted} && exec {sys.executable} "$@"\' sh "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    with pytest.raises(UserError, match="executors wrote to their own disks") as caught:
        ingest(spark, [str(sample_pcaps / SMALL)], str(private / "lake"))
    assert "shared storage" in caught.value.remedy
    assert lake_rows(private / "lake", "captures") == []


# -- the program is killed ------------------------------------------------------------------------------------------

AT_WORK = ("scan", "split", "files written", "after publish")  # the driver dies while executors work, or after them
IN_THE_DRIVER = (
    "locked", "store checked", "ledger read", "plan", "between tables", "before messages", "after messages",
    "after captures", "before publish", "checkpoints written",
)  # fmt: skip
WITHOUT_SPARK = """
import sys
from kit.in_process_ingest import ingest_in_process
ingest_in_process(sys.argv[-1], sys.argv[2:-2])
"""


class TwoIngests(NamedTuple):
    """A lake after the first ingest, and its tables after the second."""

    lake: Path
    dying: list[Path]
    expected: dict[str, list[str]]


@pytest.fixture(scope="module")
def two_ingests(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> TwoIngests:
    """The rows of the second ingest replace rows of the first, and need the tables of players."""
    rotated = sorted(sample_pcaps.glob("rotated_*_0?.pcap"))
    first, dying = [rotated[0], sample_pcaps / SMALL], [*rotated[1:], sample_pcaps / PLAYED]
    lake, undisturbed = (tmp_path_factory.mktemp("two") / name for name in ("lake", "undisturbed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, KEY)
        ingest_in_process(lake, first)
        shutil.copytree(lake, undisturbed)
        ingest_in_process(undisturbed, dying)
    return TwoIngests(lake, dying, comparable_rows(undisturbed))


def killed_at(place: str, program: str, given: TwoIngests, lake: Path) -> None:
    """After the death of the second ingest at this place, the next one gives the tables of an undisturbed one."""
    shutil.copytree(given.lake, lake)
    before = len(lake_rows(lake, "captures"))
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | QUICK_JAVA | {failpoint.VARIABLE: place, "PYTHONPATH": path}
    command = [sys.executable, "-c", program, "ingest", *map(str, given.dying), "--lake", str(lake)]
    died = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    published = len(given.dying) if place in ("after publish", "checkpoints written") else 0
    assert len(lake_rows(lake, "captures")) == before + published
    assert len(ingest_in_process(lake, given.dying).known) == published
    found = comparable_rows(lake)
    assert [name for name in given.expected if found[name] != given.expected[name]] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("place", AT_WORK)
def test_killed_with_its_executors(place: str, two_ingests: TwoIngests, tmp_path: Path) -> None:
    killed_at(place, INGEST, two_ingests, tmp_path / "lake")


@pytest.mark.slow
@pytest.mark.parametrize("place", IN_THE_DRIVER)
def test_killed_in_the_driver(place: str, two_ingests: TwoIngests, tmp_path: Path) -> None:
    """Spark has no part in these steps."""
    killed_at(place, WITHOUT_SPARK, two_ingests, tmp_path / "lake")
