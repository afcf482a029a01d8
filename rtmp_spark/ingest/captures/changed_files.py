"""Captures that the ledger knows as they were before: shorter ones that went on, and files that failed.

A recorder may write on after its file was taken for closed. The longer file then holds all of the shorter one, so
that one's rows are replaced; whether it does is told by the hash of its first bytes, never by its name. A file that
failed has at most one row, the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from rtmp_spark.capture.recording import BLOCK_BYTES, TreeHash

from .ledger import Superseded
from .paths import open_file
from .plan import Scanned

Row = Mapping[str, Any]  # of the table `captures`; times as microseconds


def beginnings(ledger: Iterable[Row], scanned: Iterable[Scanned]) -> dict[str, Scanned]:
    """The captures of the ledger that a longer one of these files begins with, by capture_id."""
    found: dict[str, Scanned] = {}
    for row, item in _alike(ledger, scanned):
        size, capture_id = row["size_bytes"], row["capture_id"]
        if capture_id not in found and size < item.file.size_bytes and _hash(item.file.path, size) == capture_id:
            found[capture_id] = item
    return found


def contained(ledger: Iterable[Row], scanned: Iterable[Scanned]) -> set[str]:
    """The capture_ids of those files that are the beginning of a longer one in the ledger, which is still there: a copy
    that was made while it grew, whose rows it replaced."""
    found: set[str] = set()
    for row, item in _alike(ledger, scanned):
        size, capture_id = item.file.size_bytes, item.about.capture_id
        if capture_id is not None and size < row["size_bytes"] and _hash(row["path"], size) == capture_id:
            found.add(capture_id)
    return found


def _alike(ledger: Iterable[Row], scanned: Iterable[Scanned]) -> Iterator[tuple[Row, Scanned]]:
    """Captures that begin with the same packet, or with none and have the same name."""
    by_start: dict[object, list[Row]] = {}
    for row in ledger:
        if row["capture_id"] and row["status"] != "failed" and not row["compression"]:
            by_start.setdefault(row["path"] if row["ts_first"] is None else row["ts_first"], []).append(row)
    for item in scanned:
        about = item.about
        if about.capture_id is None or about.status == "failed" or about.compression:
            continue
        starts = [item.file.path, *([] if about.ts_first_ns is None else [about.ts_first_ns // 1000])]
        yield from ((row, item) for start in starts for row in by_start.get(start, ()))


def _hash(path: str, size: int) -> str | None:
    """The capture_id that the first bytes of a file would have."""
    tree = TreeHash()
    with suppress(OSError), open_file(path) as file:
        while size > 0:
            data = file.read(min(size, BLOCK_BYTES))
            if not data:
                return None
            tree.update(data)
            size -= len(data)
        return tree.result()
    return None


def failed_before(ledger: Iterable[Row], new: Iterable[Scanned], sensor: str) -> list[Superseded]:
    """The rows of files that failed once, and now have another one."""
    paths = {row["path"] for row in ledger if row["status"] == "failed"}
    return [Superseded.failed(sensor, path) for path in sorted(paths.intersection(item.file.path for item in new))]
