"""Compares the tables of a lake, filled by the pipeline without Spark, with the rows of the sequential analysis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.pipeline import DECODED
from rtmp_spark.redact import Redactor

KEY = "a key for tests"  # of redaction; tests set it in the environment
COMPARED = (*(t for t in DECODED if t != "open_flows"), "deliveries")
Rows = dict[str, list[dict[str, Any]]]


def sequential(paths: Iterable[Path], **options: Any) -> Rows:
    """The rows of connections that `inspect` finds in these captures."""
    settings = IngestOptions(**options).settings()
    settings.redactor = Redactor(None if options.get("keep_secrets") else KEY.encode())
    settings.rules_across_connections = True
    found: Rows = {name: [] for name in COMPARED}
    for table, batch in Recording(map(str, paths), settings, COMPARED).batches():
        found[table] += [row for row in batch.to_pylist() if row.get("uid") is not None]
    return found


class Tables:
    """A lake, and the summaries of its ingests."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.lake = directory / f"lake{len(list(directory.glob('lake*')))}"
        self.lake.mkdir()
        self.options = options
        self.resumed = 0
        self.late: list[str] = []

    def ingest(self, paths: Iterable[Path], split_bytes: int = 1 << 26, buckets: int = 1) -> None:
        summary = ingest_in_process(self.lake, paths, buckets=buckets, split_bytes=split_bytes, **self.options)
        self.resumed += summary.resumed
        self.late += summary.late

    @property
    def rows(self) -> Rows:
        """Without the number of the ingest and without findings about captures."""
        found = {name: lake_rows(self.lake, name) for name in (*COMPARED, "open_flows")}
        for name in COMPARED:
            found[name] = [{**row, "ingest_id": None} for row in found[name] if row.get("uid") is not None]
        return found


def difference(expected: Rows, got: Rows) -> str:
    for name in COMPARED:
        left, right = (sorted(map(repr, rows[name])) for rows in (expected, got))
        if left != right:
            return f"{name}: {len(left)} rows expected, {len(right)} found; {_lone(expected[name], got[name])}"
    return ""


def _lone(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> str:
    """The first row that only one side has, and how it differs from the row at the same place."""
    only = [next((r for r in a if r not in b), {}) for a, b in ((left, right), (right, left))]
    differing = {k: (only[0].get(k), only[1].get(k)) for k in only[0] or only[1] if only[0].get(k) != only[1].get(k)}
    return f"{differing} of {only[0]}"
