"""Memory and time of the driver between the stages of an ingest, with synthetic input; asserts nothing.

    python bench/driver.py [--files 1000000] [--flows 10000000] [--connections 100000] [--splits 10000]

Files and index rows are synthetic: small plain pcaps of one split each, and connections of two packets; the 500 files
of a task share 256 index rows. New connections repeat one of the samples. Each step runs in its own process and prints
the peak memory of that process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.capture.files.file_facts import OK, FileFacts
from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.captures.probed_files import ProbedFile
from rtmp_spark.ingest.decode.decode_job import BUCKET_INPUT
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.pipeline import bucket_input
from rtmp_spark.ingest.publish.across_connections import judge_across_connections
from rtmp_spark.ingest.publish.neighbours import Neighbours, NewRows
from rtmp_spark.ingest.rounds import cut_into_rounds
from rtmp_spark.ingest.scan import plan
from rtmp_spark.ingest.scan.flow_index import GROUPS
from rtmp_spark.ingest.scan.flow_tables import first_seen, keys_of_one_server, tunnel_keys, weights
from rtmp_spark.ingest.scan.partition import groups_by_part, parts_of_files, split_by_part
from rtmp_spark.ingest.scan.split_scan import SplitScan
from rtmp_spark.schema import arrow_schema

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
SECTION_TYPES = pa.schema([BUCKET_INPUT.field(name) for name in ("group", "split_id", "run", "position", "length")])
FLOWS_OF_A_SPLIT = 1000  # connections in a split


def planned(files: int) -> str:
    """Run what the driver does for each file: list, cut, pack, check, number."""
    known = [
        CaptureFile(f"/captures/{n % 1000:03}/{n}.pcap", 100_000, 1_700_000_000_000_000_000 + n) for n in range(files)
    ]
    probed = [ProbedFile(file, "pcap", False, n) for n, file in enumerate(known)]
    rounds = cut_into_rounds(probed, 128 << 30, 64 << 20)
    splits = plan.cut_into_splits(probed, 64 << 20)
    tasks = plan.pack_into_tasks(splits, 64)
    abouts = {
        s.split_id: SplitScan(
            s.split_id, began=24, ended=s.end, leaves=[f"{s.split_id:064x}"],
            facts=FileFacts(
                packets=100, link_types=[1], ts_first_ns=s.split_id, ts_last_ns=s.split_id + 1,
                ts_head_ns=s.split_id, ts_tail_ns=s.split_id + 1, status=OK,
            ),
        )
        for s in splits
    }  # fmt: skip
    scanned, again = plan.combine_scans(known, splits, abouts)
    plan.number_captures(scanned, (), 0)
    plans = plan.split_plans(scanned)
    return f"{len(rounds)} rounds, {len(splits)} splits, {len(tasks)} tasks, {len(again)} again, {len(plans)} planned"


def assigned(flows: int) -> str:
    """Run what the driver does with the index: weights, first packets, tunnels, buckets."""
    dice = np.random.default_rng(1)
    keys = dice.integers(0, 256, (flows, 36), np.uint8).tobytes()
    counts = pa.array(np.full(flows, 2))
    columns = {
        "group": pa.array((np.arange(flows) % GROUPS).astype(np.int32)),
        "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), flows, [None, pa.py_buffer(keys)]),
        **dict.fromkeys(("packets", "bytes", "ts_first_ns", "ts_last_ns"), counts),
        **{name: pa.array(np.zeros(flows, bool)) for name in ("tunnel", "tls")},
        "split_id": pa.array(np.arange(flows) // FLOWS_OF_A_SPLIT),
    }
    table = pa.table(columns)
    file_of_split = {n: n // 10 for n in range(flows // FLOWS_OF_A_SPLIT + 1)}
    start = time.perf_counter()
    servers = keys_of_one_server(tunnel_keys(table, with_tls=False))
    table = split_by_part(table, file_of_split, parts_of_files(table, file_of_split, servers))
    cost = weights(table)
    buckets = plan.assign_buckets(cost, [], groups_by_part(cost), 64)
    weighed = time.perf_counter() - start
    keys_seen = len(first_seen(table))
    return (
        f"table {table.nbytes / 1e6:.0f} MB; weights, tunnels and {buckets.count} buckets {weighed:.1f} s; "
        f"{keys_seen} first packets {time.perf_counter() - start - weighed:.1f} s"
    )


def rules_across_connections(connections: int) -> str:
    """Apply the rules across connections to new connections with different stream names."""
    rows: dict[str, list[dict[str, Any]]] = {"connections": [], "streams": [], "findings": []}
    settings = IngestOptions(redact_key="00" * 32).settings()
    for table, batch in Recording([SAMPLE], settings, tuple(rows)).batches():
        rows[table] += batch.to_pylist()
    made = {}
    for name, known in rows.items():
        table = pa.Table.from_pylist(known, arrow_schema(name)).take(np.zeros(connections, int))
        for column, values in (("uid", [f"C{n:020d}" for n in range(connections)]), ("name", None)):
            if column in table.column_names:
                values = values or [f"stream {n}" for n in range(connections)]
                table = table.set_column(table.column_names.index(column), column, pa.array(values))
        made[name] = table
    new_lake = SimpleNamespace(is_new=True)
    judge_across_connections(new_lake, "", NewRows.of(made, set(), {}), Neighbours(), (), 1)  # type: ignore[arg-type]
    return f"rows {sum(table.nbytes for table in made.values()) / 1e6:.0f} MB"


def rounds_of_splits(count: int) -> str:
    """Run what the driver does for so many splits of 64 MB with 256 groups each, round by round."""
    probed = [
        ProbedFile(CaptureFile(f"/captures/{n}.pcap", 64 << 20, 1_700_000_000_000_000_000), "pcap", False, n)
        for n in range(count)
    ]
    rounds = cut_into_rounds(probed, 1 << 50, 64 << 20)
    for part in rounds:
        sections = sections_of_a_round(len(part.files))
    return f"{len(rounds)} rounds, {sections} sections in the last one"


def sections_of_a_round(files: int) -> int:
    """Assign the connections of so many files of one split; the number of sections that the buckets decode."""
    size = files * GROUPS
    group = pa.array(np.tile(np.arange(GROUPS, dtype=np.int32), files))
    split_id = pa.array(np.repeat(np.arange(files), GROUPS))
    keys = np.zeros((size, 36), np.uint8)
    keys[:, :4] = np.tile(np.arange(GROUPS, dtype=np.uint32), files).view(np.uint8).reshape(size, 4)
    flows = pa.table(
        {
            "group": group,
            "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), size, [None, pa.py_buffer(keys)]),
            **{name: np.full(size, 250_000) for name in ("packets", "bytes", "ts_first_ns", "ts_last_ns")},
            **{name: pa.array(np.zeros(size, bool)) for name in ("tunnel", "tls")},
            "split_id": split_id,
        }
    )
    place = {name: np.full(size, 250_000) for name in ("position", "length")}
    sections = pa.table({"group": group, "split_id": split_id, "run": np.zeros(size, np.int32), **place})
    sections = sections.cast(SECTION_TYPES)
    file_of_split = {n: n for n in range(files)}
    parts = parts_of_files(flows, file_of_split)
    flows, sections = (split_by_part(table, file_of_split, parts) for table in (flows, sections))
    cost = weights(flows)
    buckets = plan.assign_buckets(cost, [], groups_by_part(cost), 64)
    found: int = bucket_input(sections, buckets, {}).num_rows
    return found


def peak_mb(step: Callable[[int], str], count: int) -> int:
    """The peak memory of a process that runs this step."""
    mine, its = multiprocessing.Pipe()

    def run() -> None:
        step(count)
        its.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    found: int = mine.recv()
    return found


def measured(name: str, step: Callable[[int], str], count: int) -> None:
    def run() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start, cpu = time.perf_counter(), time.process_time()
        summary = step(count)
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name} {count:,}: {wall:.1f} s wall, {used:.1f} s CPU, driver {most:.0f} MB ({before:.0f} before); "
            f"{summary}"
        )

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--flows", type=int, default=10_000_000)
    parser.add_argument("--connections", type=int, default=100_000)
    parser.add_argument("--splits", type=int, default=10_000)
    args = parser.parse_args()
    measured("plan, files", planned, args.files)
    measured("assign, connections in the index", assigned, args.flows)
    measured("rounds, splits with 256 groups each", rounds_of_splits, args.splits)
    measured("rules across new connections", rules_across_connections, args.connections)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
