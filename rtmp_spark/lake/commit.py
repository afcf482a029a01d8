"""One commit to one Delta table, as a compare-and-set on the table's version.

`max_commit_retries=0` keeps delta-rs from rebasing a refused commit over another one. Every commit carries the uuid
of its ingest: a store may answer "exists already" to a repeated request whose first attempt succeeded, and a dead
ingest's commits can be recognised. Hooks after a commit stay off: clean-up of old log entries by a commit that was
never published destroyed the published version of an idle lake.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from .faults import LostRace, damaged, explained
from .location import Location
from .parquet_files import WrittenFile

CHECKPOINT_INTERVAL = 10  # versions; opening 2,000 commits without a checkpoint takes seconds
MARKER = "rtmp_spark"  # key in the commitInfo of every commit of ours
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True)
class Marker:
    """Identifies the commits of one ingest."""

    ingest: str  # uuid
    step: str

    def properties(self) -> CommitProperties:
        return CommitProperties(custom_metadata={MARKER: f"{self.ingest} {self.step}"}, max_commit_retries=0)

    def is_in(self, info: dict[str, object] | None) -> bool:
        return info is not None and info.get(MARKER) == f"{self.ingest} {self.step}"


Act = Callable[[DeltaTable, CommitProperties, PostCommitHookProperties], object]


def compare_and_set(location: Location, table: str, handle: DeltaTable, marker: Marker, act: Act) -> int:
    """Commit `act` as the version after that of the handle, or raise `LostRace`; the new version.

    Any error leaves open whether the commit landed, so the log decides.
    """
    with explained(str(location), f"change the table {table}"):
        version: int = handle.version()
        try:
            act(handle, marker.properties(), NO_HOOKS)
        except (DeltaError, OSError) as error:
            landed = commit_info(location, table, version + 1)
            if marker.is_in(landed):
                return version + 1
            if landed is not None:
                raise LostRace(str(location)) from error
            raise
    return version + 1


def change_files(added: Iterable[WrittenFile], removed: Iterable[tuple[str, int]], data_change: bool = True) -> Act:
    """An act that adds files and removes others, given by path and size."""
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [RemoveAction(path, data_change, now, size) for path, size in removed]
    actions += [AddAction(file.path, file.size, {}, now, data_change, file.statistics) for file in added]

    def act(handle: DeltaTable, properties: CommitProperties, hooks: PostCommitHookProperties) -> None:
        handle.create_write_transaction(
            actions, "append", handle.schema(), commit_properties=properties, post_commithook_properties=hooks
        )

    return act


def open_table(location: Location, table: str, version: int | None = None) -> DeltaTable:
    """A table at a version, the newest if it is None."""
    return DeltaTable(location.table(table), version=version, storage_options=location.storage_options)


def log_entry(table: str, version: int) -> str:
    """The path of a commit inside the lake."""
    return f"{table}/_delta_log/{version:020d}.json"


def commit_info(location: Location, table: str, version: int) -> dict[str, object] | None:
    """The commitInfo of a version; None if that version does not exist, empty if it has none."""
    text = location.read(log_entry(table, version))
    if text is None:
        return None
    for line in text.splitlines():
        try:
            action = json.loads(line)
        except ValueError:
            continue
        if isinstance(action, dict) and isinstance(action.get("commitInfo"), dict):
            return dict(action["commitInfo"])
    return {}


def refuse_empty_entries(location: Location, table: str, version: int) -> None:
    """Raise `LakeFault` if a log entry that this version needs is empty: delta-rs reads it as a commit without changes.

    A crash of the machine can leave such an entry on a local disk. An object store creates whole objects only.
    """
    if not location.is_local:
        return
    for number in range(version, -1, -1):
        entry = Path(location.table(log_entry(table, number)))
        if entry.with_suffix(".checkpoint.parquet").exists():
            return
        if entry.exists() and not entry.stat().st_size:
            raise damaged(str(location), table, number)
