"""Rules across connections and deliveries as Spark jobs: the rows of `inspect`, within a time, whatever happens."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit.in_process_ingest import lake_rows
from kit.relay_captures import make_relayed
from pyspark.sql import SparkSession

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.publish import across_stage, delivery_plan
from rtmp_spark.spark import ingest
from rtmp_spark.spark.stages import SparkStages

TABLES = ("streams", "deliveries", "findings")


def test_results_and_pieces_that_kill_their_worker(spark: SparkSession) -> None:
    def deadly(text: str) -> str:  # in here, because workers cannot import this file
        if text == "b":
            os._exit(1)
        return text

    stages = SparkStages(spark, 2)
    done, dead = stages.run(lambda text: text * 2, ["a", "b", "c"], 60, small=False)
    assert sorted(done) == ["aa", "bb", "cc"] and dead == []
    done, dead = stages.run(deadly, ["a", "b", "c"], 120, small=False)
    assert sorted(done) == ["a", "c"] and [text for text, _ in dead] == ["b"]


def test_work_that_does_not_end_is_stopped(spark: SparkSession) -> None:
    def endless(text: str) -> str:
        try:
            time.sleep(100)
        except TimeoutError as error:
            return str(error)
        return text

    begun = time.monotonic()
    assert SparkStages(spark, 2).run(endless, ["a"], 1, small=False) == (["it took longer than 1 s"], [])
    assert time.monotonic() - begun < 60


def test_the_rows_of_inspect(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both steps run as jobs of several tasks, however small the capture is."""
    monkeypatch.setattr(across_stage, "SMALL_CONNECTIONS", 0)
    monkeypatch.setattr(delivery_plan, "BATCH_MESSAGES", 1000)
    paths = list(map(str, make_relayed(tmp_path, "same")))
    ingest(spark, paths, str(tmp_path / "lake"), keep_secrets=True)
    settings = replace(IngestOptions().settings(), rules_across_connections=True)
    expected: dict[str, list[str]] = {name: [] for name in TABLES}
    for table, batch in Recording(paths, settings, (*ALL_TABLES, "deliveries")).batches():
        if table in expected:
            expected[table] += [repr(row) for row in batch.drop_columns(["ingest_id"]).to_pylist()]
    assert len(expected["deliveries"]) == 16 * 40
    for name in TABLES:
        rows = [{k: v for k, v in row.items() if k != "ingest_id"} for row in lake_rows(tmp_path / "lake", name)]
        assert sorted(map(repr, rows)) == sorted(expected[name])
