"""SQL over tables of a lake or of captures, by DuckDB: no Spark, no Java."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from rtmp_spark.codec.errors import UserError
from rtmp_spark.install_command import install_command
from rtmp_spark.schema import TABLES
from rtmp_spark.views import VIEWS

if TYPE_CHECKING:
    import duckdb

_WORD = re.compile(r"\w+")


def connect(tables: Mapping[str, ds.Dataset | pa.Table]) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in which these tables and the views of `rtmp_spark.views` can be queried. Times are UTC."""
    try:
        import duckdb
    except ImportError:
        raise UserError("The package duckdb is not installed.", f"Install it: {install_command('lake')}", 3) from None
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in tables.items():
        connection.register(name, rows)
    for name, view in VIEWS.items():
        if tables_of(view.query) <= set(tables):
            connection.execute(f"CREATE VIEW {name} AS {view.query}")
    return connection


def query(connection: duckdb.DuckDBPyConnection, text: str) -> pa.RecordBatchReader:
    """The result of one statement, as batches. A mistake in it is a UserError."""
    import duckdb

    try:
        relation = connection.sql(text)
        if relation is not None:
            # DuckDB 2 renamed the method.
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            return _with_unique_names(read())
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        names = ", ".join(sorted({*TABLES, *VIEWS}))
        raise UserError(f"The query failed: {first.rstrip('.!')}.", f"Tables and views: {names}.") from error
    raise UserError("The statement returns no rows.", "Write a SELECT.")


def _with_unique_names(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """`SELECT a.uid, b.uid` gives two columns of one name; as keys of a row they would be one."""
    names: list[str] = []
    for name in rows.schema.names:
        free = (other for n in count() if (other := f"{name}_{n}" if n else name) not in names)
        names.append(next(free))
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names)])
    return pa.RecordBatchReader.from_batches(schema, (pa.record_batch(b.columns, schema=schema) for b in rows))


def tables_of(text: str) -> set[str]:
    """The tables that a query may read, including those that its views read."""
    words = {word.lower() for word in _WORD.findall(text)}
    found = words.intersection(TABLES)
    for name in words.intersection(VIEWS):
        found |= _tables_in(VIEWS[name].query)
    return found


def _tables_in(text: str) -> set[str]:
    return set(_WORD.findall(text)).intersection(TABLES)
