"""Rows of a table as the tuples that a recording makes (no ingest, times as microseconds), and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rtmp_spark.schema import arrow_schema

Row = tuple[Any, ...]
_IN_PLACE = 500  # values that still go into a condition, where files can be skipped by it


def tuples(table: pa.Table) -> list[Row]:
    columns = []
    for field, column in zip(table.schema, table.columns):
        if field.name != "ingest_id":
            columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist())
    return list(zip(*columns))


def table_of(name: str, rows: Sequence[Row], ingest_id: int) -> pa.Table:
    schema = arrow_schema(name)
    columns = list(zip(*rows)) or [()] * (len(schema) - 1)
    arrays = [pa.array(column, field.type) for column, field in zip([*columns, [ingest_id] * len(rows)], schema)]
    return pa.table(arrays, schema=schema)


def fetch(frame: DataFrame, name: str) -> list[Row]:
    """The rows of a DataFrame that has the columns of the table `name`."""
    schema = arrow_schema(name)
    return tuples(frame.select(*schema.names).toArrow().cast(schema))


def among(spark: SparkSession, frame: DataFrame, column: str, values: Collection[str]) -> DataFrame:
    """The rows whose column has one of the values, however many these are."""
    if len(values) <= _IN_PLACE:
        return frame.where(F.col(column).isin(sorted(values)))
    chosen = spark.createDataFrame(pa.table({column: pa.array(sorted(values), pa.string())}))
    return frame.join(F.broadcast(chosen), column, "left_semi")
