"""Settings of our own session, and that nobody else's are touched."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.spark.session import interpreted, local_settings

MODE = "spark.sql.codegen.factoryMode"


def test_a_collector_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert "-XX:+UseParallelGC" in local_settings(small=True)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseG1GC")
    assert "GC" not in local_settings(small=True)["spark.driver.extraJavaOptions"]


def test_code_is_written_again_where_rows_are_many(spark: SparkSession) -> None:
    usual = spark.conf.get(MODE)
    with interpreted(spark):
        assert spark.conf.get(MODE) == "NO_CODEGEN"
        with interpreted(spark, False):
            assert spark.conf.get(MODE) == usual
        assert spark.conf.get(MODE) == "NO_CODEGEN"
    assert spark.conf.get(MODE) == usual
    spark.conf.set("spark.rtmp_spark.own", "")  # somebody else's
    with interpreted(spark):
        assert spark.conf.get(MODE) == usual
    spark.conf.set("spark.rtmp_spark.own", "true")
