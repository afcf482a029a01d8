"""Deleting what no reader of a lake needs any more: files, orphans of dead ingests, old log entries.

A published state is kept for `retention_hours` after the next one replaced it. That must be longer than the longest
reader and the longest ingest: readers that opened the lake before, and files that an ingest wrote before that and has
not published, are lost.
delta-rs's and Spark's own VACUUM do not know what is published and can destroy it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import pairwise

from deltalake import DeltaTable
from pyarrow import fs

from rtmp_spark.codec.errors import UserError

from .commit import open_table
from .failpoint import failpoint
from .faults import explained
from .ledger import MAINTENANCE, Ledger, Published
from .location import Location
from .reader import open_lake
from .tables import LEDGER
from .writer import Writer, open_writer
from .writing.lock import LEASE
from .writing.store_check import DIRECTORY as PROBES

RETENTION_HOURS = 168
_LOG_NAME = re.compile(r"(\d{20})\.(?:json|checkpoint\..*parquet|checkpoint\.parquet|crc)")


@dataclass(frozen=True)
class Cleaned:
    """What was deleted, as paths inside the lake."""

    files: tuple[str, ...]
    log_entries: tuple[str, ...]


def clean_up(location: Location, *, retention_hours: int = RETENTION_HOURS, wait_seconds: float = 600) -> Cleaned:
    """Delete data files and log entries that no state needs that was the newest in the last `retention_hours`."""
    if retention_hours < 0:
        raise UserError(f"Invalid retention of {retention_hours} hours.", "Give 0 or more.")
    open_lake(location)  # to open it for writing would create one that does not exist
    with open_writer(location, wait_seconds=wait_seconds) as writer:
        _publish_clean_heads(writer)
        ledger = Ledger(location)
        kept = _kept(ledger.history() or [ledger.read().newest], retention_hours)
        failpoint("before clean-up")
        files: list[str] = []
        entries: list[str] = []
        with explained(str(location), "clean up the tables"):
            for name in kept[-1].versions:
                versions = sorted({row.versions[name] for row in kept if name in row.versions})
                files += _delete_files(location, name, versions, retention_hours)
                entries += _trim_log(location, name, versions[0], retention_hours)
            newest: int = open_table(location, LEDGER).version()
            files += _delete_files(location, LEDGER, [newest], retention_hours)
            entries += _trim_log(location, LEDGER, newest, retention_hours)
            if not location.is_local:
                entries += _trim_log(location, LEASE, open_table(location, LEASE).version(), retention_hours)
            files += _delete_probes(location, retention_hours)
    return Cleaned(tuple(files), tuple(entries))


def _publish_clean_heads(writer: Writer) -> None:
    """Tables where an ingest died are restored and published, so that its files become orphans."""
    before = writer.lake.published.versions
    heads = {name: writer.head(name).version() for name in before}
    if heads != before:
        writer.publish_versions(heads, MAINTENANCE)


def _kept(history: list[Published], retention_hours: int) -> list[Published]:
    """States that a reader may have opened since then: each was the newest until the next one was published."""
    since = datetime.now(timezone.utc) - timedelta(hours=retention_hours)
    return [row for row, then in pairwise(history) if then.published_at >= since] + history[-1:]


def _delete_files(location: Location, table: str, versions: list[int], retention_hours: int) -> list[str]:
    """delta-rs lists what no kept version needs; without its own commits to the log, which would not be published."""
    handle: DeltaTable = open_table(location, table)
    unneeded = handle.vacuum(
        retention_hours=retention_hours, dry_run=True, enforce_retention_duration=False, full=True,
        keep_versions=versions,
    )  # fmt: skip
    present = {info.base_name for info in location.list(table)}  # the log also names files that are deleted already
    paths = sorted(present.intersection(unneeded))
    for path in paths:
        failpoint(f"delete {table}")
        location.delete(f"{table}/{path}")
    return [f"{table}/{path}" for path in paths]


def _trim_log(location: Location, table: str, oldest: int, retention_hours: int) -> list[str]:
    """Delete log entries before the oldest kept version, which gets a checkpoint. Younger ones stay."""
    if not oldest:
        return []
    since = datetime.now(timezone.utc) - timedelta(hours=retention_hours)
    infos = [info for info in location.list(f"{table}/_delta_log") if info.type == fs.FileType.File]
    matches = [(info, _LOG_NAME.fullmatch(info.base_name)) for info in infos]
    old = [info.path for info, match in matches if match and int(match[1]) < oldest and info.mtime <= since]
    if not old:
        return []
    if f"{oldest:020d}.checkpoint.parquet" not in {info.base_name for info in infos}:
        open_table(location, table, oldest).create_checkpoint()
    failpoint(f"trim {table}")
    for path in old:
        location.delete(path)
    return old


def _delete_probes(location: Location, retention_hours: int) -> list[str]:
    """Scratch tables of writers that died while they checked the store."""
    since = datetime.now(timezone.utc) - timedelta(hours=retention_hours)
    selector = fs.FileSelector(PROBES, allow_not_found=True, recursive=True)
    infos = location.files_of("").get_file_info(selector)
    old = [info.path for info in infos if info.type == fs.FileType.File and info.mtime <= since]
    for path in old:
        location.delete(path)
    return old
