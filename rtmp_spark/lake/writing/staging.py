"""The staging area of a lake: files that executors write for each other and that no table gets.

Each writer has a directory of its own, which it deletes at its end. The directory of a writer that died is deleted by a
later one, but not before it is certain that its owner does not need it: the lock may fail, and a writer without its
staged files must not be the result.
"""

from __future__ import annotations

import time
from contextlib import suppress

from pyarrow import fs

from ..location import Location

STAGING = "_staging"
ABANDONED_SECONDS = 24 * 3600.0  # without a change; no round takes as long


def staging_of(location: Location, uuid: str) -> Location:
    """The staging area of one writer."""
    return location.inside(f"{STAGING}/{uuid}")


def delete_staging(location: Location, uuid: str) -> None:
    """Delete the staging area of a writer, and those of writers that died."""
    with suppress(OSError):  # a later writer deletes it
        for directory in [uuid, *_abandoned(location)]:
            location.delete_directory(f"{STAGING}/{directory}")


def _abandoned(location: Location) -> list[str]:
    selector = fs.FileSelector(STAGING, allow_not_found=True, recursive=True)
    changed: dict[str, float] = {}
    for info in location.files_of("").get_file_info(selector):
        directory = info.path.partition(f"{STAGING}/")[2].partition("/")[0]
        changed[directory] = max(changed.get(directory, 0.0), (info.mtime_ns or 0) / 1e9)
    return [directory for directory, last in changed.items() if 0 < last < time.time() - ABANDONED_SECONDS]
