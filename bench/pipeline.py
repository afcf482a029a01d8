"""Measures the goals of the ingest pipeline beside a tuned tshark, in one run; asserts nothing.

    python bench/pipeline.py DIRECTORY [GOAL ...] [--repeat 2] [--master local[2]]

DIRECTORY contains the captures of bench/make_captures.py; goals whose captures are missing are skipped. Each time is
printed with the number of messages that each program found. CPU is that of the whole process tree: this process, the
JVM and the Python workers. "Warm" is a session that has ingested before; "fresh" is `rtmp-spark ingest` from the shell.
In a directory of files, tshark reads the first fifty one by one and the result is scaled.
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
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import buckets
import driver
from make_captures import FILES
from small_ingests import captures as small_captures
from small_ingests import tree_seconds

from rtmp_spark.commands.ingest import SMALL_BYTES
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.spark import ingest, start_spark

TSHARK = [
    "tshark", "-o", "rtmpt.max_packet_size:16777215", "-o", "tcp.reassemble_out_of_order:TRUE",
    "-d", "tcp.port==1935,rtmpt", "-Y", "rtmpt", "-T", "fields", "-e", "rtmpt.header.typeid", "-r",
]  # fmt: skip
OURS = [sys.executable, "-m", "rtmp_spark.cli"]
SMALL = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_g711mu_audio_only.pcap"
SMALL_INGESTS = 30
COPIED = True, 64 << 20  # a sorted copy, splits of 64 MB
SPLITS = (1_000, 10_000, 100_000)  # of 256 groups each


class Cost(NamedTuple):
    wall: float
    cpu: float
    messages: int
    driver_mb: int = 0

    def __str__(self) -> str:
        return f"{self.wall:.1f} s wall, {self.cpu:.1f} s CPU, {self.messages} messages"


class DriverMemory:
    """Watches the peak resident memory of one process, in MB."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._status = Path(f"/proc/{pid}/status")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            while True:
                self.most = max(self.most, int(self._status.read_text().split("VmHWM:")[1].split()[0]) // 1024)
                time.sleep(0.05)
        except (OSError, IndexError):
            return


class Bench:
    """The captures, the session, and what was measured so far."""

    def __init__(self, directory: Path, master: str, repeat: int) -> None:
        self.directory = directory
        self.master = master
        self.repeat = repeat
        self.made = json.loads((directory / "captures.json").read_text())
        self.measured = cache(self._measured)
        self.by_tshark = cache(self._by_tshark)
        self.by_inspect = cache(self._by_inspect)

    @cached_property
    def spark(self) -> object:
        spark = start_spark(self.master, small=max(made["bytes"] for made in self.made.values()) < SMALL_BYTES)
        self._ingest(spark, SMALL)
        return spark

    def path(self, name: str) -> Path:
        return self.directory / FILES[name]

    def gigabytes(self, name: str) -> float:
        return float(self.made[name]["bytes"]) / 1e9

    def _measured(self, name: str) -> Cost:
        """The fastest of several warm ingests."""
        return min(self._ingest(self.spark, self.path(name)) for _ in range(self.repeat))

    def _ingest(self, spark: object, path: Path) -> Cost:
        with tempfile.TemporaryDirectory(prefix="bench-lake-") as lake:
            cpu, start = tree_seconds(), time.perf_counter()
            ingest(spark, [str(path)], lake)  # type: ignore[arg-type]
            wall, cpu = time.perf_counter() - start, tree_seconds() - cpu
            return Cost(wall, cpu, messages_in(lake))

    def _by_tshark(self, name: str) -> Cost:
        path = self.path(name)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        some = files[:50]
        wall, cpu, messages = map(sum, zip(*(tshark(file) for file in some)))
        return Cost(wall * len(files) / len(some), cpu * len(files) / len(some), messages * len(files) // len(some))

    def _by_inspect(self, name: str) -> Cost:
        start = time.perf_counter()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([*OURS, "inspect", str(self.path(name))], stdout=out)
            _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"inspect failed: {status}")
        return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, 0)

    def fresh(self, path: Path) -> Cost:
        """`rtmp-spark ingest` into a new lake, from the shell."""
        with tempfile.TemporaryDirectory(prefix="bench-lake-") as directory:
            lake = f"{directory}/lake"
            start = time.perf_counter()
            command = [*OURS, "ingest", str(path), "--lake", lake, "--quiet", "--master", self.master]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            memory = DriverMemory(process.pid)
            if process.wait():
                raise SystemExit(f"The ingest of {path} failed.")
            wall = time.perf_counter() - start
            return Cost(wall, 0.0, messages_in(lake), memory.most)


