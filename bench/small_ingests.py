"""Measures small incremental ingests that each resume three open connections. It asserts nothing.

    python bench/small_ingests.py [--ingests 30] [--in-process]

Three connections are cut into N captures, which are ingested one by one in one session. The CPU time is that of the
whole process tree: this process, the JVM and the Python workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kit.capture_rewriting import build, pcap, read
from kit.in_process_ingest import ingest_in_process

from rtmp_spark.ingest.ingest_summary import Summary

SOURCE = Path(__file__).parent.parent / "sample_pcaps" / "big_endian_ffmpeg_publish.pcap"
SERVER_PORTS = 2000


def captures(directory: Path, count: int) -> list[Path]:
    """Three connections that differ in their client's port, cut into `count` files."""
    source = read(SOURCE)
    packets = [
        replace(packet, sport=_other(packet.sport, n), dport=_other(packet.dport, n))
        for packet in source
        if packet.ends == source[0].ends
        for n in range(3)
    ]
    frames = build(packets)
    size = -(-len(frames) // count)
    paths = []
    for number in range(0, len(frames), size):
        paths.append(directory / f"{number:06d}.pcap")
        paths[-1].write_bytes(pcap(frames[number : number + size]))
    return paths


def _other(port: int, n: int) -> int:
    return port if port < SERVER_PORTS else port - n


def tree_seconds() -> float:
    """CPU seconds of this process and its descendants, including those that have ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting += parents.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ingests", type=int, default=30)
    parser.add_argument("--in-process", action="store_true", help="without Spark")
    args = parser.parse_args()
    run: Callable[[Path, Path], Summary]
    if args.in_process:
        run = lambda lake, path: ingest_in_process(lake, [path])  # noqa: E731
    else:
        from rtmp_spark.spark import ingest, start_spark

        spark = start_spark("local[2]")
        run = lambda lake, path: ingest(spark, [str(path)], str(lake))  # noqa: E731
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        costs = []
        for number, path in enumerate(captures(directory, args.ingests), start=1):
            before, wall = tree_seconds(), time.perf_counter()
            summary = run(directory / "lake", path)
            costs.append(tree_seconds() - before)
            took = time.perf_counter() - wall
            print(f"ingest {number:4} resumed {summary.resumed} {costs[-1]:6.2f} s CPU {took:6.2f} s wall", flush=True)
        tenth = max(len(costs) // 10, 1)
        print(f"median of 3 to {tenth + 3}: {statistics.median(costs[2 : tenth + 3]):.2f} s CPU, ", end="")
        print(f"of the last {tenth + 1}: {statistics.median(costs[-tenth - 1 :]):.2f} s CPU")


if __name__ == "__main__":
    main()
