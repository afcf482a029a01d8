"""Captures that changed since they were ingested: files that grew, and files that failed.

A capture tool may continue to write after a file was ingested. The longer file then contains the shorter one, whose
rows it replaces; this is decided by the hash of its first bytes, never by its name. A file that failed has one row, the
newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from rtmp_spark.capture.files.content_hash import BLOCK_BYTES, TreeHash
from rtmp_spark.ingest.captures.capture_paths import open_file
from rtmp_spark.ingest.captures.known_captures import CaptureRow
from rtmp_spark.ingest.scan.plan import Scanned


def beginnings(known: Iterable[CaptureRow], scanned: Iterable[Scanned]) -> dict[str, Scanned]:
    """The known captures that are the beginning of one of these longer files, by capture_id."""
    found: dict[str, Scanned] = {}
    for row, item in _alike(known, scanned):
        size, capture_id = row["size_bytes"], row["capture_id"]
        if capture_id not in found and size < item.file.size_bytes and _content_id(item.file.path, size) == capture_id:
            found[capture_id] = item
    return found


def contained(known: Iterable[CaptureRow], scanned: Iterable[Scanned]) -> set[str]:
    """The capture_ids of files that are the beginning of a longer known capture that still exists: copies made while it
    grew."""
    found: set[str] = set()
    for row, item in _alike(known, scanned):
        size, capture_id = item.file.size_bytes, item.about.capture_id
        if capture_id is not None and size < row["size_bytes"] and _content_id(row["path"], size) == capture_id:
            found.add(capture_id)
    return found


def _alike(known: Iterable[CaptureRow], scanned: Iterable[Scanned]) -> Iterator[tuple[CaptureRow, Scanned]]:
    """Captures that begin with the same packet, or with none and have the same name."""
    by_start: dict[object, list[CaptureRow]] = {}
    for row in known:
        if row["capture_id"] and row["status"] != "failed" and not row["compression"]:
            by_start.setdefault(row["path"] if row["ts_first"] is None else row["ts_first"], []).append(row)
    for item in scanned:
        about = item.about
        if about.capture_id is None or about.status == "failed" or about.compression:
            continue
        starts = [item.file.path, *([] if about.ts_first_ns is None else [about.ts_first_ns // 1000])]
        yield from ((row, item) for start in starts for row in by_start.get(start, ()))


def _content_id(path: str, size: int) -> str | None:
    """The capture_id that the first bytes of a file would have."""
    tree = TreeHash()
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), open_file(path) as file:
        while size > 0:
            data = file.read(min(size, BLOCK_BYTES))
            if not data:
                return None
            tree.update(data)
            size -= len(data)
        return tree.result()
    return None


def failed_before(known: Iterable[CaptureRow], new: Iterable[Scanned]) -> list[CaptureRow]:
    """The rows of files that failed before and now get a new row."""
    paths = {item.file.path for item in new}
    return [row for row in known if row["status"] == "failed" and row["path"] in paths]