def tshark(path: Path) -> tuple[float, float, int]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    listed = subprocess.run([*TSHARK, str(path)], capture_output=True, text=True).stdout
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, sum(line.count(",") + 1 for line in listed.splitlines() if line)


def messages_in(lake: str) -> int:
    return open_lake(lake).messages.count_rows()


def inspect_ratio(bench: Bench) -> str:
    ours, theirs = bench.measured("relay"), bench.by_inspect("relay")
    return f"{ours.cpu / theirs.cpu:.1f} x ({ours.cpu:.1f} / {theirs.cpu:.1f} s CPU, {bench.gigabytes('relay'):.2f} GB)"


def warm(name: str) -> Callable[[Bench], str]:
    def measure(bench: Bench) -> str:
        ours, theirs = bench.measured(name), bench.by_tshark(name)
        expected = bench.made[name]["client_messages"]
        size = f"{bench.gigabytes(name):.2f} GB, {expected} messages from clients"
        return f"{theirs.wall / ours.wall:.1f} x ({size}; ours {ours}; tshark {theirs})"

    return measure


def fresh(bench: Bench) -> str:
    ours, theirs = bench.fresh(bench.path("relay")), bench.by_tshark("relay")
    return f"{theirs.wall / ours.wall:.1f} x (ours {ours.wall:.1f} s, {ours.messages} messages; tshark {theirs})"


def flat(bench: Bench) -> str:
    path = str(bench.path("mixed1000"))
    few, many, forced = (buckets.measure(path, *plan) for plan in ((16, *COPIED), (256, *COPIED), (256, *COPIED, 1)))
    each = (forced.total - few.total) * bench.gigabytes("mixed1000") / max(forced.buckets - few.buckets, 1)
    return (
        f"{few.total:.1f} -> {many.total:.1f} CPU s/GB, {many.total / few.total:.2f} x; "
        f"read {many.read[0]:.2f} + {many.read[1]:.2f} x; {few.buckets} -> {many.buckets} buckets; "
        f"{many.messages} messages; with a bucket for each core {forced.total:.1f} CPU s/GB "
        f"in {forced.buckets} buckets, {each * 1000:.0f} ms for each more"
    )


def small(bench: Bench) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-small-") as name:
        costs = []
        for path in small_captures(Path(name), SMALL_INGESTS):
            before = tree_seconds()
            ingest(bench.spark, [str(path)], f"{name}/lake")  # type: ignore[arg-type]
            costs.append(tree_seconds() - before)
        return f"5th {costs[4]:.2f} s CPU, {len(costs)}th {costs[-1]:.2f} s; {messages_in(f'{name}/lake')} messages"


def first(bench: Bench) -> str:
    """The first megabyte of c4096, cut after a whole record."""
    with tempfile.TemporaryDirectory(prefix="bench-first-") as name:
        with bench.path("c4096").open("rb") as file:
            data = file.read(1_000_000)
        at = end = 24
        while end <= len(data):
            at, end = end, end + 16 + int.from_bytes(data[end + 8 : end + 12], "little")
        path = Path(name) / "first.pcap"
        path.write_bytes(data[:at])
        found = bench.fresh(path)
    return f"{found.wall:.1f} s, {found.messages} messages"


def files(bench: Bench) -> str:
    count, ours = bench.made["files10k"]["connections"], bench.measured("files10k")
    memory = bench.fresh(bench.path("files10k")).driver_mb
    return f"{ours.cpu * 1000 / count:.1f} ms CPU a file ({count} files, {ours}); driver {memory} MB"


def names(bench: Bench) -> str:
    ours, theirs = bench.measured("names"), bench.by_tshark("names")
    return f"{ours.cpu / theirs.cpu:.1f} x tshark's CPU (ours {ours}; tshark {theirs})"


