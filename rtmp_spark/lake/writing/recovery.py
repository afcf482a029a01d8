"""The newest version of a table, brought back to what is published if an ingest died in between.

Commits of a dead ingest carry our marker; a commit without it is the work of another program, which is refused, because
to undo it would destroy what that program wrote.
"""

from __future__ import annotations

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from ..commit import MARKER, Act, Marker, commit_info, compare_and_set, open_table
from ..failpoint import failpoint
from ..faults import LakeFault, explained
from ..location import Location
from ..snapshot import Snapshot


def published_head(snapshot: Snapshot, ingest: str) -> DeltaTable:
    """The table at its newest version, which holds the rows of the published one."""
    location, table, head = snapshot.location, snapshot.table, snapshot.handle
    if head is None:
        raise ValueError(f"{table} is not published")
    published: int = head.version()
    with explained(str(location), f"open the table {table}"):
        if commit_info(location, table, published + 1) is None:
            return head
        head = open_table(location, table)
        refuse_foreign_commits(location, table, published, head.version())
    failpoint(f"before restore {table}")
    restored = compare_and_set(location, table, head, Marker(ingest, f"restore {table}"), _restore(published))
    failpoint(f"after restore {table}")
    return open_table(location, table, restored)


def refuse_foreign_commits(location: Location, table: str, published: int, newest: int) -> None:
    """Raise `LakeFault` if another program changed a table after a version of ours and did not undo it."""
    for version in range(published + 1, newest + 1):
        info = commit_info(location, table, version)
        if info is not None and MARKER in info:
            continue
        if have_same_files(location, table, newest, published):
            return
        operation = (info or {}).get("operation", "a change")
        raise LakeFault(
            f"Another program changed the table {table!r} of the lake {location} ({operation}, version {version}).",
            f"Undo it with RESTORE TABLE delta.`{location.for_spark}/{table}` TO VERSION AS OF {published}.",
        )


def have_same_files(location: Location, table: str, *versions: int) -> bool:
    """True if a later version undid what happened since the earlier one."""
    one, other = (set(open_table(location, table, version).file_uris()) for version in versions)
    return one == other


def _restore(version: int) -> Act:
    def act(handle: DeltaTable, properties: CommitProperties, hooks: PostCommitHookProperties) -> None:
        handle.restore(version, commit_properties=properties, post_commithook_properties=hooks)

    return act
