"""Writes rows so that a later ingest can replace those of connections that are still open."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.lake.parquet_files import OPEN, PART, FileTarget, WrittenFile, write_rows


def write_open_and_final(
    target: FileTarget, table: str, rows: pa.Table, open_uids: Collection[str]
) -> list[WrittenFile]:
    """One file of final rows and one of rows that a later ingest may replace."""
    if not rows.num_rows:
        return []
    is_open = pa.array([False] * rows.num_rows)
    if "uid" in rows.schema.names:
        is_open = pc.is_in(rows["uid"], pa.array(sorted(open_uids), pa.string()))
    parts = ((PART, rows.filter(pc.invert(is_open))), (OPEN, rows.filter(is_open)))
    return [write_rows(target, table, part, kind=kind) for kind, part in parts if part.num_rows]
