"""Rows of a lake as the pipeline reads them: a table at the published version, filtered; and rows as plain tuples."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.schema import arrow_schema

Row = tuple[Any, ...]  # the columns of a table without ingest_id, times as microseconds


class PublishedTables(Protocol):
    """The tables of a lake at the version that an ingest started from."""

    @property
    def is_new(self) -> bool:
        """True if nothing was ever ingested, so that no table needs to be read."""

    def read(
        self, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table: ...


def to_tuples(table: pa.Table) -> list[Row]:
    columns = []
    for field, column in zip(table.schema, table.columns):
        if field.name != "ingest_id":
            columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist())
    return list(zip(*columns))


def to_table(name: str, rows: Sequence[Row], ingest_id: int) -> pa.Table:
    schema = arrow_schema(name)
    columns = list(zip(*rows)) or [()] * (len(schema) - 1)
    arrays = [pa.array(column, field.type) for column, field in zip([*columns, [ingest_id] * len(rows)], schema)]
    return pa.table(arrays, schema=schema)


def read_tuples(lake: PublishedTables, name: str, where: pc.Expression | None = None) -> list[Row]:
    return to_tuples(lake.read(name, where=where).cast(arrow_schema(name)))


def one_of(column: str, values: Collection[str]) -> pc.Expression:
    """Condition: the column has one of these values."""
    return pc.field(column).isin(pa.array(sorted(values), pa.string()))


def at_microseconds(time: int) -> pa.Scalar:
    return pa.scalar(time, pa.timestamp("us", tz="UTC"))


def microseconds(column: pa.ChunkedArray) -> list[int]:
    times: list[int] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return times
