"""Measures what scan and decode cost by the number of buckets, with and without a sorted copy; without Spark.

    python bench/buckets.py CAPTURE [...] [--buckets 1,16,64] [--split-size 8MB]

CPU seconds per GB of input, of this process, which runs all tasks one after the other, and how many times the bytes of
the input were read. Start up and publishing are not included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow as pa

from rtmp_spark.commands.options.argument_types import size
from rtmp_spark.ingest.captures.capture_paths import list_captures
from rtmp_spark.ingest.decode.decode_job import Decoded, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.tasks import Scans, collect_scans, decode_bucket, scan_splits
from rtmp_spark.ingest.ingest_progress import ProgressReporter
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.rounds import IngestRun
from rtmp_spark.ingest.scan import plan
from rtmp_spark.ingest.scan.split_scan import Split
from rtmp_spark.lake.location import locate


class Measured(Exception):
    """Enough was run."""


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


class MeasuredStages:
    """Runs the tasks here; ends after the second pass."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.cpu: dict[str, float] = {}
        self.read: dict[str, int] = {}
        self.messages = self.buckets = 0

    def scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> Scans:
        before, read = time.process_time(), bytes_read()
        batches = [scan_splits(job, task, os.getpid()) for task in tasks]
        self.cpu["scan"], self.read["scan"] = time.process_time() - before, bytes_read() - read
        return collect_scans(pa.Table.from_batches([batch]) for batch in batches)

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        before, read = time.process_time(), bytes_read()
        rows = pieces.to_pylist()
        for bucket in range(buckets):
            mine = [row for row in rows if row["bucket"] == bucket]
            if mine:
                self.messages += decode_bucket(job, bucket, mine, os.getpid()).rows.get("messages", 0)
                self.buckets += 1
        self.cpu["decode"], self.read["decode"] = time.process_time() - before, bytes_read() - read
        raise Measured

    def run(
        self, task: Callable[[str], str], work: Sequence[str], seconds: float, small: bool
    ) -> tuple[list[str], list[tuple[str, str]]]:
        return [task(one) for one in work], []


class Measurement(NamedTuple):
    scan: float  # CPU s/GB
    decode: float
    read: tuple[float, float]  # how many times the input was read, by scan and decode
    messages: int
    buckets: int

    @property
    def total(self) -> float:
        return self.scan + self.decode

    def __str__(self) -> str:
        return (
            f"scan {self.scan:5.2f}, decode {self.decode:5.2f}, together {self.total:5.2f} CPU s/GB; "
            f"read {self.read[0]:.2f} + {self.read[1]:.2f} x; {self.messages} messages in {self.buckets} buckets"
        )


def measure(path: str, cores: int, sort: bool, split_bytes: int, least_bytes: int | None = None) -> Measurement:
    """As an ingest plans for so many cores; `least_bytes` 1 gives each core a bucket, however small."""
    if least_bytes is not None:
        with mock.patch.object(plan, "LEAST_BUCKET_BYTES", least_bytes):
            return measure(path, cores, sort, split_bytes)
    lake = tempfile.mkdtemp(prefix="bench-lake-")
    stages = MeasuredStages(cores)
    files = list_captures([path])
    options = IngestOptions(split_bytes=split_bytes, sorted_copy=sort)
    try:
        IngestRun(locate(lake), stages, options, Summary(lake), ProgressReporter(None)).run(files)
    except Measured:
        pass
    finally:
        shutil.rmtree(lake, ignore_errors=True)
    total = sum(file.size_bytes for file in files)
    scan, decode = (stages.cpu[name] * 1e9 / total for name in ("scan", "decode"))
    read = stages.read["scan"] / total, stages.read["decode"] / total
    return Measurement(scan, decode, read, stages.messages, stages.buckets)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("captures", nargs="+")
    parser.add_argument("--buckets", default="1,4,16,64,256")
    parser.add_argument("--split-size", type=size, default=64 << 20)
    args = parser.parse_args()
    measure(args.captures[0], 1, False, args.split_size, 1)  # loads what is loaded later
    for path in args.captures:
        for buckets in map(int, args.buckets.split(",")):
            for sort in (False, True):
                how = "sorted  " if sort else "unsorted"
                found = measure(path, buckets, sort, args.split_size, 1)
                print(f"{Path(path).name} {buckets:4} {how} {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
