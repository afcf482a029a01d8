"""Creates the class archive: starts a session that records the classes which an ingest uses."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from rtmp_spark.lake.location import locate
from rtmp_spark.lake.tables import create_lake
from rtmp_spark.spark.arrow_types import spark_schema

from .class_archive import archive_path, make
from .jars import delta_jars
from .spark_session import local_settings


def make_now() -> None:
    """Create the archive and wait for it: for callers that start many sessions."""
    local_settings(small=True)  # chooses the Java to use
    make(str(archive_path(delta_jars())))


def warm_up(archive: str) -> None:
    """Start a session and do in it what an ingest and a reader do.

    Java writes the archive when it ends, which is after this process: `make` waits for both.
    """
    settings = local_settings(small=True) | {"spark.master": "local[2]"}
    settings["spark.driver.extraJavaOptions"] += " " + shlex.quote(f"-XX:ArchiveClassesAtExit={archive}")
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    directory = tempfile.mkdtemp()
    try:
        rows = pa.table(
            {"part": pa.array([0, 1], pa.int32()), "text": ["a", "b"], "bytes": pa.array([b"x", None], pa.binary())}
        )
        frame = spark.createDataFrame(rows)
        for spread in (frame.coalesce(1), frame.repartitionById(2, "part")):
            spread.mapInArrow(lambda batches: batches, spark_schema(rows.schema)).toArrow()
        create_lake(locate(directory))
        table = spark.read.format("delta").option("versionAsOf", 0).load(f"file://{directory}/captures")
        table.createOrReplaceTempView("t")
        spark.sql("SELECT status, count(*) AS n FROM t WHERE packets < 3 GROUP BY status ORDER BY n").toArrow()
        spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
