"""Where a page gets its rows. `Tables` is the interface; rows are dicts with times in microseconds.

`ArrowTables` answers from memory, `CaptureTables` from capture files without Spark, and `rtmp_spark.spark` from a lake.
Of the large tables only the columns that are drawn are kept, and at most MOST_ROWS rows: later connections are listed
but not drawn.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.analysis.recording import ALL_TABLES, Progress
from rtmp_spark.analysis.sensor_recordings import SensorRecordings
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.report import media_summary
from rtmp_spark.schema import TABLES

Row = dict[str, Any]
MOST_ROWS = 8_000_000  # of `media_tags` and `messages` together: about 30 sessions of one hour
_MESSAGE_COLUMNS = ("uid", "direction", "type_name", "status", "length", "csid", "chunk_size")
DRAWN_COLUMNS: Mapping[str, tuple[str, ...]] = {"media_tags": media_summary.COLUMNS, "messages": _MESSAGE_COLUMNS}


class Tables(Protocol):
    """The rows of a page: of one connection if a uid is given, else of all. `prepare` announces later uids."""

    @property
    def origin(self) -> str: ...

    def rows(self, table: str, uid: str | None = None) -> list[Row]: ...

    def media(self, uid: str, start: int, events: list[media_summary.Event]) -> media_summary.Media | None: ...

    def message_counts(self, uid: str) -> list[Row]: ...

    def prepare(self, uids: Sequence[str]) -> None: ...


class ArrowTables:
    """Tables in memory. Tables that are not given are empty."""

    def __init__(self, origin: str, tables: Mapping[str, pa.Table]) -> None:
        self.origin = origin
        self._tables = {name: tables.get(name, table.arrow_schema().empty_table()) for name, table in TABLES.items()}
        self._slices: dict[str, tuple[pa.Table, dict[str, tuple[int, int]]]] = {}

    def arrow(self, table: str, uid: str | None = None) -> pa.Table:
        """A table, or its rows for one connection."""
        if uid is None:
            return self._tables[table]
        if table not in self._slices:
            self._slices[table] = by_uid(self._tables[table])
        rows, places = self._slices[table]
        start, stop = places.get(uid, (0, 0))
        return rows.slice(start, stop - start)

    def rows(self, table: str, uid: str | None = None) -> list[Row]:
        return plain_rows(self.arrow(table, uid))

    def media(self, uid: str, start: int, events: list[media_summary.Event]) -> media_summary.Media | None:
        return media_summary.measure(self.arrow("media_tags", uid), start, events)

    def message_counts(self, uid: str) -> list[Row]:
        return counts(self.arrow("messages", uid))

    def prepare(self, uids: Sequence[str]) -> None:
        """Nothing to do: all rows are in memory."""


class CaptureTables(ArrowTables):
    """Every table of a recording. Tables named in `columns` keep only those columns."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]] | Mapping[str, Sequence[str | os.PathLike[str]]],
        settings: Settings | None = None,
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        tables: Sequence[str] = (*ALL_TABLES, "deliveries", "paths"),
        progress: Progress | None = None,
    ) -> None:
        """`paths`: the files of `settings.sensor`, or a mapping from sensors to their files."""
        self.settings = settings or Settings()
        captures = paths if isinstance(paths, Mapping) else {self.settings.sensor: list(paths)}
        self.paths = [os.fspath(path) for files in captures.values() for path in files]
        self.recording = SensorRecordings(captures, self.settings, tables, progress=progress)
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in TABLES}
        room, self.full = MOST_ROWS, False
        for name, batch in self.recording.batches():
            if columns is not None and name in columns:
                room -= batch.num_rows
                self.full |= room < 0
                if room < 0:
                    continue
                batch = batch.select(list(columns[name]))
            batches[name].append(batch)
        found = {name: pa.Table.from_batches(parts) for name, parts in batches.items() if parts}
        super().__init__(self.paths[0] if len(self.paths) == 1 else f"{len(self.paths):,} captures", found)


def counts(messages: pa.Table) -> list[Row]:
    """Number and bytes of messages per direction, type and status."""
    keys = ["direction", "type_name", "status"]
    grouped = messages.group_by(keys).aggregate([("length", "sum"), ("length", "count")])
    return counts_in_order(grouped.rename_columns([*keys, "bytes", "count"]).to_pylist())


def counts_in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["direction"], -row["count"], row["type_name"], row["status"]))


def plain_rows(table: pa.Table) -> list[Row]:
    """Rows as dicts, with times in microseconds."""
    columns = [microseconds(column) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return pa.table(columns, table.column_names).to_pylist()  # type: ignore[no-any-return]


def microseconds(column: Any) -> Any:
    return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())


def by_uid(table: pa.Table) -> tuple[pa.Table, dict[str, tuple[int, int]]]:
    """The table with the rows of each connection next to each other, and (start, stop) of each uid."""
    if not table.num_rows:
        return table, {}
    coded = pc.dictionary_encode(table["uid"], null_encoding="encode").combine_chunks()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False))
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    names = coded.dictionary.to_pylist()
    ends = [*edges[1:].tolist(), len(codes)]
    places = {names[int(codes[order[a]])]: (a, b) for a, b in zip(edges.tolist(), ends)}
    ordered = table if bool((np.diff(order) > 0).all()) else table.take(pa.array(order))
    return ordered, places
