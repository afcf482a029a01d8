"""The parallel stages of an ingest as Spark jobs.

Descriptions of splits, connections, saved states and the descriptions of written files pass through the JVM. Packets
and rows do not: the executors write them to the lake.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.analysis.arrow_columns import arrow_batch
from rtmp_spark.capture.files.file_facts import FAILED, FileFacts
from rtmp_spark.capture.memory_tuning import exempt_loaded_modules
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.captures.known_captures import CRASHED
from rtmp_spark.ingest.decode.decode_job import SCANNED, BucketResult, Decoded, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.tasks import Scans, collect_scans, decode_bucket, scan_splits
from rtmp_spark.ingest.input_fault import blamed_on_input
from rtmp_spark.ingest.scan.split_scan import Split, SplitScan
from rtmp_spark.lake.location import Location

from .arrow_types import spark_schema
from .job_faults import is_inputs_fault, run_isolating
from .time_limit import time_limit

Batches = Iterator[pa.RecordBatch]
_TASKS = pa.schema([pa.field("task", pa.int32()), pa.field("work", pa.string())])
_RESULTS = pa.schema([pa.field("result", pa.string())])


class SparkStages:
    """Implements `rtmp_spark.ingest.stages.Stages`."""

    def __init__(self, spark: SparkSession, cores: int) -> None:
        self.spark = spark
        self.cores = cores
        self._driver = os.getpid()

    def scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> Scans:
        tables, dead = run_isolating(lambda chosen: self._scan(job, chosen), [list(task) for task in tasks])
        failed: dict[int, SplitScan] = {}
        for task, _ in dead:  # find the split of the task that kills the worker
            more, culprits = run_isolating(lambda splits: self._scan(job, [splits]), task)
            tables += more
            for split, why in culprits:
                hint = f"reading this file kills the worker ({why}); please report it"
                facts = FileFacts(status=FAILED, error_code=CRASHED, error_hint=hint)
                failed[split.split_id] = SplitScan(split.split_id, facts)
        found = collect_scans(tables)
        staged = {found.splits[split_id].staged for split_id in pc.unique(found.sections["split_id"]).to_pylist()}
        require_shared_storage(job.staging, [job.staging.table(name) for name in staged])
        found.splits.update(failed)
        return found

    def _scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> pa.Table:
        work = [json.dumps(task, default=vars) for task in tasks]
        driver = self._driver

        def run(batches: Batches) -> Batches:
            for batch in batches:
                for text in batch.column("work").to_pylist():
                    yield scan_splits(job, [Split(**fields) for fields in json.loads(text)], driver)

        return self._run(work, run, SCANNED)

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        if not pieces.num_rows:
            return Decoded()
        groups = sorted(pc.unique(pieces["group"]).to_pylist())
        try:
            decoded = Decoded(self._decode(job, pieces, buckets, groups))
        except Exception as error:
            if not is_inputs_fault(error):
                raise
            job = replace(job, heavy=frozenset())  # a helper process may have caused it
            results, culprits = run_isolating(lambda chosen: self._decode(job, pieces, buckets, chosen), groups)
            decoded = Decoded([bucket for result in results for bucket in result], culprits)
        written = [file for bucket in decoded.buckets for file in bucket.files]
        paths = [f"{job.location.table(file.table)}/{file.path}" for file in written]
        require_shared_storage(job.location, paths)
        return decoded

    def _decode(self, job: DecodeJob, pieces: pa.Table, buckets: int, groups: Sequence[int]) -> list[BucketResult]:
        driver = self._driver

        def run(batches: Batches) -> Batches:
            rows = [row for batch in batches for row in batch.to_pylist()]
            for bucket in sorted({row["bucket"] for row in rows}):
                mine = [row for row in rows if row["bucket"] == bucket]
                yield arrow_batch([[decode_bucket(job, bucket, mine, driver).dump()]], _RESULTS)

        wanted = pieces.filter(pc.is_in(pieces["group"], pa.array(groups, pa.int32())))
        frame = self.spark.createDataFrame(wanted)
        found = _mapped(frame, buckets, "bucket", run, _RESULTS)
        return [BucketResult.parse(text) for text in found["result"].to_pylist()]

    def run(
        self, task: Callable[[str], str], work: Sequence[str], seconds: float, small: bool
    ) -> tuple[list[str], list[tuple[str, str]]]:
        if small:
            return [task(one) for one in work], []

        def run(batches: Batches) -> Batches:
            for batch in batches:
                for text in batch.column("work").to_pylist():
                    with time_limit(seconds), blamed_on_input():
                        result = task(text)
                    yield arrow_batch([[result]], _RESULTS)

        tables, dead = run_isolating(lambda chosen: self._run(chosen, run, _RESULTS), list(work))
        return [text for table in tables for text in table["result"].to_pylist()], dead

    def _run(self, work: Sequence[str], task: Callable[[Batches], Batches], schema: pa.Schema) -> pa.Table:
        """One task for each piece of work."""
        rows = pa.table([pa.array(range(len(work)), pa.int32()), pa.array(work, pa.string())], schema=_TASKS)
        frame = self.spark.createDataFrame(rows)
        return _mapped(frame, len(work), "task", task, schema).cast(schema)


def _mapped(
    frame: DataFrame, tasks: int, number: str, task: Callable[[Batches], Batches], schema: pa.Schema
) -> pa.Table:
    """The results of so many tasks; the column `number` names the task that gets a row."""

    def run(batches: Batches) -> Batches:
        exempt_loaded_modules()
        return task(batches)

    spread = frame.repartitionById(tasks, number) if tasks > 1 else frame.coalesce(1)
    return spread.mapInArrow(run, spark_schema(schema)).toArrow()


def require_shared_storage(location: Location, written: Sequence[str]) -> None:
    """Raises UserError if executors wrote files of a local lake that do not exist on the driver."""
    if not location.is_local:
        return
    for path in written:
        if not Path(path).exists():
            raise UserError(
                f"The executors wrote to their own disks: {location} is not the same directory on every machine.",
                "Use a lake on shared storage, for example s3://BUCKET/PATH or a directory that all machines mount.",
                3,
            )
