"""Every way from captures to rows gives the rows of an ingest: `decode`, and a stream of files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.separate_ingest import NAMES, assert_same
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake import failpoint
from rtmp_spark.lake.ledger import Batch, Ledger
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.schema import TABLES
from rtmp_spark.spark import decode, ingest_batch, register


def test_decode(spark: SparkSession, local: Path, sample_pcaps: Path) -> None:
    lake = open_lake(local)
    with decode(spark, [str(sample_pcaps / name) for name in NAMES]) as tables:
        for name in TABLES:
            found = tables.table(name).drop("ingest_id", "ingested_at", "state").toArrow().to_pylist()
            expected = lake.read(name, [c for c in TABLES[name].column_names if c in (found or [{}])[0]]).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), name
            assert found or name in ("payloads", "paths"), "paths needs two sensors"
        directory = Path(tables._lake.location.uri)
        assert directory.exists()
    assert not directory.exists()


def test_decode_refuses_what_is_not_a_capture(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_text("not a capture")
    with pytest.raises(UserError, match=r"a\.pcap cannot be decoded: "):
        decode(spark, str(tmp_path / "a.pcap"))
    with pytest.raises(UserError, match=r"mistyped\.pcap' does not exist\."):
        decode(spark, str(tmp_path / "mistyped.pcap"))


class Died(Exception):
    pass


def test_a_stream_ingests_each_file_once(
    spark: SparkSession, local: Path, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run dies after its rows are published and before Spark knows that the batch is done."""
    register(spark)
    captures, lake = tmp_path / "captures", tmp_path / "lake"
    captures.mkdir()
    for name in NAMES:
        shutil.copy(sample_pcaps / name, captures / name)
    published: list[list[str]] = []

    def ingested(batch: DataFrame, batch_id: int) -> None:
        published.append(ingest_batch(batch, batch_id, str(lake), app_id="test").ingested)

    def run() -> None:
        files = spark.readStream.format("pcap").options(filesOnly="true", settle="0").load(str(captures))
        query = files.writeStream.foreachBatch(ingested).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def die(name: str) -> None:
        if name == "after publish":
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(failpoint, "observers", [die])
        with pytest.raises(Exception, match="Died"):
            run()
    assert published == []
    newest = open_lake(lake).published.ingest_id
    run()
    assert published == [[]], "the files of the repeated batch are known"
    assert_same(local, lake)
    ledger = Ledger(locate(lake))
    assert ledger.last_batch("test") == 0
    assert [row.batch for row in ledger.history()] == [None] * newest + [Batch("test", 0)]
    repeated = spark.createDataFrame([(str(captures / NAMES[0]),), (str(captures / "deleted.pcap"),)], "path string")
    assert ingest_batch(repeated, 0, str(lake), app_id="test").files == 0, "a batch in the ledger is not planned again"
    assert ingest_batch(repeated, 1, str(lake), app_id="test").known == [str(captures / NAMES[0])]
