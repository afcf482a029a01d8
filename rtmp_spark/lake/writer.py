"""One change of a lake, published as a whole or not at all.

1. Take the lock (lock.py; only saves work), check that the store refuses to overwrite, read the ledger: its version and
   the published version of every table.
2. Executors write Parquet files; nothing is committed.
3. For each table that changes, open its newest version; if an ingest died there, restore the published one.
4. One compare-and-set commit per table removes and adds files.
5. Append a row with the new versions to the ledger, by compare-and-set: the commit point.
6. Write checkpoints. A failure there is not a failure of the ingest.

A writer that loses any compare-and-set publishes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rtmp_spark.schema import TABLES

from .commit import CHECKPOINT_INTERVAL, Act, Marker, change_files, compare_and_set, open_table
from .failpoint import failpoint
from .ledger import INGEST, Batch, Ledger, Published, State
from .location import Location
from .parquet_files import OPEN, FileTarget, WrittenFile
from .reader import Lake
from .snapshot import DataFile, Snapshot
from .tables import LEDGER, add_columns, check_columns, create_lake, create_table, require_lake_or_empty
from .writing.lock import writer_lock
from .writing.recovery import published_head
from .writing.replacement import PendingFiles
from .writing.staging import delete_staging, staging_of
from .writing.store_check import require_put_if_absent

REMOTE_COMMITS = 8  # tables committed side by side where each commit waits for the network


class Writer:
    """One change of a lake. Made by `open_writer`; ends with `publish`, or publishes nothing."""

    def __init__(self, location: Location, state: State) -> None:
        self.location = location
        self.lake = Lake(location, state)  # as it was published before this change
        self.uuid = uuid.uuid4().hex
        self.ingest_id = state.newest.ingest_id + 1
        self.published: Published | None = None  # set once the change is visible
        self._ledger = Ledger(location)
        self._state = state
        self._pending: dict[str, PendingFiles] = {}

    @property
    def is_new(self) -> bool:
        """Nothing was ever published: there is nothing to look up."""
        return not self._state.newest.ingest_id

    @property
    def captures_numbered(self) -> int:
        """Numbers given to captures so far."""
        return self._state.newest.captures_numbered

    @property
    def target(self) -> FileTarget:
        """Where executors write the files of this change."""
        return FileTarget(self.location, self.ingest_id)

    def is_delivered(self, batch: Batch) -> bool:
        """True if a batch of a streaming query, or a later one of it, is published already."""
        last = self._ledger.last_batch(batch.app_id)
        return last is not None and last >= batch.batch_id

    def table(self, name: str) -> ds.Dataset:
        """The published rows of a table."""
        return self.lake.table(name)

    def read(self, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Published rows of a table."""
        return self.lake.read(table, columns, where)

    @property
    def redact_key(self) -> bytes:
        return self.lake.redact_key

    @property
    def staging(self) -> Location:
        """Where executors write files that no table gets; deleted when the writer ends."""
        return staging_of(self.location, self.uuid)

    def replace(self, name: str, condition: pc.Expression) -> None:
        """Rows of earlier ingests for which the condition is true will be gone from a table."""
        self._pending_files(name).drop_rows(condition)

    def resume(self, uids: Collection[str]) -> None:
        """Rows of these connections in `open` files, of every table, will be gone: the new ones replace them."""
        if not uids:
            return
        condition = pc.field("uid").isin(pa.array(sorted(uids), pa.string()))
        for name, table in TABLES.items():
            if "uid" in table.column_names and any(f.kind == OPEN for f in self.lake.snapshot(name).files):
                self._pending_files(name).drop_rows(condition, OPEN)

    def pending(self, name: str, files: Iterable[WrittenFile]) -> ds.Dataset:
        """The rows of a table as they will be once these files are published."""
        return self._pending_files(name).dataset(file for file in files if file.table == name)

    def pending_files(self, name: str, files: Iterable[WrittenFile]) -> list[DataFile]:
        """The files of a table as they will be once these are published."""
        return self._pending_files(name).files(file for file in files if file.table == name)

    def _pending_files(self, name: str) -> PendingFiles:
        if name not in self._pending:
            self._pending[name] = PendingFiles(self.lake.snapshot(name), self.ingest_id)
        return self._pending[name]

    def publish(
        self,
        files: Iterable[WrittenFile],
        *,
        summary: str = "",
        captures_numbered: int | None = None,
        batch: Batch | None = None,
    ) -> Published:
        """Make files of this change visible, and rows that `replace` and `resume` named invisible, all at once."""
        added: dict[str, list[WrittenFile]] = {}
        for file in files:
            added.setdefault(file.table, []).append(file)
        failpoint("files written")
        acts: dict[str, Act] = {}
        for name in TABLES:
            new = added.get(name, [])
            act = self._pending[name].change(new) if name in self._pending else change_files(new, []) if new else None
            if act is not None:
                acts[name] = act
        numbered = self.captures_numbered if captures_numbered is None else captures_numbered
        return self.commit(acts, INGEST, summary, numbered, batch)

    def commit(
        self, acts: Mapping[str, Act], kind: str, summary: str, captures_numbered: int, batch: Batch | None = None
    ) -> Published:
        """Steps 3 to 6: one commit per table, then the row of the ledger."""
        if self.location.is_local:
            changed = dict(zip(acts, map(self._commit_table, acts.items())))
        else:
            with ThreadPoolExecutor(REMOTE_COMMITS) as pool:
                changed = dict(zip(acts, pool.map(self._commit_table, acts.items())))
        return self._publish(changed, kind, summary, captures_numbered, batch)

    def publish_versions(self, changed: Mapping[str, int], kind: str) -> Published:
        """Publish versions of tables that were committed before."""
        return self._publish(changed, kind, "", self.captures_numbered, None)

    def _publish(
        self, changed: Mapping[str, int], kind: str, summary: str, captures_numbered: int, batch: Batch | None
    ) -> Published:
        failpoint("before publish")
        versions = {**self._state.newest.versions, **changed}
        row = Published(self.ingest_id, self.uuid, versions, kind, captures_numbered, summary, batch)
        self._ledger.append(self._state, row)
        self.published = row
        failpoint("after publish")
        self._write_checkpoints({**changed, LEDGER: self._state.version + 1})
        failpoint("checkpoints written")
        return row

    def _commit_table(self, item: tuple[str, Act]) -> int:
        name, act = item
        failpoint(f"before {name}")
        head = self.head(name)
        missing = check_columns(self.location, head, name)
        if missing:
            marker = Marker(self.uuid, f"columns {name}")
            wider = compare_and_set(self.location, name, head, marker, add_columns(name, missing))
            head = open_table(self.location, name, wider)
            failpoint(f"columns {name}")
        version = compare_and_set(self.location, name, head, Marker(self.uuid, f"write {name}"), act)
        failpoint(f"after {name}")
        return version

    def head(self, name: str) -> DeltaTable:
        """A table at its newest version, restored if an ingest died there; a table that is missing is created."""
        snapshot = self.lake.snapshot(name)
        if snapshot.version is None:
            create_table(self.location, name, Marker(self.uuid, f"create {name}"))
            snapshot = Snapshot(self.location, name, 0)
        return published_head(snapshot, self.uuid)

    def _write_checkpoints(self, versions: Mapping[str, int]) -> None:
        before = self._state.newest.versions
        for name, version in versions.items():
            since = self._state.version if name == LEDGER else before.get(name, 0)
            if version // CHECKPOINT_INTERVAL > since // CHECKPOINT_INTERVAL:
                with suppress(DeltaError, TableNotFoundError, OSError):
                    open_table(self.location, name, version).create_checkpoint()


@contextmanager
def open_writer(location: Location, *, wait_seconds: float = 600) -> Iterator[Writer]:
    """A writer of the lake, which is created if it does not exist. Waits at most so long for another one."""
    if location.is_local:  # before the lock creates a file there
        require_lake_or_empty(location)
    with writer_lock(location, wait_seconds):
        failpoint("locked")
        require_put_if_absent(location)
        failpoint("store checked")
        ledger = Ledger(location)
        state = ledger.find(for_writing=True)
        if state is None:
            create_lake(location)
            state = ledger.read()
        failpoint("ledger read")
        writer = Writer(location, state)
        try:
            yield writer
        finally:
            delete_staging(location, writer.uuid)
