"""The ledger `_ingests`: one row per published change; the newest row is the state of the lake.

Delta has no transaction over several tables. A row names the version of every table, and appending it is the commit
point of an ingest: rows count once they are in a published version. Only the newest row is needed to open a lake, and
it is found by the file statistics; the files of single rows are merged from time to time.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rtmp_spark import __version__
from rtmp_spark.codec.errors import UserError
from rtmp_spark.redact import KEY_VARIABLE

from .commit import MARKER, Marker, change_files, commit_info, compare_and_set, open_table, refuse_empty_entries
from .faults import LakeFault, damaged, explained
from .location import Location
from .parquet_files import write_file
from .tables import LEDGER, LEDGER_SCHEMA, check_layout, first_versions, key_file
from .writing.recovery import have_same_files, refuse_foreign_commits

MERGE_FROM = 64  # files of the ledger; with so many, the next row is written together with all others
INGEST, MAINTENANCE = "ingest", "maintenance"


@dataclass(frozen=True)
class Batch:
    """A batch of a streaming query, which may be delivered again after a failure."""

    app_id: str
    batch_id: int


@dataclass(frozen=True)
class Published:
    """One row of the ledger."""

    ingest_id: int
    uuid: str
    versions: dict[str, int]
    kind: str = INGEST
    captures_numbered: int = 0
    summary: str = ""
    batch: Batch | None = None
    published_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    def row(self) -> dict[str, object]:
        return {
            "ingest_id": self.ingest_id,
            "uuid": self.uuid,
            "kind": self.kind,
            "versions": sorted(self.versions.items()),
            "published_at": self.published_at,
            "writer": writer_name(),
            "codec_version": __version__,
            "captures_numbered": self.captures_numbered,
            "summary": self.summary or None,
            "app_id": self.batch.app_id if self.batch else None,
            "batch_id": self.batch.batch_id if self.batch else None,
        }


@dataclass(frozen=True)
class State:
    """The ledger at one version: what is published."""

    handle: DeltaTable  # the ledger's own table
    newest: Published
    key_file: str
    files: tuple[tuple[str, int], ...]  # paths and sizes of the ledger's rows

    @property
    def version(self) -> int:
        """The version of the ledger's own table."""
        return int(self.handle.version())


class Ledger:
    def __init__(self, location: Location) -> None:
        self.location = location

    def read(self) -> State:
        """The newest published state; refuses a place without a lake."""
        state = self.find()
        if state is None:
            raise UserError(
                f"There is no lake at {self.location}.", "Make one with `rtmp-spark ingest PATH --lake DIR`."
            )
        return state

    def find(self, *, for_writing: bool = False) -> State | None:
        """The newest published state, None if there is no lake.

        If another program changed the ledger, readers get the state before that; for a writer it is a `LakeFault`.
        """
        with explained(str(self.location), "read the ledger"):
            try:
                handle = open_table(self.location, LEDGER)
            except TableNotFoundError:
                return None
            check_layout(self.location, handle)
            handle = self._as_published(handle, for_writing)
            adds = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
            newest = Published(0, "", first_versions(handle))
            if adds:
                last = max(adds, key=lambda add: add["max.ingest_id"])
                rows = self._rows([(last["path"], last["size_bytes"])])
                newest = max(map(_published, rows.to_pylist()), key=lambda row: row.ingest_id)
            files = tuple((add["path"], add["size_bytes"]) for add in adds)
        return State(handle, newest, key_file(handle), files)

    def _as_published(self, newest: DeltaTable, for_writing: bool) -> DeltaTable:
        """The ledger as a writer of ours left it."""
        head: int = newest.version()
        refuse_empty_entries(self.location, LEDGER, head)
        ours = head
        while (info := commit_info(self.location, LEDGER, ours)) is not None and MARKER not in info:
            ours -= 1
        if ours == head:
            return newest
        if info is None:
            raise damaged(str(self.location), LEDGER, head)
        if for_writing:
            refuse_foreign_commits(self.location, LEDGER, ours, head)
        undone = have_same_files(self.location, LEDGER, head, ours)
        return newest if undone else open_table(self.location, LEDGER, ours)

    def history(self) -> list[Published]:
        """Every row, oldest first."""
        with explained(str(self.location), "read the ledger"):
            rows = self._rows(self.read().files).to_pylist()
        return sorted(map(_published, rows), key=lambda row: row.ingest_id)

    def last_batch(self, app_id: str) -> int | None:
        """The newest batch of a streaming query that is published."""
        ids = [row.batch.batch_id for row in self.history() if row.batch and row.batch.app_id == app_id]
        return max(ids, default=None)

    def append(self, state: State, row: Published) -> None:
        """Publish: the compare-and-set of the ledger from the version that was read before. The commit point."""
        rows = pa.Table.from_pylist([row.row()], LEDGER_SCHEMA)
        merged = state.files if len(state.files) >= MERGE_FROM else ()
        with explained(str(self.location), "write the ledger"):
            if merged:
                rows = pa.concat_tables([self._rows(merged), rows])
            file = write_file(self.location, LEDGER, rows, f"part-{row.ingest_id:08d}-00000", ("ingest_id",))
        marker = Marker(row.uuid, LEDGER)
        compare_and_set(self.location, LEDGER, state.handle, marker, change_files([file], merged))

    def redact_key(self, state: State) -> bytes:
        """The key of the lake's hashes: the one that was stored with the lake, else the one in the environment.

        Another key in the environment is not used, because one name would get two hashes.
        """
        with explained(str(self.location), "read the redaction key"):
            kept = self.location.read(state.key_file) if state.key_file else None
        try:
            stored = bytes.fromhex((kept or b"").decode().strip())
        except ValueError:
            stored = b""
        given = os.environ.get(KEY_VARIABLE, "").encode()
        if stored and given and given != stored:
            sentence = f"names are hashed with the key of the lake {self.location}, not with {KEY_VARIABLE}"
            print(f"rtmp-spark: {sentence}", file=sys.stderr)
        return stored or given or _no_key(self.location, state)

    def _rows(self, files: tuple[tuple[str, int], ...] | list[tuple[str, int]]) -> pa.Table:
        system = self.location.files_of(LEDGER, dict(files))
        schema = pa.schema([f.remove_metadata() for f in LEDGER_SCHEMA])
        parts = [pq.read_table(path, filesystem=system, schema=schema) for path, _ in files]
        return pa.concat_tables([schema.empty_table(), *parts]).cast(LEDGER_SCHEMA)


def _published(row: dict[str, object]) -> Published:
    batch = Batch(str(row["app_id"]), int(str(row["batch_id"]))) if row["app_id"] is not None else None
    return Published(
        ingest_id=int(str(row["ingest_id"])),
        uuid=str(row["uuid"]),
        versions=dict(row["versions"]),  # type: ignore[call-overload]
        kind=str(row["kind"]),
        captures_numbered=int(str(row["captures_numbered"])),
        summary=str(row["summary"] or ""),
        batch=batch,
        published_at=row["published_at"],  # type: ignore[arg-type]
    )


def _no_key(location: Location, state: State) -> bytes:
    raise LakeFault(
        f"The lake {location} lacks its key for hashing names ({state.key_file or '_redact'}).",
        f"Copy the file from where the lake came from, or give the key in {KEY_VARIABLE}.",
    )


def writer_name() -> str:
    """User, host and process, for people who wait for a writer."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"
