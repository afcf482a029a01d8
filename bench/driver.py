"""What the driver holds and how long it takes between the passes, without captures; prints, asserts nothing.

    python bench/driver.py [--files 1000000] [--flows 10000000] [--connections 100000]

Files and index rows are made up: small plain pcaps of one split each, and connections of two packets, of which a task's
500 files share 256 index rows. New connections are one of the samples, many times. Each step runs in a process of its
own, so that what it prints is its own peak.
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

from rtmp_spark.capture.recording import Recording
from rtmp_spark.schema import arrow_schema
from rtmp_spark.spark import plan
from rtmp_spark.spark.apart import apart, of_parts
from rtmp_spark.spark.decode import Options
from rtmp_spark.spark.neighbours import Fresh, Neighbours
from rtmp_spark.spark.passes import bound, first_seen, tunnel_keys, weights
from rtmp_spark.spark.paths import CaptureFile
from rtmp_spark.spark.scan import FLOWS, GROUPS, About, dump
from rtmp_spark.spark.together import judged_together

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
FLOWS_IN_A_ROW = 1000  # connections of one index row


def planned(files: int) -> str:
    """List, cut, pack, judge, number: what happens to each file on the driver."""
    plan.is_plain_pcap = lambda path: True  # type: ignore[assignment]
    known = [
        CaptureFile(f"/captures/{n % 1000:03}/{n}.pcap", 100_000, 1_700_000_000_000_000_000 + n) for n in range(files)
    ]
    splits = plan.cut(known, 64 << 20)
    tasks = plan.pack(splits)
    abouts = {
        s.split_id: About(
            s.split_id, began=24, ended=s.end, packets=100, link_types=[1], leaves=[f"{s.split_id:064x}"],
            ts_first_ns=s.split_id, ts_last_ns=s.split_id + 1, ts_head_ns=s.split_id, ts_tail_ns=s.split_id + 1,
        )
        for s in splits
    }  # fmt: skip
    scanned, again = plan.judge(known, splits, abouts)
    plan.number(scanned, (), 0)
    plans = plan.split_plans(scanned)
    return f"{len(splits)} splits in {len(tasks)} tasks, {len(again)} scanned again, {len(plans)} planned"


def assigned(flows: int) -> str:
    """Weights, first packets, tunnels, buckets: what happens to the index."""
    rows = flows // FLOWS_IN_A_ROW
    dice = np.random.default_rng(1)
    blobs = []
    for _ in range(rows):
        keys = dice.integers(0, 256, (FLOWS_IN_A_ROW, 36), np.uint8).tobytes()
        counts = pa.array(np.full(FLOWS_IN_A_ROW, 2))
        table = [
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), FLOWS_IN_A_ROW, [None, pa.py_buffer(keys)]),
            counts, counts, counts, counts, *[pa.array(np.zeros(FLOWS_IN_A_ROW, bool))] * 2,
        ]  # fmt: skip
        blobs.append(dump(pa.record_batch(table, schema=FLOWS)))
    columns = {"split_id": range(rows), "group": [n % GROUPS for n in range(rows)]}
    index = pa.table({**columns, "flows": pa.array(blobs, pa.binary())})
    begun = time.perf_counter()
    tunnels = tunnel_keys(index, with_tls=False)
    index = apart(index, {n: n // 10 for n in range(rows)})
    buckets = plan.assign(weights(index), bound(tunnels), [], of_parts(index), 64)
    weighed = time.perf_counter() - begun
    keys_seen = len(first_seen(index))
    return (
        f"index {index.nbytes / 1e6:.0f} MB; weights, tunnels and {buckets.count} buckets {weighed:.1f} s; "
        f"{keys_seen} first packets {time.perf_counter() - begun - weighed:.1f} s"
    )


def seen_together(connections: int) -> str:
    """Rows of new connections, each with a stream of its own name: what several of them show."""
    rows: dict[str, list[dict[str, Any]]] = {"connections": [], "streams": [], "findings": []}
    settings = Options(redact_key="00" * 32).settings()
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
    new_lake = SimpleNamespace(ingest_id=1, is_new=True)
    judged_together(new_lake, "", Fresh.of(made, set(), {}), Neighbours())  # type: ignore[arg-type]
    return f"rows {sum(table.nbytes for table in made.values()) / 1e6:.0f} MB"


def measured(name: str, step: Callable[[int], str], count: int) -> None:
    def run() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        begun, cpu = time.perf_counter(), time.process_time()
        told = step(count)
        wall, used = time.perf_counter() - begun, time.process_time() - cpu
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name} {count:,}: {wall:.1f} s wall, {used:.1f} s CPU, driver {most:.0f} MB ({before:.0f} before); {told}"
        )

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--flows", type=int, default=10_000_000)
    parser.add_argument("--connections", type=int, default=100_000)
    args = parser.parse_args()
    measured("plan, files", planned, args.files)
    measured("assign, connections in the index", assigned, args.flows)
    measured("see together, new connections", seen_together, args.connections)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
