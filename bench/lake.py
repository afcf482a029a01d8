"""Measures a lake without Spark: creation, an ingest after N others, opening, writing rows. It asserts nothing.

    python bench/lake.py [--ingests 500] [--rows 250000] [--no-compaction]

Each ingest writes a small file into every table, resumes three connections (replaces their rows) and adds three.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kit.lake_rows import made_rows

from rtmp_spark.lake.compaction import compact, needs_compaction
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.parquet_files import OPEN, RESUMED, BucketFiles, FileTarget, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.tables import create_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.schema import MESSAGE_TABLES, TABLES

CONNECTION_TABLES = tuple(name for name in TABLES if name not in (*MESSAGE_TABLES, "captures"))


@contextmanager
def timed(what: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(f"{what:45} {time.perf_counter() - wall:8.3f} s wall {time.process_time() - cpu:8.3f} s CPU", flush=True)


def ingest(location: Location, number: int) -> None:
    resumed = [f"C{number - 1:06d}{n}" for n in range(3)] if number else []
    started = [f"C{number:06d}{n}" for n in range(3)]
    with open_writer(location) as writer:
        files = BucketFiles(writer.target, 0)
        files.add("captures", made_rows("captures", path=f"{number}.pcap"))
        for uid in (*resumed, *started):
            for name in MESSAGE_TABLES:
                files.add(name, made_rows(name, uid, 10, 10 * (uid in resumed)), RESUMED if uid in resumed else "part")
        for uid in started:
            for name in CONNECTION_TABLES:
                files.add(name, made_rows(name, uid), OPEN)
        writer.resume(resumed)
        written = files.finish()
        for name in CONNECTION_TABLES if resumed else ():
            rows = pa.concat_tables([made_rows(name, uid) for uid in resumed])
            written.append(write_rows(writer.target, name, rows))
        writer.publish(written)


def ingests(location: Location, count: int, compaction: bool) -> None:
    shown = {1, 5, 10, 50, 100, 200, 500, 1000, 2000, count}
    for number in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        ingest(location, number)
        merged = ""
        if compaction and number % 10 == 9 and needs_compaction(location):
            compact(location)
            merged = " (with compaction)"
        if number + 1 in shown or merged:
            took = f"{time.perf_counter() - wall:8.3f} s wall {time.process_time() - cpu:8.3f} s CPU"
            print(f"{f'ingest {number + 1}{merged}':45} {took}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ingests", type=int, default=500)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--no-compaction", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        location = locate(Path(directory) / "lake")
        with timed("create a lake"):
            create_lake(location)
        ingests(location, args.ingests, not args.no_compaction)
        with timed("open the ledger"):
            lake = open_lake(location)
        with timed("open every table"):
            lake.tables()
        with timed("read one connection"):
            lake.messages.to_table(filter=pc.field("uid") == "C0000010")
        for name in ("messages", "media_tags"):
            rows = pa.concat_tables([made_rows(name, f"C{n}", 1000) for n in range(args.rows // 1000)])
            with timed(f"write {rows.num_rows} rows of {name}"):
                write_rows(FileTarget(location, 1), name, rows)


if __name__ == "__main__":
    main()
