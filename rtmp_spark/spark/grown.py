"""Captures that the ledger knows as they were before: shorter ones that went on, and files that failed.

A recorder may write on after its file was taken for closed. The longer file then holds all of the shorter one, so
that one's rows are replaced; whether it does is told by the hash of its first bytes, never by its name. A file that
failed has at most one row, the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from rtmp_spark.capture.recording import BLOCK_BYTES, TreeHash

from .ledger import Superseded
from .paths import open_file
from .plan import Scanned

Row = Mapping[str, Any]  # of the table `captures`; times as microseconds


def beginnings(ledger: Iterable[Row], scanned: Iterable[Scanned]) -> dict[str, Scanned]:
    """The captures of the ledger that a longer one of these files begins with, by capture_id."""
    plain = [row for row in ledger if row["capture_id"] and row["status"] != "failed" and not row["compression"]]
    by_path: dict[str, list[Row]] = {}
    by_time: dict[int, list[Row]] = {}
    for row in plain:
        by_path.setdefault(row["path"], []).append(row)
        if row["ts_first"] is not None:
            by_time.setdefault(row["ts_first"], []).append(row)
    found: dict[str, Scanned] = {}
    for item in scanned:
        about = item.about
        if about.capture_id is None or about.status == "failed" or about.compression:
            continue
        first = -1 if about.ts_first_ns is None else about.ts_first_ns // 1000
        for row in [*by_path.get(item.file.path, ()), *by_time.get(first, ())]:
            size, capture_id = row["size_bytes"], row["capture_id"]
            if capture_id not in found and size < item.file.size_bytes and _hash(item.file.path, size) == capture_id:
                found[capture_id] = item
    return found


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
