"""How many cores a session has: never the number of its shuffle partitions."""

from __future__ import annotations

import pytest
from kit.separate_ingest import python
from pyspark.sql import SparkSession

from rtmp_spark.spark.cores import cluster_cores

COUNTS = """
from pyspark.sql import SparkSession
from rtmp_spark.spark.cores import cluster_cores
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
assert cluster_cores(spark) == 2, cluster_cores(spark)
"""


def test_of_the_master(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    try:
        assert cluster_cores(spark) == 2
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_of_an_unknown_master(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtmp_spark.spark.cores._setting", lambda *_: "")
    assert cluster_cores(spark) == 2
    monkeypatch.setattr("rtmp_spark.spark.cores._setting", lambda _, name: {"spark.executor.cores": "8"}.get(name, "3"))
    assert cluster_cores(spark) == 24


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_with_the_default_settings() -> None:
    """test_clusters.py counts the cores of clusters."""
    python(COUNTS)
