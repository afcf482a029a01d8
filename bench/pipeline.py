"""Compares the speed of an ingest on local[2] with a tuned tshark in one run; asserts nothing.

    python bench/pipeline.py DIRECTORY [NAME ...] [--repeat 2] [--master local[2]] [--long-lived]

DIRECTORY contains the captures of bench/make_captures.py. Each time is printed with the number of messages that each
program found. The fixed cost (an ingest of one tiny file in a warm session) is printed separately, and so is the first
ingest of a tiny file from the shell, including the start of Spark. In a directory of files, tshark reads the first
fifty one by one and the result is scaled. By default the session is the one that `rtmp-spark ingest` starts;
`--long-lived` uses the one of a notebook or of `--follow`, whose JVM needs longer to warm up and is then faster: use
four repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rtmp_spark.commands.ingest import SMALL_BYTES
from rtmp_spark.ingest.decode.decode_job import ScanJob
from rtmp_spark.ingest.decode.tasks import scan_splits
from rtmp_spark.ingest.options import SPLIT_BYTES
from rtmp_spark.ingest.scan.split_scan import Split
from rtmp_spark.lake.location import locate
from rtmp_spark.spark import Lake, ingest, start_spark

TSHARK = [
    "tshark", "-o", "rtmpt.max_packet_size:16777215", "-o", "tcp.reassemble_out_of_order:TRUE",
    "-d", "tcp.port==1935,rtmpt", "-Y", "rtmpt", "-T", "fields", "-e", "rtmpt.header.typeid", "-r",
]  # fmt: skip
SMALL = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_g711mu_audio_only.pcap"


class WorkerMemory:
    """Watches the peak resident memory of the Python workers, in MB."""

    def __init__(self) -> None:
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                        status = (process / "status").read_text()
                        resident = int(status.split("VmHWM:")[1].split()[0]) // 1024
                        self.most = max(self.most, resident)
                except (OSError, IndexError, ValueError):
                    continue


def by_tshark(path: Path) -> tuple[float, float, int]:
    if path.is_dir():
        files = sorted(path.iterdir())
        some = [by_tshark(file) for file in files[:50]]
        wall, cpu, found = (sum(column) * len(files) / len(some) for column in zip(*some))
        return wall, cpu, round(found)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    listed = subprocess.run([*TSHARK, str(path)], capture_output=True, text=True).stdout
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, sum(line.count(",") + 1 for line in listed.splitlines() if line)


def by_ingest(spark: object, path: Path) -> tuple[float, int, str]:
    lake = tempfile.mkdtemp(prefix="bench-lake-")
    try:
        ingest(spark, [str(SMALL)], lake)  # type: ignore[arg-type]
        start = time.perf_counter()
        summary = ingest(spark, [str(path)], lake)  # type: ignore[arg-type]
        wall = time.perf_counter() - start
        found = Lake(spark, lake).messages.where(f"ingest_id = {summary.ingest_id}").count()  # type: ignore[arg-type]
        return wall, found, " ".join(f"{name} {seconds:.1f}" for name, seconds in summary.seconds.items())
    finally:
        shutil.rmtree(lake, ignore_errors=True)


def from_the_shell() -> float:
    """Measure the ingest of one tiny file into a new lake from the shell, including the start of Spark."""
    with tempfile.TemporaryDirectory(prefix="bench-lake-") as lake:
        command = [sys.executable, "-m", "rtmp_spark.cli", "ingest", str(SMALL), "--lake", f"{lake}/lake", "--quiet"]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        return time.perf_counter() - start


def index_share(path: Path) -> float:
    """Return what the scan sends to the driver as a share of the input (its first split)."""
    path = next(path.iterdir()) if path.is_dir() else path
    size = min(path.stat().st_size, SPLIT_BYTES)
    with tempfile.TemporaryDirectory(prefix="bench-staging-") as staging:
        split = Split(0, str(path), 0, size, path.stat().st_size)
        batch = scan_splits(ScanJob(locate(staging), sort=False), [split], os.getpid())
    return float(batch.nbytes) / size


def fixed_cost(spark: object) -> float:
    """Return the minimum of three ingests of a tiny file into an existing lake."""
    lake = tempfile.mkdtemp(prefix="bench-lake-")
    least = 1e9
    for n in range(3):
        start = time.perf_counter()
        ingest(spark, [str(SMALL)], lake, sensor=str(n))  # type: ignore[arg-type]
        least = min(least, time.perf_counter() - start)
    shutil.rmtree(lake, ignore_errors=True)
    return least


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--long-lived", action="store_true")
    args = parser.parse_args()
    expected = json.loads((args.directory / "captures.json").read_text())
    print(f"first ingest of a tiny file from the shell, including the start of Spark: {from_the_shell():.1f} s")
    start = time.perf_counter()
    small = max(expected[name]["bytes"] for name in args.names or expected) < SMALL_BYTES and not args.long_lived
    spark = start_spark(args.master, small=small)
    started = time.perf_counter() - start
    print(f"start of the session {started:.1f} s")
    fixed = fixed_cost(spark)
    print(f"fixed cost of an ingest {fixed:.1f} s (warm, one tiny file)\n")
    have_tshark = shutil.which("tshark") is not None
    rates: dict[str, float] = {}
    for name in args.names or expected:
        path = next(p for p in (args.directory / f"{name}.pcap", args.directory / name) if p.exists())
        size = expected[name]["bytes"] / 1e6
        theirs, ours = (1e9, 1e9, 0), (1e9, 0, "")
        with WorkerMemory() as memory:
            for _ in range(args.repeat):
                if have_tshark:
                    theirs = min(theirs, by_tshark(path))
                ours = min(ours, by_ingest(spark, path))
        rate = size / max(ours[0] - fixed, 0.01)
        rates[name] = size / ours[0]
        client_messages = expected[name]["client_messages"]
        print(
            f"{name}: {size:.0f} MB, {client_messages} messages from clients; "
            f"ours {ours[1]} in {ours[0]:.1f} s wall ({ours[2]}), {rate:.0f} MB/s beyond the fixed cost; "
            f"worker {memory.most} MB; index {index_share(path):.2%} of the input"
        )
        if have_tshark:
            ratio, with_start = theirs[0] / ours[0], theirs[0] / (ours[0] + started)
            print(
                f"    tshark {theirs[2]} in {theirs[0]:.1f} s wall, {theirs[1]:.1f} s CPU: {ratio:.1f} x, "
                f"{with_start:.1f} x with the start of the session"
            )
        sys.stdout.flush()
    if {"huge", "c4096"} <= rates.keys():
        print(f"\none big connection at {rates['huge'] / rates['c4096']:.2f} of the throughput of fifteen")
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
