"""SQL over tables of a lake or of captures, by DuckDB: no Spark, no Java."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from rtmp_spark.codec.errors import UserError
from rtmp_spark.install_command import install_command
from rtmp_spark.schema import TABLES
from rtmp_spark.views import VIEWS

from .faults import LakeFault

if TYPE_CHECKING:
    import duckdb

_WORD = re.compile(r"\w+")
# How DuckDB reports that pyarrow could not read a table.
_UNREADABLE = re.compile(r"reading the stream registered as '(\w+)' failed: (.*)")


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
    """The result of one statement, as batches. A mistake in it, or rows that cannot be read, are a UserError."""
    with _explained():
        relation = connection.sql(text)
        if relation is not None:
            # DuckDB 2 renamed the method.
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            return _with_unique_names(read())
    raise UserError("The statement returns no rows.", "Write a SELECT.")


@contextmanager
def _explained() -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        first, *others = (line.rstrip(".!") for line in (str(error).strip() or type(error).__name__).splitlines())
        unreadable = _UNREADABLE.search(first)
        if unreadable:
            remedy = "Check that the storage can be reached; if the lake is damaged, restore it from a backup."
            raise LakeFault(f"Could not read the table {unreadable[1]}: {unreadable[2]}.", remedy) from error
        names = ", ".join(sorted({*TABLES, *VIEWS}))
        known = [line for line in others if line.startswith("Candidate bindings")]
        remedy = known[0] if known else f"Tables and views: {names}" if "Table" in first else "Correct the statement"
        raise UserError(f"The query failed: {first}.", f"{remedy}.") from error


def _with_unique_names(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """`SELECT a.uid, b.uid` gives two columns of one name; as keys of a row they would be one."""
    names: list[str] = []
    for name in rows.schema.names:
        free = (other for n in count() if (other := f"{name}_{n}" if n else name) not in names)
        names.append(next(free))
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names)])

    def batches() -> Iterator[pa.RecordBatch]:
        with _explained():
            for batch in rows:
                yield pa.record_batch(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def tables_of(text: str) -> set[str]:
    """The tables that a query may read, including those that its views read."""
    words = {word.lower() for word in _WORD.findall(text)}
    found = words.intersection(TABLES)
    for name in words.intersection(VIEWS):
        found |= _tables_in(VIEWS[name].query)
    return found


def _tables_in(text: str) -> set[str]:
    return set(_WORD.findall(text)).intersection(TABLES)
