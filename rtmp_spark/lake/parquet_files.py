"""What an executor does for a lake: rows in, Parquet files in the tables' directories and their descriptions out.

Nothing here commits. Every file has a name of its own, so a retried or speculative task leaves only files that no
commit names; maintenance deletes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rtmp_spark.schema import TABLES, arrow_schema

from .faults import explained
from .location import Location
from .statistics import column_ranges, delta_statistics

# Kinds of files, the first word of their names.
PART = "part"  # final rows
OPEN = "open"  # rows that a later ingest may replace: of connections that were still open
RESUMED = "resumed"  # final rows of connections that began in an earlier ingest; in a part they would widen its range

FLUSH_BYTES = 256 << 20  # of Arrow memory; more rows of one table go into another file
# Measured on 245,000 rows each of `messages` and `media_tags`: 0.50 us and 13.0 bytes, 0.48 us and 5.0 bytes per row.
# Level 1 saves no time and takes a third more space, level 9 twice the time for 3 %. Dictionaries for numbers make the
# files a third larger and slower to write. Groups of 1 Mi rows save 9 % and make point reads read more.
COMPRESSION, COMPRESSION_LEVEL, ROW_GROUP_ROWS = "zstd", 3, 128 << 10


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that is ready to be committed. Small, and all that the driver sees of the rows."""

    table: str
    path: str  # inside the table's directory
    size: int
    rows: int
    statistics: str  # JSON of the Delta log


@dataclass(frozen=True)
class FileTarget:
    """Where an ingest writes files; the driver sends it to the executors."""

    location: Location
    ingest_id: int


class BucketFiles:
    """Collects the rows of one bucket and writes them as few sorted files."""

    def __init__(self, target: FileTarget, bucket: int) -> None:
        self.target = target
        self.bucket = bucket
        self._waiting: dict[tuple[str, str], list[pa.Table]] = {}
        self._bytes: dict[tuple[str, str], int] = {}
        self._done: list[WrittenFile] = []

    def add(self, table: str, rows: pa.Table | pa.RecordBatch, kind: str = PART) -> None:
        """Rows of a table. They may be written at once, and are by `finish`."""
        if not rows.num_rows:
            return
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        key = table, kind
        self._waiting.setdefault(key, []).append(rows)
        self._bytes[key] = self._bytes.get(key, 0) + rows.nbytes
        if self._bytes[key] >= FLUSH_BYTES:
            self._flush(key)

    def finish(self) -> list[WrittenFile]:
        """Write what waits; every file of this bucket."""
        for key in list(self._waiting):
            self._flush(key)
        return self._done

    def _flush(self, key: tuple[str, str]) -> None:
        table, kind = key
        rows = pa.concat_tables(self._waiting.pop(key))
        del self._bytes[key]
        self._done.append(write_rows(self.target, table, rows, self.bucket, kind))


def write_rows(target: FileTarget, table: str, rows: pa.Table, bucket: int = 0, kind: str = PART) -> WrittenFile:
    """One file with these rows, which get the number of the ingest and are sorted by (uid, time)."""
    stamped = conformed(rows, table, target.ingest_id)
    return write_sorted(target.location, table, [stamped], f"{kind}-{target.ingest_id:08d}-{bucket:05d}")


def write_sorted(location: Location, table: str, rows: Sequence[pa.Table], name: str) -> WrittenFile:
    """One file with these rows of a table, sorted; `name` is the beginning of its name."""
    whole = sort_rows(pa.concat_tables(rows), table)
    return write_file(location, table, whole, name, TABLES[table].stats)


def write_file(location: Location, table: str, rows: pa.Table, name: str, stats: Sequence[str]) -> WrittenFile:
    """One file with these rows as they are. The unique part of its name is chosen here."""
    path = f"{name}-{uuid.uuid4().hex}.{COMPRESSION}.parquet"
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    bare = rows.replace_schema_metadata(None).cast(pa.schema([f.remove_metadata() for f in rows.schema]))
    with explained(str(location), f"write the table {table}"):
        if location.is_local:
            Path(location.table(table)).mkdir(parents=True, exist_ok=True)
        files = location.files_of(table)
        with pq.ParquetWriter(
            path, bare.schema, filesystem=files, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL,
            use_dictionary=texts, store_schema=False,
        ) as file:  # fmt: skip
            file.write_table(bare, ROW_GROUP_ROWS)
        size = files.get_file_info(path).size
    ranges = column_ranges(file.writer.metadata, stats)
    return WrittenFile(table, path, size, rows.num_rows, delta_statistics(rows.num_rows, ranges))


def conformed(rows: pa.Table, table: str, ingest_id: int) -> pa.Table:
    """The rows with exactly the table's columns, the ingest's number, and null for every NaN.

    Raises ValueError where a column or its type differs from the schema, or null is not allowed.
    """
    schema = arrow_schema(table)
    odd = set(rows.schema.names) ^ set(schema.names) - {"ingest_id"}
    if odd - {"ingest_id"}:
        raise ValueError(f"{table}: columns differ from the schema: {', '.join(sorted(odd))}")
    columns: list[pa.ChunkedArray] = []
    for column in schema:
        if column.name == "ingest_id":
            # Not pa.scalar: it would load pandas, a third of a second in every worker.
            numbers = pa.Array.from_buffers(
                pa.int64(), rows.num_rows, [None, pa.py_buffer(np.full(rows.num_rows, ingest_id))]
            )
            columns.append(pa.chunked_array([numbers]))
            continue
        values = rows[column.name]
        if values.type != column.type:
            raise ValueError(f"{table}.{column.name}: {values.type}, the schema says {column.type}")
        if pa.types.is_floating(column.type):
            values = _without_nan(values)
        if not column.nullable and values.null_count:
            raise ValueError(f"{table}.{column.name}: null where the schema allows none")
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)


def _without_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Null for NaN: Spark orders NaN above every number, other readers do not."""
    nan = pc.is_nan(values)
    return pc.if_else(nan, pa.scalar(None, values.type), values) if pc.any(nan).as_py() else values


def sort_rows(rows: pa.Table, table: str) -> pa.Table:
    """By connection, then time: what a file is pruned and read by."""
    keys = [(name, "ascending") for name in TABLES[table].cluster_by if name in rows.schema.names]
    order = pc.sort_indices(rows, sort_keys=keys)
    return rows.take(order)
