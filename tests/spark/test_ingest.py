"""Ingest through Spark: the rows of the sequential analysis, published as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kit.ingested_lakes import VOLATILE, Rows, captures_of_many_kinds
from pyspark.sql import SparkSession

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest import worker_progress
from rtmp_spark.ingest.ingest_progress import Progress
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.schema import TABLES
from rtmp_spark.spark import Lake, Summary, ingest

SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"


def raw(lake: Path) -> Rows:
    """Every table at its newest version, as any Delta reader sees it when no ingest died."""
    found: Rows = {}
    for name in TABLES:
        table = deltalake.DeltaTable(str(lake / name)).to_pyarrow_table()
        keep = [c for c in table.column_names if c not in VOLATILE]
        found[name] = sorted(map(repr, table.select(keep).to_pylist())) if name != "open_flows" else []
    return found


@pytest.fixture(scope="module")
def captures(sample_pcaps: Path) -> list[Path]:
    return captures_of_many_kinds(sample_pcaps)


def run(spark: SparkSession, paths: Iterable[Path], lake: Path, **options: Any) -> Summary:
    return ingest(spark, map(str, paths), str(lake), **options)


@pytest.fixture(scope="module")
def all_at_once(spark: SparkSession, captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lakes") / "whole"
    summary = run(spark, captures, lake)
    assert len(summary.ingested) == len(captures) and not summary.failed
    return lake


def test_the_sequential_path_gives_the_same_rows(spark: SparkSession, captures: list[Path], all_at_once: Path) -> None:
    key = Lake(spark, str(all_at_once)).redact_key.hex()
    tables = (*ALL_TABLES, "deliveries")
    expected: dict[str, list[str]] = {name: [] for name in tables}
    settings = replace(IngestOptions(redact_key=key).settings(), rules_across_connections=True)
    for table, batch in Recording(map(str, captures), settings, tables).batches():
        keep = [c for c in batch.schema.names if c not in VOLATILE]
        expected[table] += map(repr, batch.select(keep).to_pylist())
    got = raw(all_at_once)
    assert len(expected["deliveries"]) == 2  # of the two captures with a player
    for name in tables:
        assert sorted(expected[name]) == got[name], name


def test_progress_is_reported_while_it_runs(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers report bytes of both passes and messages, and delete their files of counters."""
    monkeypatch.setattr(worker_progress, "BETWEEN_SECONDS", 0.01)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reported: list[Progress] = []
    path = sample_pcaps / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    run(spark, [path], tmp_path / "lake", progress=reported.append, split_bytes=1 << 17)
    size = path.stat().st_size
    assert [p.phase for p in reported if p.bytes_done is None] == ["scan", "decode", "write"]
    for phase in ("scan", "decode"):
        done = [p for p in reported if p.phase == phase and p.bytes_done is not None]
        assert done and done == sorted(done, key=lambda p: p.bytes_done or 0) and done[-1].bytes == size
        assert all(0 < (p.bytes_done or 0) <= size and p.rate and p.left_seconds is not None for p in done)
    assert reported[-1].messages == Lake(spark, str(tmp_path / "lake")).messages.count()
    assert [p.name for p in tmp_path.iterdir()] == ["lake"]


def test_a_dry_run_does_nothing(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    summary = run(spark, [sample_pcaps / SMALL], tmp_path / "lake", dry_run=True, split_bytes=1 << 14)
    assert summary.splits == 2 and not (tmp_path / "lake").exists()


def test_payloads_only_when_asked(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(spark, [sample_pcaps / SMALL], lake, keep_payloads=True, keep_secrets=True)
    row = spark.sql(
        "SELECT count(*) AS n, sum(if(crc32(payload) = payload_crc32, 0, 1)) AS bad "
        "FROM {p} JOIN {m} USING (uid, direction, msg_no)",
        p=Lake(spark, str(lake)).payloads,
        m=Lake(spark, str(lake)).messages,
    ).first()
    assert row is not None and row["n"] == Lake(spark, str(lake)).messages.count() > 0 and row["bad"] == 0


def test_a_lake_that_another_ingest_writes_to(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    with open_writer(locate(tmp_path / "lake")), pytest.raises(UserError, match="is writing to the lake"):
        run(spark, [sample_pcaps / SMALL], tmp_path / "lake", wait_seconds=0)
