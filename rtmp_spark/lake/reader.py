"""Reading a lake without Spark: every table at the published version, as a pyarrow dataset.

DuckDB, Polars and pandas take the datasets as they are. All tables of one `Lake` are of the same moment; rows that an
ingest publishes later appear after `refresh`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rtmp_spark.schema import TABLES

from .faults import explained
from .ledger import Ledger, Published, State
from .location import Location, locate
from .snapshot import Snapshot

PIECE_ROWS = 256


class Lake:
    """The tables of a lake at one published moment: `lake.messages`, or `lake.table("messages")`."""

    def __init__(self, location: Location, state: State | None = None) -> None:
        self.location = location
        self._ledger = Ledger(location)
        self._state = state or self._ledger.read()
        self._snapshots: dict[str, Snapshot] = {}

    @property
    def published(self) -> Published:
        """The newest published change: its number, the version of every table, its summary."""
        return self._state.newest

    def snapshot(self, name: str) -> Snapshot:
        if name not in TABLES:
            raise AttributeError(name)
        if name not in self._snapshots:
            self._snapshots[name] = Snapshot(self.location, name, self._state.newest.versions.get(name))
        return self._snapshots[name]

    def table(self, name: str) -> ds.Dataset:
        """The rows of a table."""
        return self.snapshot(name).dataset()

    def read(self, name: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Rows of a table; files whose statistics rule `where` out are not opened."""
        with explained(str(self.location), f"read the table {name}"):
            return self.table(name).to_table(columns=None if columns is None else list(columns), filter=where)

    def pieces(self, name: str, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.Table]:
        """Rows of a table, some at a time: a dataset would hold several files with long values in memory.

        `columns` must contain those of `where`.
        """
        with explained(str(self.location), f"read the table {name}"):
            for fragment in self.table(name).get_fragments(filter=where):
                with fragment.filesystem.open_input_file(fragment.path) as file:
                    batches = pq.ParquetFile(file).iter_batches(PIECE_ROWS, columns=list(columns), use_threads=False)
                    for batch in batches:
                        yield pa.Table.from_batches([batch]).filter(where)

    @property
    def is_new(self) -> bool:
        """True if nothing was ever published."""
        return not self._state.newest.ingest_id

    def tables(self) -> dict[str, ds.Dataset]:
        """Every table, for example to register them in DuckDB."""
        return {name: self.table(name) for name in TABLES}

    def __getattr__(self, name: str) -> ds.Dataset:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(name)

    def refresh(self) -> Published:
        """Move to what is published now. Datasets that were taken before do not change."""
        self._state = self._ledger.read()
        self._snapshots = {}
        return self._state.newest

    @property
    def redact_key(self) -> bytes:
        """The key under which secrets of this lake are hashed."""
        return self._ledger.redact_key(self._state)


def open_lake(
    path: str | os.PathLike[str] | Location,
    options: Mapping[str, str] | None = None,
    *,
    hadoop: Mapping[str, str] | None = None,
) -> Lake:
    """The lake at a path or URI; see `locate` for `options` and `hadoop`."""
    return Lake(path if isinstance(path, Location) else locate(path, options, hadoop=hadoop))
