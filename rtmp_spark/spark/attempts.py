"""Streams that know the try before them, over a whole lake and not only one ingest.

A new capture can hold an earlier try than rows that are there already; those rows are then replaced.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from rtmp_spark.capture.recording import number_attempts
from rtmp_spark.schema import arrow_schema, column_names

from .lake import Writer
from .ledger import Superseded
from .tables import literal

_NAMES = 500  # that still fit into a WHERE; beyond it all streams are read


def numbered(lake: Writer | None, new: pa.Table, gone: set[str], ingest_id: int) -> tuple[pa.Table, list[Superseded]]:
    """The new rows with their attempts, the old rows that change by them, and what these replace."""
    fresh = _tuples(new)
    names = {r["name"] for r in new.select(["name"]).to_pylist() if r["name"] is not None}
    old: list[tuple[Any, ...]] = []
    if lake is not None and names:
        frame = lake.table("streams")
        if len(names) <= _NAMES:
            frame = frame.where(f"name IN ({', '.join(map(literal, sorted(names)))})")
        old = [r for r in _tuples(_read(frame)) if r[0] not in gone]
    uids = {row[0] for row in fresh}
    before = {_identity(row): row for row in old}
    result = number_attempts([*old, *fresh])
    changed = {row[0] for row in result if row[0] not in uids and before[_identity(row)] != row}
    rows = [row for row in result if row[0] in uids or row[0] in changed]
    if changed and lake is not None:
        kept = lake.table("streams").where(f"uid IN ({', '.join(map(literal, sorted(changed)))})")
        have = {_identity(row) for row in rows}
        rows += [r for r in _tuples(_read(kept)) if _identity(r) not in have]
    return _table(rows, ingest_id), [Superseded(uid, tables=("streams",)) for uid in sorted(changed)]


def _read(frame: DataFrame) -> pa.Table:
    schema = arrow_schema("streams")
    return frame.select(*schema.names).toArrow().cast(schema)


def _identity(row: tuple[Any, ...]) -> tuple[Any, ...]:
    columns = column_names("streams")
    return tuple(row[columns.index(c)] for c in ("uid", "stream_id", "role", "ts_start"))


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as a recording has them: no ingest, times as microseconds."""
    columns = []
    for field, column in zip(table.schema, table.columns):
        if field.name != "ingest_id":
            columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist())
    return list(zip(*columns))


def _table(rows: list[tuple[Any, ...]], ingest_id: int) -> pa.Table:
    schema = arrow_schema("streams")
    columns = list(zip(*rows)) or [()] * (len(schema) - 1)
    arrays = [pa.array(column, field.type) for column, field in zip([*columns, [ingest_id] * len(rows)], schema)]
    return pa.table(arrays, schema=schema)
