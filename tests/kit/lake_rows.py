"""Synthetic rows for the tables of a lake, and small ingests of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import OPEN, PART, BucketFiles, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.schema import arrow_schema

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def made_rows(table: str, uid: str = "C1", count: int = 1, first: int = 0, **values: Any) -> pa.Table:
    """Rows of one connection; `values` replaces synthetic values."""
    schema = arrow_schema(table)
    rows = [{f.name: _value(f, uid, number) for f in schema} | values for number in range(first, first + count)]
    return pa.Table.from_pylist(rows, schema)


def _value(field: pa.Field, uid: str, number: int) -> Any:
    kind = field.type
    if field.name == "uid":
        return uid
    if pa.types.is_timestamp(kind):
        return START + timedelta(seconds=number, microseconds=number)
    if pa.types.is_string(kind):
        return "c2s" if field.name == "direction" else field.name
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return number
    return {pa.bool_(): True, pa.binary(): b"payload"}.get(kind, [])


MESSAGES_OF_A_CAPTURE = 3


def ingest_capture(location: Location, path: str, uid: str = "Clong") -> bool:
    """Imitates an ingest: skips a known capture, else continues the connection that all captures contain.

    Its message rows are added, its row of `connections` is replaced. False if the capture was known.
    """
    with open_writer(location, wait_seconds=30) as writer:
        known = writer.table("captures").to_table(columns=["path"])["path"].to_pylist()
        if path in known:
            return False
        first = writer.table("messages").count_rows(filter=pc.field("uid") == uid)
        messages = made_rows("messages", uid, MESSAGES_OF_A_CAPTURE, first, capture_id=path)
        connection = made_rows("connections", uid, packets_c2s=len(known) + 1)
        files = BucketFiles(writer.target, bucket=0)
        files.add("captures", made_rows("captures", path=path))
        files.add("messages", messages)
        files.add("connections", connection, OPEN)
        writer.replace("connections", pc.field("uid") == uid)
        writer.publish(files.finish(), captures_numbered=writer.captures_numbered + 1)
    return True


def publish_rows(location: Location, rows: dict[str, pa.Table], kind: str = PART) -> int:
    """One ingest of these rows; its number."""
    with open_writer(location, wait_seconds=30) as writer:
        files = [write_rows(writer.target, table, made, kind=kind) for table, made in rows.items()]
        return writer.publish(files).ingest_id


Contents = dict[str, list[Any]]


def contents(location: Location, tables: Iterable[str], without: Sequence[str] = ("ingest_id",)) -> Contents:
    """Every published row of these tables, sorted."""
    lake = open_lake(location)
    dropped = set(without)
    found: Contents = {}
    for name in tables:
        columns = [c for c in arrow_schema(name).names if c not in dropped]
        rows = lake.table(name).to_table(columns=columns).to_pylist()
        found[name] = sorted(rows, key=repr)
    return found
