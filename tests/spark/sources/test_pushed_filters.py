"""Why `format("rtmp")` takes no filters from Spark, and that queries of one DataFrame do not affect each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from rtmp_spark.spark import register
from rtmp_spark.spark.sources.rtmp_source import RtmpReader

PLAYED = Path(__file__).parents[3] / "sample_pcaps" / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class NumbersReader(DataSourceReader):
    wanted: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for pushed in filters:
            if isinstance(pushed, EqualTo):
                self.wanted = pushed.value
            yield pushed  # Spark applies it again

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.wanted)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in range(3) if partition.value in (None, number))


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NumbersReader()


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.set(PUSHDOWN, before)


def test_spark_applies_pushed_filters_to_other_queries(spark: SparkSession, pushdown: None) -> None:
    """If this fails, Spark keeps filters apart, and `RtmpReader` can take them from this version of Spark on."""
    Numbers.__module__ = "__main__"  # Spark's Python processes get the classes by value
    NumbersReader.__module__ = "__main__"
    spark.dataSource.register(Numbers)
    numbers = spark.read.format("numbers").load()
    assert numbers.where("n = 1").count() == 1
    assert numbers.count() == 1, "of 3 rows"
    assert numbers.where("n = 1").union(numbers.where("n = 2")).count() == 1, "of 2 rows"


def test_queries_of_one_dataframe(spark: SparkSession, pushdown: None) -> None:
    assert RtmpReader.pushFilters is DataSourceReader.pushFilters
    register(spark)
    messages = spark.read.format("rtmp").load(str(PLAYED))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW m USING rtmp OPTIONS (path '{PLAYED}')")
    rows = messages.select("uid", "type_id", "length").collect()
    uids = sorted({row.uid for row in rows})
    assert len(uids) == 2

    def count(frame: DataFrame, uid: str | None = None, type_id: int | None = None) -> None:
        expected = sum(uid in (None, row.uid) and type_id in (None, row.type_id) for row in rows)
        assert expected > 0
        assert frame.count() == expected

    for uid in uids:
        count(messages.where(col("uid") == uid), uid)
    count(messages.where("type_id = 20").select("length"), None, 20)
    count(messages)
    kept = messages.where("type_id = 8").cache()
    count(kept, None, 8)
    count(messages.where("type_id = 9"), None, 9)
    count(kept, None, 8)
    kept.unpersist()
    count(messages.where(col("uid") == uids[0]).union(messages.where(col("uid") == uids[1])))
    first, second = (messages.where(col("type_id") == kind).select("uid").distinct() for kind in (8, 9))
    assert first.join(second, "uid").count() == len(
        {row.uid for row in rows if row.type_id == 8} & {row.uid for row in rows if row.type_id == 9}
    )
    count(spark.sql("SELECT * FROM m WHERE type_id = 8"), None, 8)
    count(
        spark.sql("SELECT * FROM m WHERE type_id = 9 UNION ALL SELECT * FROM m WHERE type_id = 8").where("type_id = 9"),
        None,
        9,
    )
    count(spark.table("m"))
