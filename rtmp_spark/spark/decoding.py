"""`decode(spark, paths)`: every table of captures as DataFrames, without a lake.

It runs the ingest into a directory of its own, so the rows are exactly those of an ingest: connections that span the
files are put together, and rules compare all connections. The session needs no Delta Lake to read them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.captures.capture_paths import CapturePaths
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.lake.reader import Lake, open_lake
from rtmp_spark.schema import TABLES, arrow_schema

from .arrow_types import spark_schema
from .lake import unknown_table
from .lake_location import lake_location
from .pipeline import ingest


class Tables:
    """The tables of decoded captures: `tables.messages` is a DataFrame, and so is every other table.

    All of them read files that `close()`, the end of a `with` block or the end of the program deletes.
    """

    captures: DataFrame
    connections: DataFrame
    handshakes: DataFrame
    messages: DataFrame
    controls: DataFrame
    commands: DataFrame
    media_tags: DataFrame
    streams: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    findings: DataFrame
    payloads: DataFrame

    def __init__(self, spark: SparkSession, lake: Lake, summary: Summary) -> None:
        self.spark = spark
        self.summary = summary
        self._lake = lake
        atexit.register(self.close)

    def table(self, name: str) -> DataFrame:
        if name not in TABLES:
            raise AttributeError(unknown_table(name))
        schema = spark_schema(arrow_schema(name))
        place = self._lake.location.inside(name)
        files = [f"{place.for_spark}/{file.path}" for file in self._lake.snapshot(name).files]
        if not files:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(*files)

    def __getattr__(self, name: str) -> DataFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(unknown_table(name))

    def create_views(self) -> None:
        """Every table as a temporary SQL view."""
        for name in TABLES:
            self.table(name).createOrReplaceTempView(name)

    def close(self) -> None:
        """Delete the files. DataFrames of these tables cannot be read any more."""
        atexit.unregister(self.close)
        location = self._lake.location
        if location.is_local:
            shutil.rmtree(location.uri, ignore_errors=True)
        else:
            location.delete_directory("")

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def decode(
    spark: SparkSession,
    paths: CapturePaths,
    options: IngestOptions | None = None,
    *,
    directory: str | Path | None = None,
    keylog: KeyLog | None = None,
    **fields: Any,
) -> Tables:
    """Decode captures once; the options are those of `ingest`.

    `directory` is a new directory for the tables' files, by default a temporary one on this machine. A cluster needs
    one that all machines reach. Raises UserError if a capture cannot be read.
    """
    place = directory or f"file://{tempfile.mkdtemp(prefix='rtmp_spark_tables_')}"
    summary = ingest(spark, paths, place, options, keylog=keylog, **fields)
    tables = Tables(spark, open_lake(lake_location(spark, place)), summary)
    if summary.failed:
        tables.close()
        path, reason = summary.failed[0]
        raise UserError(f"{path} cannot be decoded: {reason}.", "Leave it out, or use ingest, which notes it.")
    return tables
