"""One table at one version: its files, and a pyarrow dataset over them that skips files by their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rtmp_spark.schema import TABLES, arrow_schema

from .commit import MARKER, commit_info, open_table, refuse_empty_entries
from .faults import LakeFault, damaged, explained
from .location import Location
from .parquet_files import PART, WrittenFile
from .statistics import parse_statistics

ValueRange = tuple[Any, Any, int | None]  # smallest, largest, number of nulls; None: unknown


@dataclass(frozen=True)
class DataFile:
    """A file of a table, with what its statistics say about some columns."""

    path: str
    size: int
    rows: int | None
    ranges: dict[str, ValueRange]

    @property
    def kind(self) -> str:
        """`part`, `open` or `resumed`; other programs call theirs `part` too."""
        return self.path.partition("-")[0] if "-" in self.path else PART

    def guarantee(self) -> pc.Expression:
        """What holds for every row of the file."""
        whole: pc.Expression | None = None
        for column, (low, high, nulls) in self.ranges.items():
            field = pc.field(column)
            if low is None or high is None:
                holds = field.is_null() if nulls is not None and nulls == self.rows else None
            else:
                holds = (field >= pc.scalar(low)) & (field <= pc.scalar(high))
                if nulls != 0:  # or unknown
                    holds = holds | field.is_null()
            if holds is not None:
                whole = holds if whole is None else whole & holds
        return pc.scalar(True) if whole is None else whole


class Snapshot:
    """The files of a table at a version. Nothing is read before it is asked for."""

    def __init__(self, location: Location, table: str, version: int | None) -> None:
        self.location = location
        self.table = table
        self.version = version  # None: the lake has no such table yet

    @cached_property
    def handle(self) -> DeltaTable | None:
        """The table at this version; refuses a table that was deleted or rolled back."""
        if self.version is None:
            return None
        with explained(str(self.location), f"open the table {self.table}"):
            try:
                handle = open_table(self.location, self.table, self.version)
            except TableNotFoundError:
                raise LakeFault(
                    f"The lake {self.location} lost its table {self.table!r}.",
                    "Restore that directory from a backup, or ingest into a new lake.",
                ) from None
            except DeltaError:
                newest = open_table(self.location, self.table).version()
                if newest >= self.version:
                    raise
                raise LakeFault(
                    f"The table {self.table!r} of the lake {self.location} was rolled back to version {newest}; "
                    f"version {self.version} is published.",
                    f"Restore {self.table}/_delta_log from a backup, or ingest into a new lake.",
                ) from None
            refuse_empty_entries(self.location, self.table, self.version)
            info = commit_info(self.location, self.table, self.version)
        if info is not None and MARKER not in info:  # None: only the checkpoint of this version is left
            raise damaged(str(self.location), self.table, self.version)
        return handle

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        if self.handle is None:
            return ()
        with explained(str(self.location), f"read the log of the table {self.table}"):
            adds = pa.table(self.handle.get_add_actions(flatten=True))
        return tuple(_data_files(adds, TABLES[self.table].stats))

    @cached_property
    def schema(self) -> pa.Schema:
        """Our columns, then those that a newer version added. A column that the table lacks reads as null."""
        ours = arrow_schema(self.table)
        present = pa.schema(self.handle.schema().to_arrow()) if self.handle is not None else ours
        fields = [f.with_nullable(f.nullable or f.name not in present.names) for f in ours]
        fields += [f for f in present if f.name not in ours.names]
        return pa.schema(fields, ours.metadata)

    def dataset(self) -> ds.Dataset:
        """The rows of this version."""
        return dataset_of(self.location, self.table, self.files, self.schema)


def dataset_of(location: Location, table: str, files: Sequence[DataFile], schema: pa.Schema) -> ds.Dataset:
    system = location.files_of(table, {file.path: file.size for file in files})
    kind = ds.ParquetFileFormat()
    fragments = [
        kind.make_fragment(file.path, system, partition_expression=file.guarantee(), file_size=file.size)
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, kind, system)


def _data_files(adds: pa.Table, columns: Sequence[str]) -> Iterable[DataFile]:
    held = [c for c in columns if f"min.{c}" in adds.column_names]
    lists = {c: [adds[f"{word}.{c}"].to_pylist() for word in ("min", "max", "null_count")] for c in held}
    rows = adds["num_records"].to_pylist() if "num_records" in adds.column_names else [None] * adds.num_rows
    for i, (path, size) in enumerate(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist())):
        ranges = {c: (low[i], high[i], nulls[i]) for c, (low, high, nulls) in lists.items()}
        yield DataFile(path, size, rows[i], ranges)


def not_yet_committed(file: WrittenFile) -> DataFile:
    """A written file as if it were in the log."""
    types = {c: arrow_schema(file.table).field(c).type for c in TABLES[file.table].stats}
    return DataFile(file.path, file.size, file.rows, parse_statistics(file.statistics, types))
