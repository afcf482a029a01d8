"""Collects rows (tuples) of all connections into Arrow record batches, one schema per table.

A row is a tuple in the order of its table's columns, without `ingest_id`. Rows of the message tables have no `uid` and
`direction` either: both are given once for a group of rows. Columns for capture ids hold file numbers, because the id
of a capture is known only after its last byte; such batches wait here, on disk if they grow, until the file ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from rtmp_spark import schema
from rtmp_spark.analysis.arrow_columns import arrow_batch, arrow_column
from rtmp_spark.codec.limits import BATCH_BYTES, BATCH_ROWS, HELD_BYTES
from rtmp_spark.conversation.facts import Row

Batch = tuple[str, pa.RecordBatch]

_CAPTURE_COLUMNS = frozenset({"capture_id", "capture_id_last", "capture_ids"})
_KNOWS_ITS_ID = "captures"
_LONG_COLUMNS = {"commands": ("name", "args", "code", "description"), "payloads": ("payload",)}


def _waiting_schema(table: str) -> pa.Schema:
    """The table's schema with file numbers in place of capture ids."""
    fields = []
    if table == _KNOWS_ITS_ID:
        return schema.arrow_schema(table)
    for field in schema.arrow_schema(table):
        if field.name in _CAPTURE_COLUMNS:
            kind = pa.list_(pa.int32()) if pa.types.is_list(field.type) else pa.int32()
            field = pa.field(field.name, kind, field.nullable)
        fields.append(field)
    return pa.schema(fields)


class TableRows:
    """Rows of one table that are not in a batch yet."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.names_captures = table != _KNOWS_ITS_ID and bool(_CAPTURE_COLUMNS & set(schema.column_names(table)))
        self._schema = _waiting_schema(table)
        self._grouped = table in schema.MESSAGE_TABLES
        self._rows: list[Row] = []
        self._uids: list[str] = []
        self._directions: list[str] = []
        names = schema.column_names(table)
        before = 2 if self._grouped else 0  # uid and direction are not in the rows
        self._long_columns = [names.index(name) - before for name in _LONG_COLUMNS.get(table, ())]
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add_group(self, uid: str, direction: str, rows: Sequence[Row]) -> None:
        for column in self._long_columns:
            self._bytes += sum(len(row[column] or "") for row in rows)
        count = len(rows)
        self._rows.extend(rows)
        self._uids.extend([uid] * count)
        self._directions.extend([direction] * count)

    def add(self, rows: Iterable[Row]) -> None:
        self._rows.extend(rows)

    def take(self) -> pa.RecordBatch:
        rows, self._rows, self._bytes = self._rows, [], 0
        columns: list[Sequence[object]] = list(zip(*rows))
        if self._grouped:
            columns[:0] = [self._uids, self._directions]
            self._uids, self._directions = [], []
        columns.append([None] * len(rows))  # ingest_id
        return arrow_batch(columns, self._schema)


class _Spool:
    """Batches of one table that wait for capture ids: in memory, or in a temporary file if they grow."""

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > HELD_BYTES:
            if self._writer is None:
                import tempfile

                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open until drained
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_stream(self._file, batch.schema, options=options)
            for held in self._held:
                self._writer.write_batch(held)
            self._held, self._bytes = [], 0

    def drain(self) -> Iterator[pa.RecordBatch]:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
            self._file.close()
            self._file = self._writer = None
        held, self._held, self._bytes = self._held, [], 0
        yield from held


def resolve_captures(batch: pa.RecordBatch, table: str, capture_ids: Sequence[str | None]) -> pa.RecordBatch:
    """The batch with capture ids in place of file numbers."""
    target = schema.arrow_schema(table)
    arrays = []
    for field, array in zip(target, batch.columns):
        if field.name in _CAPTURE_COLUMNS:
            if pa.types.is_list(array.type):
                array = pa.ListArray.from_arrays(array.offsets, _ids(array.values, capture_ids))
            else:
                array = _ids(array, capture_ids)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _ids(numbers: pa.Array, capture_ids: Sequence[str | None]) -> pa.Array:
    """Without `take`: it loads pyarrow.compute, which takes longer than decoding a small capture."""
    if len(capture_ids) == 1 and not numbers.null_count:
        return arrow_column([capture_ids[0]] * len(numbers), pa.string())
    return arrow_column([None if n is None else capture_ids[n] for n in numbers.to_pylist()], pa.string())


class RowSink:
    """Collects rows of the wanted tables and returns batches."""

    def __init__(self, tables: Iterable[str]) -> None:
        self.tables = {name: TableRows(name) for name in tables}
        self._spools = {name: _Spool() for name, rows in self.tables.items() if rows.names_captures}
        self._ready: list[Batch] = []
        self._late: dict[str, list[Row]] = {}

    def wants(self, table: str) -> bool:
        return table in self.tables

    def add_group(self, table: str, uid: str, direction: str, rows: Sequence[Row]) -> None:
        waiting = self.tables.get(table)
        if waiting is None or not rows:
            return
        waiting.add_group(uid, direction, rows)
        if waiting.full:
            self._batch(waiting)

    def add(self, table: str, rows: Sequence[Row]) -> None:
        waiting = self.tables.get(table)
        if waiting is None or not rows:
            return
        waiting.add(rows)
        if waiting.full:
            self._batch(waiting)

    def add_late(self, table: str, rows: Sequence[Row]) -> None:
        """Rows that are completed at the end of the recording; `table` may also be a name that is not a table."""
        self._late.setdefault(table, []).extend(rows)

    def take_late(self, table: str) -> list[Row]:
        return self._late.pop(table, [])

    def _batch(self, waiting: TableRows) -> None:
        batch = waiting.take()
        spool = self._spools.get(waiting.table)
        if spool is not None:
            spool.add(batch)
        else:
            self._ready.append((waiting.table, batch))

    def ready(self, *, all_rows: bool = False) -> list[Batch]:
        """Full batches that need no capture id, or all rows of these tables."""
        if all_rows:
            for waiting in self.tables.values():
                if len(waiting) and waiting.table not in self._spools:
                    self._batch(waiting)
        ready, self._ready = self._ready, []
        return ready

    def flush(self, capture_ids: Sequence[str | None]) -> Iterator[Batch]:
        """All rows so far; `capture_ids` are those of all files whose numbers can occur."""
        for waiting in self.tables.values():
            if len(waiting):
                self._batch(waiting)
        yield from self.ready()
        for table, spool in self._spools.items():
            for batch in spool.drain():
                yield table, resolve_captures(batch, table, capture_ids)
