"""Merges small files of a table into few sorted ones. It changes no row.

`optimize.compact` of delta-rs is not used: it rebases its commit over those of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.codec.errors import UserError

from .commit import Act, change_files
from .faults import explained
from .ledger import MAINTENANCE, Published
from .location import Location
from .parquet_files import OPEN, PART, RESUMED, WrittenFile, write_sorted
from .reader import open_lake
from .snapshot import DataFile, Snapshot, dataset_of
from .writer import Writer, open_writer

FILES = 48  # small files of one table; from here on an ingest pays more for opening them than for merging them
CHECKED_EVERY = 16  # ingests; counting the files opens every table
SMALL_BYTES = 16 << 20  # smaller files are merged
TARGET_BYTES = 32 << 20  # of files merged into one, compressed; their rows are in memory at once


def needs_compaction(location: Location, files: int = FILES) -> list[str]:
    """Tables with so many small files. Opens every table: for a caller that has just published, cheap."""
    lake = open_lake(location)
    return [name for name in lake.published.versions if len(_small(lake.snapshot(name))) >= files]


def compact_after_ingest(location: Location, published: Published | None) -> None:
    """Merge files now and then, so that the cost of an ingest does not grow with the number of ingests before it.

    The ingest is published already, so a failure here is not reported: the next one tries again.
    """
    if published is None or published.ingest_id % CHECKED_EVERY:
        return
    with suppress(UserError, OSError):
        tables = needs_compaction(location)
        if tables:
            compact(location, tables, wait_seconds=0)


def compact(location: Location, tables: Iterable[str] | None = None, *, wait_seconds: float = 600) -> Published | None:
    """Merge the small files of these tables (None: of all); what was published, None if there was nothing to do."""
    open_lake(location)  # to open it for writing would create one that does not exist
    with open_writer(location, wait_seconds=wait_seconds) as writer:
        acts: dict[str, Act] = {}
        for name in tables if tables is not None else writer.lake.published.versions:
            act = _merge(writer, name)
            if act is not None:
                acts[name] = act
        if not acts:
            return None
        return writer.commit(acts, MAINTENANCE, "", writer.captures_numbered)


def _small(snapshot: Snapshot) -> list[DataFile]:
    return [file for file in snapshot.files if file.size < SMALL_BYTES]


def _merge(writer: Writer, name: str) -> Act | None:
    snapshot = writer.lake.snapshot(name)
    still_open = _open_connections(writer)
    removed: list[DataFile] = []
    added: list[WrittenFile] = []
    for group in _groups(_small(snapshot)):
        written = _merge_group(snapshot, group, still_open, writer.ingest_id)
        if len(written) < len(group):
            removed += group
            added += written
    if not removed:
        return None
    return change_files(added, [(file.path, file.size) for file in removed], data_change=False)


def _open_connections(writer: Writer) -> pa.Array:
    """Connections whose rows a later ingest may replace."""
    return writer.table("open_flows").to_table(columns=["uid"])["uid"].combine_chunks()


def _groups(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Files in the order of their connections, cut where a merged file would become too large."""
    groups: list[list[DataFile]] = []
    size = TARGET_BYTES
    for file in sorted(files, key=lambda f: str(f.ranges.get("uid", ("",))[0] or "")):
        if size + file.size > TARGET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) > 1]


def _merge_group(snapshot: Snapshot, group: Sequence[DataFile], still_open: pa.Array, number: int) -> list[WrittenFile]:
    """One file for each kind of rows. Rows of connections that are over need no file of their own any more."""
    rows: dict[str, list[pa.Table]] = {}
    with explained(str(snapshot.location), f"read the table {snapshot.table}"):
        for kind in (OPEN, RESUMED, PART):
            files = [f for f in group if f.kind == kind or kind == PART and f.kind not in (OPEN, RESUMED)]
            if not files:
                continue
            found = dataset_of(snapshot.location, snapshot.table, files, snapshot.schema).to_table()
            if kind != PART and "uid" in found.schema.names:
                stays = pc.is_in(found["uid"], still_open)
                rows.setdefault(kind, []).append(found.filter(stays))
                found = found.filter(pc.invert(stays))
            rows.setdefault(PART, []).append(found)
        return [
            write_sorted(snapshot.location, snapshot.table, parts, f"{kind}-{number:08d}-merged")
            for kind, parts in rows.items()
            if sum(part.num_rows for part in parts)
        ]
