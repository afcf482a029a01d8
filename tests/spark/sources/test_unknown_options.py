"""Options that a data source does not have are refused, however it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rtmp_spark.spark import register

CAPTURE = str(Path(__file__).parents[3] / "sample_pcaps" / "ffmpeg_publish_bframes_rtmpdump_play.pcap")
TABLE = r"has no option 'tabel'\. Did you mean table\? Its options are table, uid, host, "


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def test_read(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=TABLE):
        spark.read.format("rtmp").option("tabel", "findings").load(CAPTURE)
    with pytest.raises(PySparkException, match=TABLE):
        spark.read.format("rtmp").schema("uid STRING").option("tabel", "findings").load(CAPTURE).count()
    with pytest.raises(PySparkException, match=r"has no option 'colour'\. Its options are payload, "):
        spark.read.format("pcap").option("colour", "red").load(CAPTURE)


def test_read_stream(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"has no option '(?i:setle)'\. Did you mean settle\?"):
        spark.readStream.format("pcap").option("setle", "0").load(str(Path(CAPTURE).parent))


def test_sql(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=TABLE):
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW u USING rtmp OPTIONS (path '{CAPTURE}', tabel 'findings')")


def test_known_options_in_any_case(spark: SparkSession) -> None:
    read = spark.read.format("rtmp").option("TABLE", "connections").option("KeepSecrets", "false")
    assert read.load([CAPTURE]).count() == read.load(CAPTURE).count() == 2
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW u USING rtmp OPTIONS (PATH '{CAPTURE}', Table 'connections')")
    assert spark.table("u").count() == 2
