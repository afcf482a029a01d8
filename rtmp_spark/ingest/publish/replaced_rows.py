"""Rows of earlier ingests that an ingest replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.ingest.captures.known_captures import CaptureRow
from rtmp_spark.ingest.publish.lake_rows import one_of
from rtmp_spark.lake.writer import Writer
from rtmp_spark.schema import TABLES

OF_CONNECTIONS = tuple(name for name in TABLES if name != "captures")


def replace_connections(writer: Writer, uids: Iterable[str], tables: Iterable[str] = OF_CONNECTIONS) -> None:
    """Every row of these connections."""
    chosen = set(uids)
    if chosen:
        for table in tables:
            writer.replace(table, one_of("uid", chosen))


def replace_captures(writer: Writer, again: Sequence[CaptureRow], failed: Sequence[CaptureRow]) -> None:
    """The rows about captures that are decoded again, and `failed` rows of `captures` that get new ones.

    Another sensor may hold the same captures; the rows of an ingest are all of one sensor.
    """
    if not again and not failed:
        return
    ingests = pc.field("ingest_id").isin(pa.array(sorted({row["ingest_id"] for row in (*again, *failed)}), pa.int64()))
    condition = one_of("capture_id", {row["capture_id"] for row in again})
    condition |= one_of("path", {row["path"] for row in failed}) & (pc.field("status") == "failed")
    writer.replace("captures", ingests & condition)
    described = {row["capture_id"] for row in (*again, *failed) if row["capture_id"] is not None}
    if described:
        writer.replace("findings", ingests & pc.field("uid").is_null() & one_of("capture_id", described))
