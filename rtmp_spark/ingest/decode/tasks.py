"""The work of executors: scanning a split, decoding a bucket into Parquet files of the lake."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import PurePath
from typing import Any, NamedTuple

import pyarrow as pa

from rtmp_spark.analysis.arrow_columns import arrow_rows
from rtmp_spark.capture.memory_tuning import keep_freed_memory, rare_collections
from rtmp_spark.conversation.decoding.helper_process import HelperPool
from rtmp_spark.ingest.decode.bucket_decoder import BucketDecoder, MadeRows
from rtmp_spark.ingest.decode.decode_job import PLANS, SCANNED, BucketResult, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.decode_plan import Piece, parse_plans
from rtmp_spark.ingest.input_fault import blamed_on_input
from rtmp_spark.ingest.scan.flow_index import FLOWS
from rtmp_spark.ingest.scan.split_scan import Split, SplitScan, SplitScanner
from rtmp_spark.ingest.scan.staged_packets import SECTIONS, PacketFile, dump, load
from rtmp_spark.ingest.worker_progress import WorkCounter
from rtmp_spark.lake.failpoint import failpoint
from rtmp_spark.lake.parquet_files import OPEN, PART, RESUMED, BucketFiles, FileTarget

MOST_HELPERS = 2  # helper processes of a heavy bucket: one for each direction of its largest connection
JUDGED_LATER = ("streams", "findings")  # rules across connections may change these rows


def scan_splits(job: ScanJob, splits: Sequence[Split], driver: int) -> pa.RecordBatch:
    """One row (schema SCANNED) for all splits: thousands of small files must not cost the driver a table each."""
    keep_freed_memory()
    abouts: list[SplitScan] = []
    flows: list[tuple[Any, ...]] = []
    sections: list[tuple[int, ...]] = []
    with closing(WorkCounter(job.watched)) as counter, closing(PacketFile(job.staging)) as staged:
        for split in splits:
            failpoint(f"scan {PurePath(split.path).name}")
            failpoint("scan", driver)
            scanner = SplitScanner(split, staged, sort=job.sort)
            with blamed_on_input():
                scanner.run()
            abouts.append(scanner.found)
            flows += scanner.flows.rows(split.split_id)
            sections += scanner.packets.sections(split.split_id)
            end = split.end or split.size_bytes
            counter.add(files=int(end == split.size_bytes), bytes=end - split.start)
    found = (dump(arrow_rows(rows, schema)) for rows, schema in ((flows, FLOWS), (sections, SECTIONS)))
    return arrow_rows([(json.dumps(abouts, default=vars), *found)], SCANNED)


class Scans(NamedTuple):
    """What a scan found."""

    splits: dict[int, SplitScan]
    flows: pa.Table  # schema FLOWS
    sections: pa.Table  # schema SECTIONS


def collect_scans(tables: Iterable[pa.Table]) -> Scans:
    """From tables with schema SCANNED."""
    splits: dict[int, SplitScan] = {}
    flows: list[pa.RecordBatch] = []
    sections: list[pa.RecordBatch] = []
    for table in tables:
        for about, its_flows, its_sections in zip(*(table[name].to_pylist() for name in SCANNED.names)):
            for fields in json.loads(about):
                splits[fields["split_id"]] = SplitScan.from_dict(fields)
            flows.append(load(its_flows, FLOWS))
            sections.append(load(its_sections, SECTIONS))
    return Scans(splits, pa.Table.from_batches(flows, FLOWS), pa.Table.from_batches(sections, SECTIONS))


def spare_cores(heavy: int) -> int:
    """How many helper processes a heavy bucket may start, if so many buckets are heavy."""
    return max(min((os.cpu_count() or 1) // max(heavy, 1) - 1, MOST_HELPERS), 0)


def _blamed_on_input(made: Iterator[MadeRows]) -> Iterator[MadeRows]:
    """The batches of a decoder, whose own errors become InputFaults; those of the consumer do not."""
    while True:
        with blamed_on_input():
            batch = next(made, None)
        if batch is None:
            return
        yield batch


def decode_bucket(job: DecodeJob, bucket: int, rows: Sequence[dict[str, Any]], driver: int) -> BucketResult:
    """Decode the rows of a bucket (schema BUCKET_INPUT) and write what they give as files."""
    failpoint("split", driver)
    written = job.staging.read(PLANS)
    if written is None:
        raise FileNotFoundError(f"the plan of this ingest is missing in {job.staging}")
    plans = parse_plans(written)
    pieces: dict[tuple[int, int], Piece] = {}
    for row in rows:
        if row["split_id"] is not None:
            place = row["split_id"], row["run"]
            piece = pieces.setdefault(place, Piece(plans[row["split_id"]], row["run"]))
            piece.sections.append((row["position"], row["length"]))
    for path in sorted({piece.split.file.path for piece in pieces.values()}):
        failpoint(f"decode {PurePath(path).name}")
    states = [row["state"] for row in rows if row["state"] is not None]
    result = BucketResult()
    files = BucketFiles(FileTarget(job.location, job.ingest_id), bucket)
    staged = BucketFiles(FileTarget(job.staging, job.ingest_id), bucket)
    keep_freed_memory()
    with ExitStack() as stack:
        stack.enter_context(rare_collections())
        counter = stack.enter_context(closing(WorkCounter(job.watched)))
        helpers: HelperPool | None = None  # with a pool, even an empty one, connections wait for each other's helpers
        if bucket in job.heavy:
            helpers = stack.enter_context(closing(HelperPool(spare_cores(len(job.heavy)))))
        decoder = BucketDecoder(job, list(pieces.values()), states, helpers)
        for made in _blamed_on_input(decoder.batches(counter)):
            target = staged if made.table in JUDGED_LATER else files
            target.add(made.table, made.batch, OPEN if made.provisional else RESUMED if made.resumed else PART)
            result.rows[made.table] = result.rows.get(made.table, 0) + made.batch.num_rows
    result.files = files.finish()
    result.staged = staged.finish()
    account = decoder.account
    result.open_uids, result.connections, result.other_flows = (
        account.open_uids,
        account.connections,
        account.other_flows,
    )
    return result
