"""A lake as DataFrames: every table at the version that was published when the lake was opened.

All tables of one `Lake` belong to the same published ingest, and its DataFrames and views never change; `refresh()`
moves to the newest published ingest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.lake.reader import Lake as PublishedLake
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.schema import TABLES, arrow_schema
from rtmp_spark.views import VIEWS

from .arrow_types import spark_schema
from .lake_location import lake_location
from .session.spark_session import no_delta_lake

if TYPE_CHECKING:
    from rtmp_spark.report.connection_view import ConnectionView


class Lake:
    """The tables of one lake: `lake.messages` is a DataFrame, and so is every other table."""

    captures: DataFrame
    connections: DataFrame
    handshakes: DataFrame
    messages: DataFrame
    controls: DataFrame
    commands: DataFrame
    media_tags: DataFrame
    streams: DataFrame
    deliveries: DataFrame
    paths: DataFrame
    intervals: DataFrame
    findings: DataFrame
    payloads: DataFrame
    open_flows: DataFrame

    def __init__(self, spark: SparkSession, path: str | Path) -> None:
        self.spark = spark
        self.published: PublishedLake = open_lake(lake_location(spark, path))
        self.path = str(self.published.location)

    def refresh(self) -> None:
        """Move to the newest published version. DataFrames and views that were taken before stay as they are."""
        self.published.refresh()

    def table(self, name: str) -> DataFrame:
        if name not in TABLES:
            raise AttributeError(unknown_table(name))
        version = self.published.published.versions.get(name)
        if version is None:
            return self.spark.createDataFrame([], spark_schema(arrow_schema(name)))
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        try:
            return reader.load(f"{self.published.location.for_spark}/{name}")
        except Exception as error:
            if "[DATA_SOURCE_NOT_FOUND]" in str(error):  # raised by Java, in various classes
                raise no_delta_lake() from None
            raise

    def tables(self, names: Sequence[str]) -> dict[str, DataFrame]:
        """Several tables of the same published ingest."""
        return {name: self.table(name) for name in names}

    def __getattr__(self, name: str) -> DataFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(unknown_table(name))

    def create_views(self) -> dict[str, str]:
        """Every table, and the views of `rtmp_spark.views`, as temporary SQL views; the description of each.

        They show the lake as it is now; call it again after `refresh()`.
        """
        for name, frame in self.tables(tuple(TABLES)).items():
            frame.createOrReplaceTempView(name)
        for name, view in VIEWS.items():
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} COMMENT {_literal(view.answers)} AS {view.query}")
        return _descriptions()

    def register(self, schema: str) -> dict[str, str]:
        """The same as views in a schema of a catalog (`rtmp` or `main.rtmp`), which is created if it does not exist.

        A view shows its table at the version that is published now; call this again after each ingest and `refresh()`.
        """
        into = _quoted_name(schema)
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {into}")
        for name, table in TABLES.items():
            query = self._at_version(name)
            self.spark.sql(f"CREATE OR REPLACE VIEW {into}.{name} COMMENT {_literal(table.comment)} AS {query}")
        for name, view in VIEWS.items():
            query = view.over(into)
            self.spark.sql(f"CREATE OR REPLACE VIEW {into}.{name} COMMENT {_literal(view.answers)} AS {query}")
        return _descriptions()

    def _at_version(self, name: str) -> str:
        """The query for the published rows of a table; without rows if the lake is older than the table."""
        version = self.published.published.versions.get(name)
        if version is None:
            columns = (
                f"CAST(NULL AS {f.dataType.simpleString()}) AS {f.name}" for f in spark_schema(arrow_schema(name))
            )
            return f"SELECT {', '.join(columns)} WHERE false"
        path = f"{self.published.location.for_spark}/{name}".replace("`", "``")
        return f"SELECT * FROM delta.`{path}` VERSION AS OF {version}"

    def connection(self, uid: str) -> ConnectionView:
        """One connection, as notebooks use it: it renders itself, plots, dumps and exports."""
        from rtmp_spark.report.lake_tables import open_connection

        return open_connection(self.published, uid)

    @property
    def redact_key(self) -> bytes:
        return self.published.redact_key


def unknown_table(name: str) -> str:
    return f"Unknown table {name!r}. Use one of {', '.join(TABLES)}."


def _descriptions() -> dict[str, str]:
    return {name: table.comment for name, table in TABLES.items()} | {
        name: view.answers for name, view in VIEWS.items()
    }


def _literal(text: str) -> str:
    """A string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def _quoted_name(name: str) -> str:
    """A name of one or more parts (`main.rtmp`), each quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))
