"""The work of one executor that gives the rows of `paths`: connections that two sensors of a lake captured.

The new connections of an ingest are compared with those of other sensors at the same time. A new connection may also
change what is known about others of its time (two connections that were the only ones of their length are not any
more), so the rows about all connections of that time are made again.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.analysis.rows.path_rows import COLUMNS, path_rows
from rtmp_spark.forensics.thresholds import PATH_CLOCK_US
from rtmp_spark.ingest.publish.lake_rows import microseconds, one_of, to_table
from rtmp_spark.ingest.publish.neighbours import Times, overlapping
from rtmp_spark.ingest.publish.table_files import TableFiles
from rtmp_spark.lake.parquet_files import FileTarget, WrittenFile, write_rows

PATH_TABLES = tuple(COLUMNS)


@dataclass(frozen=True)
class PathJob:
    tables: TableFiles  # `PATH_TABLES` as they will be after the ingest
    target: FileTarget


@dataclass
class Paths:
    """What the comparison wrote; the older rows of `compared` connections are replaced."""

    files: list[WrittenFile] = field(default_factory=list)
    rows: int = 0
    compared: list[str] = field(default_factory=list)  # uids
    failed: str = ""  # why nothing was compared

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Paths:
        values = json.loads(text)
        values["files"] = [WrittenFile(**file) for file in values["files"]]
        return cls(**values)


def find_paths(job: PathJob, _work: str) -> str:
    """Compare the connections of the ingest; returns a `Paths`. It never raises: trouble is part of the result."""
    try:
        return _find(job).dump()
    except Exception as error:
        return Paths(failed=f"{type(error).__name__}: {error}").dump()


def of_paths(uids: Collection[str]) -> pc.Expression:
    """Condition for rows of `paths` about any of these connections."""
    return one_of("uid_a", uids) | one_of("uid_b", uids)


def _find(job: PathJob) -> Paths:
    new = _connections(job, pc.field("ingest_id") == job.target.ingest_id)
    if not new.num_rows:
        return Paths()
    near = _connections(job, overlapping(_spans(new)))
    # Around them: their partners, and the partners' other candidates.
    around = _connections(job, overlapping(_spans(near, 2 * PATH_CLOCK_US)))
    compared = near["uid"].to_pylist()

    def read(table: str, uids: Collection[str]) -> pa.Table:
        return job.tables.that_may_hold(uids).read(table, COLUMNS[table], one_of("uid", uids))

    rows = path_rows(around, read, set(compared))
    files = [write_rows(job.target, "paths", to_table("paths", rows, job.target.ingest_id))] if rows else []
    return Paths(files, len(rows), compared)


def _connections(job: PathJob, where: pc.Expression) -> pa.Table:
    return job.tables.read("connections", COLUMNS["connections"], where)


def _spans(connections: pa.Table, more: int = 0) -> list[Times]:
    """When the connections were open, with `more` microseconds on both sides."""
    times = zip(microseconds(connections["ts_start"]), microseconds(connections["ts_end"]))
    return [(first - more, last + more) for first, last in times]