def players(bench: Bench) -> str:
    return f"{bench.made['players']['connections']} connections: {bench.measured('players')}"


def driver_memory(bench: Bench) -> str:
    found = [(count, driver.peak_mb(driver.rounds_of_splits, count)) for count in SPLITS]
    return ", ".join(f"{count:,} splits {most} MB" for count, most in found)


def formats(bench: Bench) -> str:
    buckets.measure(str(SMALL), 2, False, 64 << 20)  # loads what is loaded later
    plain, *others = (
        buckets.measure(str(bench.path(name)), 2, False, 64 << 20) for name in ("c4096", "c4096_pcapng", "c4096_gz")
    )
    size = bench.gigabytes("c4096")
    cpu = [
        one.total * bench.gigabytes(n) / (plain.total * size) for one, n in zip(others, ("c4096_pcapng", "c4096_gz"))
    ]
    busy = bench.measured("c4096_gz")
    return (
        f"{cpu[0]:.2f} / {cpu[1]:.2f} x ({plain.messages} / {others[0].messages} / {others[1].messages} messages); "
        f"{busy.cpu / busy.wall:.1f} cores busy during the ingest of the gzip file"
    )


def huge(bench: Bench) -> str:
    one, fifteen = (bench.gigabytes(name) / bench.measured(name).wall for name in ("huge", "c4096"))
    return f"{one / fifteen:.2f} ({one * 1000:.0f} / {fifteen * 1000:.0f} MB/s)"


class Goal(NamedTuple):
    name: str
    captures: tuple[str, ...]
    title: str
    wanted: str
    measure: Callable[[Bench], str]


GOALS = (
    Goal("inspect", ("relay",), "CPU of a warm ingest / CPU of inspect, with players", "<= 2", inspect_ratio),
    Goal("warm", ("relay",), "wall of tshark / wall of a warm ingest, 2 GB with players", ">= 4", warm("relay")),
    Goal("warm8", ("relay8",), "the same, 8 GB", ">= 6", warm("relay8")),
    Goal("fresh", ("relay",), "wall of tshark / wall of a fresh process, 2 GB", ">= 3", fresh),
    Goal("buckets", ("mixed1000",), "1,000 mixed connections, planned for 16 -> 256 cores",
         "<= 1.5 x, read <= 1.3 x", flat),
    Goal("small", (), "a small ingest that resumes three connections, warm", "<= 1.5 s CPU, no growth", small),
    Goal("first", ("c4096",), "first ingest of 1 MB from the shell, fresh lake", "<= 8 s", first),
    Goal("files", ("files10k",), "10,000 files", "<= 3 ms a file; driver < 300 MB", files),
    Goal("names", ("names",), "6,000 publishers and 4,000 plays of three names", "lands; <= 3 x", names),
    Goal("players", ("players",), "1 publisher and 5,000 players", "lands", players),
    Goal("driver", (), "driver memory, 256 groups in each split", "flat after one round", driver_memory),
    Goal("formats", ("c4096", "c4096_pcapng", "c4096_gz"), "worker CPU of pcapng / gzip against pcap",
         "<= 1.2 / 1.6 x, all cores busy", formats),
    Goal("huge", ("huge", "c4096"), "throughput of one connection / of fifteen", ">= 0.9", huge),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("goals", nargs="*", help=f"which of {', '.join(goal.name for goal in GOALS)} (default: all)")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    args = parser.parse_args()
    unknown = set(args.goals) - {goal.name for goal in GOALS}
    if unknown:
        parser.error(f"unknown goal: {', '.join(sorted(unknown))}")
    bench = Bench(args.directory, args.master, args.repeat)
    if shutil.which("tshark") is None:
        raise SystemExit("tshark is missing. Install it: the goals are ratios to it.")
    for goal in GOALS:
        if args.goals and goal.name not in args.goals:
            continue
        missing = [name for name in goal.captures if name not in bench.made]
        found = f"skipped: make {', '.join(missing)} first" if missing else goal.measure(bench)
        print(f"{goal.name}: {goal.title}\n    wanted {goal.wanted}\n    found {found}", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
