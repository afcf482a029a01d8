"""Checks that the store refuses to create an object that exists. Compare-and-set commits depend on it.

delta-rs does not notice a store that ignores `If-None-Match`: it looks for newer commits before it writes one, and two
writers that look at the same moment both win. So a writer lets several threads race for one version of a scratch table;
the store passes if exactly one thread succeeds.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from ..commit import NO_HOOKS, Marker, open_table
from ..faults import LakeFault, explained
from ..location import Location

DIRECTORY = "_probe"
RACERS, ROUNDS = 4, 2


def require_put_if_absent(location: Location) -> None:
    """Raise `LakeFault` if two writers of one log entry can both succeed. Local disks need no check."""
    if location.is_local:
        return
    name = f"{DIRECTORY}/{uuid.uuid4().hex}"
    with explained(str(location), "check the storage"):
        try:
            _create(location, name)
            winners = max(_race(location, name) for _ in range(ROUNDS))
        finally:
            _delete(location, name)
    if winners > 1:
        raise LakeFault(
            f"The storage of the lake {location} overwrites objects that should be created only once, "
            "so two writers could destroy each other's data.",
            "Use a store that honours If-None-Match (S3, GCS, Azure, MinIO), or let its proxy pass that header.",
        )


def _create(location: Location, name: str) -> None:
    uri, options = location.table(name), location.storage_options
    try:
        schema = pa.schema([("probe", pa.int64())])
        DeltaTable.create(uri, schema=schema, storage_options=options, post_commithook_properties=NO_HOOKS)
    except DeltaError:  # it may have been created although the answer got lost
        if not DeltaTable.is_deltatable(uri, storage_options=options):
            raise


def _race(location: Location, name: str) -> int:
    """How many of several commits of the same version succeed."""
    handles = [open_table(location, name) for _ in range(RACERS)]
    start = threading.Barrier(RACERS)

    def commit(handle: DeltaTable) -> bool:
        properties = Marker(uuid.uuid4().hex, "probe").properties()
        start.wait()
        try:
            handle.create_write_transaction(
                [], "append", handle.schema(), commit_properties=properties, post_commithook_properties=NO_HOOKS
            )
        except (DeltaError, OSError):
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(commit, handles))


def _delete(location: Location, name: str) -> None:
    """Leftovers are harmless; maintenance deletes them."""
    with suppress(OSError, DeltaError):
        for info in location.list(f"{name}/_delta_log"):
            if info.type == fs.FileType.File:
                location.delete(info.path)
