"""`ingest(spark, paths, lake)`: decodes captures into a lake.

Runs the rounds of `rtmp_spark.ingest.rounds` with a Spark session for its parallel stages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.captures.capture_paths import CaptureFile, CapturePaths, list_captures
from rtmp_spark.ingest.ingest_progress import Progress, ProgressReporter
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.rounds import IngestRun
from rtmp_spark.lake.location import Location

from .cancellable import Stop, Stopped
from .cores import cluster_cores
from .executor_cryptography import require_cryptography
from .job_faults import reason, states_remedy
from .lake_location import lake_location
from .stages import SparkStages


def ingest(
    spark: SparkSession,
    paths: CapturePaths,
    lake: str | Path,
    options: IngestOptions | None = None,
    *,
    keylog: KeyLog | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Stop | None = None,
    **fields: Any,
) -> Summary:
    """Decode captures into the tables of a lake, which is created if it does not exist.

    `paths` is one path or several: files, directories, patterns or URIs.
    Options are given as `IngestOptions` or as its fields: `ingest(spark, paths, lake, sensor="edge-1")`. A caller that
    sets `stop` and cancels the Spark jobs gets `Stopped`.
    """
    chosen = replace(options or IngestOptions(), **fields)
    if keylog is not None:
        chosen = replace(chosen, keylog=keylog.dump())
    if chosen.keylog:
        require_cryptography(spark)
    files = list_captures(paths)
    location = lake_location(spark, lake)
    summary = Summary(str(location), files=len(files), bytes=sum(file.size_bytes for file in files))
    run = _Run(spark, location, chosen, summary, progress, stop or Stop())
    run(files)
    return summary


class _Run:
    """One ingest: opens the lake, runs the pipeline, reports a fault of the machine in one sentence."""

    def __init__(
        self,
        spark: SparkSession,
        location: Location,
        options: IngestOptions,
        summary: Summary,
        progress: Callable[[Progress], None] | None,
        stop: Stop,
    ) -> None:
        self.spark = spark
        self.location = location
        self.options = options
        self.summary = summary
        self.reporter = ProgressReporter(progress)
        self.stop = stop

    def __call__(self, files: list[CaptureFile]) -> None:
        self._check_cancelled()
        summary = self.summary
        try:
            stages = SparkStages(self.spark, self.options.cores or cluster_cores(self.spark))
            run = IngestRun(self.location, stages, self.options, summary, self.reporter, self._check_cancelled)
            if self.options.dry_run:
                rounds = run.plan(files)
                summary.ingested = [probed.file.path for part in rounds for probed in part.files]
                summary.splits = sum(part.splits for part in rounds)
            else:
                run.run(files)
        except Exception as error:
            done, of = len(summary.rounds), len(summary.planned)
            if self.stop.is_set():
                raise Stopped(done == of > 0, done, of) from None
            if isinstance(error, UserError) and done:
                sentence = f"After {done} of {of} rounds, which are published: {error.text}"
                raise UserError(sentence, error.remedy, error.exit_code) from error
            if isinstance(error, UserError) or not _is_of_the_machine(error):
                raise
            what = f"after {done} of {of} rounds, which are published" if done else "and published nothing"
            remedy = "" if states_remedy(error) else "Fix that and run it again."
            raise UserError(f"The ingest failed {what}: {reason(error)}.", remedy, 3) from error

    def _check_cancelled(self) -> None:
        if self.stop.is_set():
            raise Stopped(False, len(self.summary.rounds), len(self.summary.planned))


def _is_of_the_machine(error: Exception) -> bool:
    return isinstance(error, (PySparkException, OSError)) or type(error).__module__.startswith("py4j")
