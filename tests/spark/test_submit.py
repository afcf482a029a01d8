"""The scripts of jobs/ under spark-submit, where driver and executors know this package from its zip alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import deltalake
import pyspark
import pytest
from otherspark import QUICK_JAVA
from pyspark.sql import SparkSession

import rtmp_spark
from rtmp_spark.capture.recording import Recording
from rtmp_spark.capture.redact import KEY_VARIABLE
from rtmp_spark.forensics.hindsight import judge_together
from rtmp_spark.spark import ingest
from rtmp_spark.spark.decode import Options
from rtmp_spark.spark.jars import delta_jars

pytestmark = [pytest.mark.slow, pytest.mark.spark]

KEY = "of this test"
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
ROOT = Path(__file__).parents[2]
TABLES = ("messages", "commands", "media_tags", "connections", "streams", "findings", "intervals")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """As in the wheel."""
    source = Path(rtmp_spark.__file__).parent
    with zipfile.ZipFile(tmp_path / "rtmp_spark.zip", "w") as archive:
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("rtmp_spark") / path.relative_to(source))
    return tmp_path / "rtmp_spark.zip"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with what is installed, but for this package, which is installed by reference."""
    program = tmp_path / "python"
    libraries = sysconfig.get_path("purelib")
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    command = [str(program), "-c", "import rtmp_spark"]
    if subprocess.run(command, env=ELSEWHERE, capture_output=True, cwd=tmp_path).returncode == 0:
        pytest.skip("this package is installed as a copy")
    return program


def submitted(
    script: str, package: Path, python: Path, *arguments: str, master: str, jars: Sequence[Path]
) -> subprocess.CompletedProcess[str]:
    settings = {
        "spark.master": master,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    options = [word for key, value in settings.items() if value for word in ("--conf", f"{key}={value}")]
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(program), *options, "--py-files", str(package), str(ROOT / "jobs" / script), *arguments]
    own = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", KEY_VARIABLE: KEY}
    environment = ELSEWHERE | QUICK_JAVA | own
    return subprocess.run(command, env=environment, cwd=package.parent, text=True, capture_output=True, timeout=900)


def submit(script: str, package: Path, python: Path, *arguments: str, master: str = "local-cluster[1,1,1024]") -> str:
    done = submitted(script, package, python, *arguments, master=master, jars=delta_jars())
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def expected(paths: list[str]) -> dict[str, list[str]]:
    """As the sequential path has them."""
    found: dict[str, list[str]] = {name: [] for name in TABLES}
    settings = replace(Options(redact_key=KEY.encode().hex()).settings(), hindsight=judge_together)
    for table, batch in Recording(paths, settings, TABLES).batches():
        found[table] += map(repr, batch.drop_columns(["ingest_id"]).to_pylist())
    return found


def test_a_recording_in_two_ingests(
    spark: SparkSession,
    sample_pcaps: Path,
    tmp_path: Path,
    package: Path,
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second resumes, on executors, what a session of our own saved."""
    files = [str(path) for path in sorted(sample_pcaps.glob("rotated_*_0?.pcap"))]
    lake = tmp_path / "lake"
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    ingest(spark, files[:1], str(lake))
    submit("ingest.py", package, python, *files[1:], "--lake", str(lake))
    wanted = expected(files)
    assert len(wanted["connections"]) == 1 and wanted["messages"]
    for table, rows in wanted.items():
        got = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table().drop_columns(["ingest_id"])
        assert sorted(map(repr, got.to_pylist())) == sorted(rows), table
    done = submit("optimize.py", package, python, "--lake", str(lake), "--no-vacuum", master="local[1]")
    assert "14 tables" in done  # the ledger is one of them


def test_without_the_jars_of_delta(tmp_path: Path, package: Path, python: Path) -> None:
    done = submitted("optimize.py", package, python, "--lake", str(tmp_path / "lake"), master="local[1]", jars=())
    assert done.returncode == 3, done.stderr[-5000:]
    assert "optimize: This Spark session has no Delta Lake." in done.stdout + done.stderr
