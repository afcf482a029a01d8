"""The work of one executor that applies the rules across connections and plans the matching of deliveries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.ingest.decode.tasks import JUDGED_LATER
from rtmp_spark.ingest.publish.across_connections import judge_across_connections
from rtmp_spark.ingest.publish.delivery_plan import DeliveryPlan, plan_deliveries
from rtmp_spark.ingest.publish.neighbours import NewRows, neighbours
from rtmp_spark.ingest.publish.open_rows import write_open_and_final
from rtmp_spark.ingest.publish.table_files import TableFiles
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import FileTarget, WrittenFile
from rtmp_spark.lake.snapshot import dataset_of, not_yet_committed
from rtmp_spark.schema import arrow_schema


@dataclass(frozen=True)
class AcrossJob:
    """Where the rules find the lake, and where they write."""

    tables: TableFiles  # `streams`, `connections` and `findings` as they were published before
    target: FileTarget
    staging: Location
    sensor: str
    cores: int  # that deliveries are matched on


@dataclass(frozen=True)
class NewConnections:
    """The connections that an ingest decoded."""

    connections: list[WrittenFile]
    staged: list[WrittenFile]  # rows of `streams` and `findings` that the rules may change
    replaced: list[str]  # uids whose older rows the ingest replaces
    resumed: dict[str, int]  # uid of a resumed connection: from this time on (microseconds) its rows are new
    open_uids: list[str]  # connections that a later ingest may resume

    @property
    def count(self) -> int:
        return sum(file.rows for file in self.connections)

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> NewConnections:
        values = json.loads(text)
        for name in ("connections", "staged"):
            values[name] = [WrittenFile(**file) for file in values[name]]
        return cls(**values)


@dataclass
class Across:
    """What the rules wrote and changed."""

    files: list[WrittenFile] = field(default_factory=list)
    findings: int = 0  # of the new connections
    changed_streams: list[str] = field(default_factory=list)  # uids of neighbours whose rows are replaced
    changed_findings: list[str] = field(default_factory=list)
    plan: DeliveryPlan = field(default_factory=DeliveryPlan)
    failed: str = ""  # why the rules were not applied

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Across:
        values = json.loads(text)
        values["files"] = [WrittenFile(**file) for file in values["files"]]
        values["plan"] = DeliveryPlan(**values["plan"])
        return cls(**values)


def judge(job: AcrossJob, work: str) -> str:
    """Apply the rules to a `NewConnections`; returns an `Across`. It never raises: trouble is part of the result."""
    try:
        return _judge(job, NewConnections.parse(work)).dump()
    except Exception as error:
        return Across(failed=f"{type(error).__name__}: {error}").dump()


def _judge(job: AcrossJob, given: NewConnections) -> Across:
    rows = {"connections": _read(job.target.location, "connections", given.connections)}
    for table in JUDGED_LATER:
        rows[table] = _read(job.staging, table, [file for file in given.staged if file.table == table])
    new = NewRows.of(rows, set(given.replaced), given.resumed)
    known = neighbours(job.tables, job.sensor, new)
    open_uids = set(given.open_uids)
    plan = plan_deliveries(job.tables, job.sensor, new, known, open_uids, job.cores)
    judged = judge_across_connections(
        job.tables, job.sensor, new, known, set(plan.matched_before), job.target.ingest_id
    )
    files = write_open_and_final(job.target, "streams", judged.streams, open_uids)
    files += write_open_and_final(job.target, "findings", judged.findings, open_uids)
    of_neighbours = pc.is_in(judged.findings["uid"], pa.array(sorted(judged.changed_findings), pa.string()))
    return Across(
        files,
        judged.findings.num_rows - (pc.sum(of_neighbours).as_py() or 0),
        sorted(judged.changed_streams),
        sorted(judged.changed_findings),
        plan,
    )


def without_rules(job: AcrossJob, given: NewConnections) -> Across:
    """The rows as the decoder made them, for an ingest whose rules failed. Reads one file at a time."""
    found = Across()
    for file in given.staged:
        rows = _read(job.staging, file.table, [file])
        found.files += write_open_and_final(job.target, file.table, rows, given.open_uids)
        found.findings += rows.num_rows if file.table == "findings" else 0
    return found


def _read(location: Location, table: str, files: Sequence[WrittenFile]) -> pa.Table:
    """The rows of files that are not published."""
    return dataset_of(location, table, [not_yet_committed(file) for file in files], arrow_schema(table)).to_table()
