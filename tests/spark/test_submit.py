"""The scripts of jobs/ under spark-submit, where driver and executors get this package from its zip alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from kit.spark_submit import Submitter
from pyspark.sql import SparkSession

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.redact import KEY_VARIABLE
from rtmp_spark.spark import ingest
from rtmp_spark.spark.session.jars import delta_jars

pytestmark = [pytest.mark.slow, pytest.mark.spark]

KEY = "of this test"
TABLES = ("messages", "commands", "media_tags", "connections", "streams", "findings", "intervals")


def submit(spark_submit: Submitter, script: str, *arguments: str) -> None:
    done = spark_submit.run(
        script, *arguments, master="local-cluster[1,1,1024]", jars=delta_jars(), environment={KEY_VARIABLE: KEY}
    )
    assert done.returncode == 0, done.stderr[-5000:]


def expected(paths: list[str]) -> dict[str, list[str]]:
    """The rows of the sequential analysis."""
    found: dict[str, list[str]] = {name: [] for name in TABLES}
    settings = replace(IngestOptions(redact_key=KEY.encode().hex()).settings(), rules_across_connections=True)
    for table, batch in Recording(paths, settings, TABLES).batches():
        found[table] += map(repr, batch.drop_columns(["ingest_id"]).to_pylist())
    return found


def test_a_recording_in_two_ingests(
    spark: SparkSession,
    sample_pcaps: Path,
    tmp_path: Path,
    spark_submit: Submitter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Executors resume the connections that a session of our own left open."""
    files = [str(path) for path in sorted(sample_pcaps.glob("rotated_*_0?.pcap"))]
    lake = tmp_path / "lake"
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    ingest(spark, files[:1], str(lake))
    submit(spark_submit, "ingest.py", *files[1:], "--lake", str(lake))
    wanted = expected(files)
    assert len(wanted["connections"]) == 1 and wanted["messages"]
    for table, rows in wanted.items():
        got = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table().drop_columns(["ingest_id"])
        assert sorted(map(repr, got.to_pylist())) == sorted(rows), table


INGEST_AND_READ = """
from rtmp_spark.jobs.command_job import run_job
from rtmp_spark.spark import start_spark

assert run_job("ingest") == 0
start_spark()
"""


def test_an_ingest_needs_no_delta_jars(sample_pcaps: Path, tmp_path: Path, spark_submit: Submitter) -> None:
    """Executors write Parquet files and the driver commits them, all in Python. To read DataFrames needs the jars."""
    lake = tmp_path / "lake"
    capture = str(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    script = tmp_path / "both.py"
    script.write_text(INGEST_AND_READ)
    done = spark_submit.run(script, capture, "--lake", str(lake), master="local[1]")
    assert done.returncode != 0 and "This Spark session has no Delta Lake." in done.stdout + done.stderr
    assert open_lake(lake).messages.count_rows() > 0
