"""The files of some tables of a lake, as values that can be sent to an executor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import WrittenFile
from rtmp_spark.lake.snapshot import DataFile, dataset_of
from rtmp_spark.lake.writer import Writer


@dataclass(frozen=True)
class TableFiles:
    """Implements `PublishedTables` without access to the logs of the tables."""

    location: Location
    files: Mapping[str, Sequence[DataFile]]
    schemas: Mapping[str, pa.Schema]
    is_new: bool = False

    @classmethod
    def before(cls, writer: Writer, tables: Iterable[str]) -> TableFiles:
        """The tables as they were published before the ingest under way."""
        snapshots = {} if writer.is_new else {name: writer.lake.snapshot(name) for name in tables}
        return cls(
            writer.location,
            {name: snapshot.files for name, snapshot in snapshots.items()},
            {name: snapshot.schema for name, snapshot in snapshots.items()},
            writer.is_new,
        )

    @classmethod
    def after(cls, writer: Writer, tables: Iterable[str], written: Sequence[WrittenFile]) -> TableFiles:
        """The tables as they will be once the ingest is published; `written` are its files."""
        names = list(tables)
        return cls(
            writer.location,
            {name: writer.pending_files(name, written) for name in names},
            {name: writer.lake.snapshot(name).schema for name in names},
        )

    def that_may_hold(self, uids: Iterable[str]) -> TableFiles:
        """Without files that have no row of these connections by their statistics."""
        ordered = sorted(uids)

        def may_hold(file: DataFile) -> bool:
            low, high, _ = file.ranges.get("uid", (None, None, None))
            if low is None or high is None:
                return True
            first = bisect_left(ordered, low)
            return first < len(ordered) and ordered[first] <= high

        return replace(self, files={name: list(filter(may_hold, files)) for name, files in self.files.items()})

    def read(self, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        rows = dataset_of(self.location, table, self.files[table], self.schemas[table])
        return rows.to_table(columns=None if columns is None else list(columns), filter=where)
