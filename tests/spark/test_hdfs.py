"""A lake on HDFS: delta-rs writes it, Spark reads it with its own client, and both mean the same directory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from kit.hdfs_cluster import HdfsCluster
from kit.lake_rows import contents, ingest_capture, made_rows
from kit.separate_ingest import NAMES, assert_same
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.faults import LostRace
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.maintenance import clean_up
from rtmp_spark.lake.parquet_files import write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import Writer, open_writer
from rtmp_spark.lake.writing.store_check import require_put_if_absent
from rtmp_spark.spark import Lake, ingest

pytestmark = pytest.mark.slow
TABLES = ("captures", "messages", "connections")


@pytest.fixture(scope="module")
def hdfs(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = HdfsCluster(tmp_path_factory.mktemp("hdfs"))
    yield cluster.uri
    cluster.close()


def test_an_ingest_through_spark(spark: SparkSession, local: Path, hdfs: str, sample_pcaps: Path) -> None:
    lake = f"{hdfs}/archive/lake"
    for name in NAMES:
        ingest(spark, [str(sample_pcaps / name)], lake)
    assert_same(local, lake)
    assert ingest(spark, [str(sample_pcaps / NAMES[0])], lake).known
    in_spark = Lake(spark, lake)
    assert in_spark.messages.count() == open_lake(lake).messages.count_rows() > 0
    assert in_spark.deliveries.count() == 1


def test_maintenance(hdfs: str) -> None:
    lake = locate(f"{hdfs}/maintained")
    for path in ("a", "b", "c"):
        assert ingest_capture(lake, path)
    before = contents(lake, TABLES, without=())
    compact(lake)
    cleaned = clean_up(lake, retention_hours=0)
    assert len([path for path in cleaned.files if path.startswith("messages")]) == 3
    assert contents(lake, TABLES, without=()) == before
    assert ingest_capture(lake, "d") and not ingest_capture(lake, "a")


def test_two_writers_at_once(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = locate(f"{hdfs}/raced")
    ingest_capture(lake, "a")
    require_put_if_absent(lake)
    monkeypatch.setattr("rtmp_spark.lake.writer.writer_lock", lambda *_: nullcontext())
    published = 0
    for number in range(5):
        outcomes = race(lake, number)
        published += outcomes.count("won")
        assert "lost" in outcomes
        assert open_lake(lake).findings.count_rows() == published
    assert published


def race(lake: Location, number: int) -> list[str]:
    """Two writers publish at the same moment."""
    outcomes: list[str] = []
    gate = threading.Barrier(2)
    with open_writer(lake) as first, open_writer(lake) as second:

        def publish(writer: Writer, uid: str) -> None:
            files = [write_rows(writer.target, "findings", made_rows("findings", uid))]
            gate.wait()
            try:
                writer.publish(files)
                outcomes.append("won")
            except LostRace:
                outcomes.append("lost")

        threads = [
            threading.Thread(target=publish, args=(writer, f"C{number}{n}")) for n, writer in enumerate((first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


def test_a_path_that_python_and_spark_would_spell_differently(hdfs: str) -> None:
    """delta-rs stores `a b` as `a%20b` on HDFS, Spark looks for `a b`."""
    with pytest.raises(UserError, match="Python and Spark spell differently on HDFS"):
        locate(f"{hdfs}/a b")
