"""Which place the path of a lake names under the settings of a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import Lake, ingest
from rtmp_spark.spark.lake_location import lake_location

SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"


@contextmanager
def setting(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


@pytest.mark.parametrize("key", ["fs.defaultFS", "spark.hadoop.fs.defaultFS"])
def test_a_bare_path_belongs_to_the_default_file_system(
    key: str, spark: SparkSession, sample_pcaps: Path, tmp_path: Path
) -> None:
    with setting(spark, {key: "hdfs://namenode:8020"}):
        assert str(lake_location(spark, "/lakes/a")) == "hdfs://namenode:8020/lakes/a"
        assert str(lake_location(spark, f"file://{tmp_path}")) == str(tmp_path)
        with pytest.raises(UserError, match="ambiguous"):
            lake_location(spark, "lakes/a")
    with setting(spark, {key: "viewfs://cluster"}):
        for use in (lambda path: Lake(spark, path), lambda path: ingest(spark, [str(sample_pcaps / SMALL)], path)):
            with pytest.raises(UserError, match="viewfs"):
                use(str(tmp_path / "lake"))
    assert not (tmp_path / "lake").exists()
    assert str(lake_location(spark, str(tmp_path))) == str(tmp_path)


def test_a_default_file_system_that_only_hadoop_knows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As core-site.xml sets it. A session that is not ours is asked by reading a path that does not exist."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    before = hadoop.get("fs.defaultFS")
    monkeypatch.setattr("rtmp_spark.spark.lake_location.is_own_session", lambda _: False)
    assert str(lake_location(spark, str(tmp_path))) == str(tmp_path)
    try:
        hadoop.set("fs.defaultFS", "viewfs://cluster/")  # Hadoop cannot open it
        with pytest.raises(UserError, match="Empty Mount table") as caught:
            lake_location(spark, str(tmp_path))
        assert "\n" not in str(caught.value)
        hadoop.set("fs.viewfs.mounttable.cluster.linkFallback", f"file://{tmp_path}")  # it can, and the path is another
        with pytest.raises(UserError, match="viewfs://cluster"):
            lake_location(spark, "/lake")
    finally:
        hadoop.unset("fs.viewfs.mounttable.cluster.linkFallback")
        hadoop.set("fs.defaultFS", before)


def test_credentials_of_the_session(spark: SparkSession) -> None:
    """Spark hides secrets in the output of SET."""
    values = {
        "spark.hadoop.fs.s3a.access.key": "the key",
        "fs.s3a.secret.key": "the secret",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
    }
    with setting(spark, values):
        options = lake_location(spark, "s3a://bucket/lake").options
    assert options["AWS_ACCESS_KEY_ID"] == "the key" and options["AWS_SECRET_ACCESS_KEY"] == "the secret"
    assert options["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
