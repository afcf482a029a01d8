"""What an ingest does across connections after decoding, on executors: rules that compare connections, deliveries, the
comparison of sensors.

Nothing here makes an ingest fail. If a step raises an error, kills its worker or takes too long, the rows that it would
have added or changed are left out, and a finding says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from rtmp_spark.capture.problem import Problem
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.ingest.publish.across_connections import DELIVERY_LIMIT
from rtmp_spark.ingest.publish.across_job import Across, AcrossJob, NewConnections, judge, without_rules
from rtmp_spark.ingest.publish.delivery_plan import Batch, DeliveryPlan
from rtmp_spark.ingest.publish.delivery_search import Searched, SearchJob, search_batch
from rtmp_spark.ingest.publish.lake_rows import one_of
from rtmp_spark.ingest.publish.path_search import PATH_TABLES, PathJob, Paths, find_paths, of_paths
from rtmp_spark.ingest.publish.replaced_rows import replace_connections
from rtmp_spark.ingest.publish.table_files import TableFiles
from rtmp_spark.ingest.stages import Stages
from rtmp_spark.lake.parquet_files import WrittenFile
from rtmp_spark.lake.writer import Writer

LEAST_SECONDS = 300.0  # for each of the steps; they get as long as decoding took if that is more
GRACE_SECONDS = 60.0  # after which a step that does not watch the time is stopped
SMALL_CONNECTIONS = 500  # compared on the driver: they cost little there, and a Spark job takes longer


@dataclass
class AcrossStage:
    """Runs the steps; afterwards the fields describe the result. The writer replaces the rows that changed."""

    stages: Stages
    writer: Writer
    sensor: str
    decode_seconds: float
    check_cancelled: Callable[[], None]
    files: list[WrittenFile] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def run(self, new: NewConnections, written: list[WrittenFile]) -> None:
        """`written`: the files of the ingest so far."""
        across = self._judge(new)
        self.files = list(across.files)
        self.rows = {"findings": across.findings, "deliveries": 0, "paths": 0}
        replace_connections(self.writer, across.changed_streams, ("streams",))
        replace_connections(self.writer, across.changed_findings, ("findings",))
        if across.plan.batches or across.plan.matched_before:
            self._match(across.plan, written)
        if new.replaced:
            self.writer.replace("paths", of_paths(new.replaced))
        if not self.writer.is_new and new.count and self._has_other_sensors():
            self._compare_sensors(new, written)

    @property
    def _seconds(self) -> float:
        return max(LEAST_SECONDS, self.decode_seconds)

    def _judge(self, new: NewConnections) -> Across:
        tables = TableFiles.before(self.writer, ("streams", "connections", "findings"))
        job = AcrossJob(tables, self.writer.target, self.writer.staging, self.sensor, self.stages.cores)
        small = new.count <= SMALL_CONNECTIONS
        try:
            done, dead = self.stages.run(partial(judge, job), [new.dump()], self._seconds, small)
            across = Across.parse(done[0]) if done else Across(failed=dead[0][1])
            if not across.failed:
                return across
            why = across.failed
        except Exception as error:
            self.check_cancelled()
            why = f"{type(error).__name__}: {error}"
        text = f"connections were not compared with each other: {_first_line(why)}"
        self.problems.append(Problem(ViolationCode.CAPTURE_LIMIT, text, "ingest the captures again with --redo"))
        return without_rules(job, new)

    def _match(self, plan: DeliveryPlan, written: list[WrittenFile]) -> None:
        after = TableFiles.after(self.writer, ("messages", "media_tags"), written).that_may_hold(plan.uids)
        job = SearchJob(after, self.writer.target, time.time() + self._seconds)
        try:
            limit = self._seconds + GRACE_SECONDS
            done, dead = self.stages.run(partial(search_batch, job), plan.batches, limit, plan.small)
            found = [Searched.parse(text) for text in done]
            found += [Searched.nothing(Batch.parse(text), why) for text, why in dead]
        except Exception as error:
            self.check_cancelled()
            found = [Searched.nothing(Batch.parse(text), f"{type(error).__name__}: {error}") for text in plan.batches]
        for searched in found:
            self.files += searched.files
            for table, count in searched.rows.items():
                self.rows[table] += count
        left_out = sum(searched.left_out for searched in found)
        if left_out:
            why = next(searched.why for searched in found if searched.left_out)
            text = f"{left_out} played streams were not matched with published ones: {_first_line(why)}"
            hint = "ingest the captures again with --redo"
            self.problems.append(Problem(ViolationCode.CAPTURE_LIMIT, text, hint, left_out))
        replaced = set(plan.matched_before).difference(*(searched.kept for searched in found))
        replace_connections(self.writer, replaced, ("deliveries",))
        if replaced:
            self.writer.replace("findings", one_of("uid", replaced) & (pc.field("rule_id") == DELIVERY_LIMIT))

    def _has_other_sensors(self) -> bool:
        other = pc.field("sensor") != self.sensor
        return bool(self.writer.read("captures", ["sensor"], other).num_rows)

    def _compare_sensors(self, new: NewConnections, written: list[WrittenFile]) -> None:
        job = PathJob(TableFiles.after(self.writer, PATH_TABLES, [*written, *self.files]), self.writer.target)
        small = new.count <= SMALL_CONNECTIONS
        try:
            done, dead = self.stages.run(partial(find_paths, job), [""], self._seconds, small)
            found = Paths.parse(done[0]) if done else Paths(failed=dead[0][1])
        except Exception as error:
            self.check_cancelled()
            found = Paths(failed=f"{type(error).__name__}: {error}")
        if found.failed:
            text = f"connections were not compared with those of other sensors: {_first_line(found.failed)}"
            self.problems.append(Problem(ViolationCode.CAPTURE_LIMIT, text, "ingest the captures again with --redo"))
            return
        if found.compared:
            self.writer.replace("paths", of_paths(found.compared))
        self.files += found.files
        self.rows["paths"] = found.rows


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300].rstrip(".")
