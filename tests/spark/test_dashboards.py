"""The queries of docs/dashboards.md give the same rows in Spark and in DuckDB."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from kit.doc_blocks import ROOT, blocks
from pyspark.sql import SparkSession

from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.sql import connect, query
from rtmp_spark.spark import Lake


def plain(value: Any) -> Any:
    """The engines use different types for sums and quotients."""
    return float(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else value


def test_every_query_in_both_engines(spark: SparkSession, local: Path) -> None:
    queries = [block.code for block in blocks(ROOT / "docs" / "dashboards.md") if block.language == "sql"]
    assert len(queries) == 5
    Lake(spark, str(local)).create_views()
    database = connect(open_lake(local).tables())
    for text in queries:
        by_spark = [[plain(value) for value in row.values()] for row in spark.sql(text).toArrow().to_pylist()]
        by_duckdb = [[plain(value) for value in row.values()] for row in query(database, text).read_all().to_pylist()]
        assert by_spark == by_duckdb, text
        assert by_spark, text
