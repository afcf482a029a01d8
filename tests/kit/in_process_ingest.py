"""The ingest pipeline without Spark: its stages run in this process, into a real lake."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from rtmp_spark.ingest.captures.capture_paths import list_captures
from rtmp_spark.ingest.decode.decode_job import BucketResult, Decoded, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.tasks import Scans, collect_scans, decode_bucket, scan_splits
from rtmp_spark.ingest.ingest_progress import ProgressReporter
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.rounds import IngestRun
from rtmp_spark.ingest.scan.split_scan import Split, SplitScanner
from rtmp_spark.ingest.scan.staged_packets import PacketFile
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake


class InProcessStages:
    """Implements `rtmp_spark.ingest.stages.Stages`."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> Scans:
        batches = [scan_splits(job, task, os.getpid()) for task in tasks]
        return collect_scans(pa.Table.from_batches([batch]) for batch in batches)

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        rows = pieces.to_pylist()
        results = [
            decode_bucket(job, bucket, [row for row in rows if row["bucket"] == bucket], os.getpid())
            for bucket in sorted({row["bucket"] for row in rows})
        ]
        return Decoded([BucketResult.parse(result.dump()) for result in results])

    def run(
        self, task: Callable[[str], str], work: Sequence[str], seconds: float, small: bool
    ) -> tuple[list[str], list[tuple[str, str]]]:
        return [task(one) for one in work], []


def ingest_in_process(lake: Path, paths: Iterable[Path | str], *, buckets: int = 1, **options: Any) -> Summary:
    """Ingest captures as `rtmp_spark.spark.ingest` does; at most `buckets` buckets share the connections."""
    files = list_captures(map(str, paths))
    summary = Summary(str(lake), files=len(files), bytes=sum(file.size_bytes for file in files))
    stages, chosen = InProcessStages(buckets), IngestOptions(**options)
    IngestRun(locate(lake), stages, chosen, summary, ProgressReporter(None)).run(files)
    return summary


def scanned(split: Split, staging: Path, *, sort: bool = False) -> SplitScanner:
    """The scan of one split, with its packets in a file of this directory."""
    with closing(PacketFile(locate(staging))) as file:
        scanner = SplitScanner(split, file, sort=sort)
        scanner.run()
    return scanner


def lake_rows(lake: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = open_lake(lake).read(table).to_pylist()
    return rows
