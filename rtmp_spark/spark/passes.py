"""The two passes as Spark jobs: splits in, descriptions and index out; buckets in, staged rows out.

Only descriptions, the packet index and finished rows cross the JVM, never media bytes. A worker that dies takes
its whole job with it, so a failed job is run again in halves until the culprit stands alone; it is left out and
named, and the rest lands.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.capture.beside import Helpers
from rtmp_spark.capture.columns import arrow_batch, arrow_column
from rtmp_spark.capture.memory import keep_freed_memory, rare_collections
from rtmp_spark.schema import arrow_schema

from .decode import Options, Piece, SplitPlan, account_of, decode, rows_of
from .failpoint import failpoint
from .plan import Buckets
from .pulse import Pulse
from .scan import About, Split, ends_of_key, flows_of, group_of_key, scan
from .tables import spark_schema

SCANNED = pa.schema(
    [
        pa.field("split_id", pa.int64()),
        pa.field("group", pa.int32()),  # -1: the row about the split
        pa.field("about", pa.string()),
        pa.field("flows", pa.binary()),
        pa.field("packets", pa.binary()),
    ]
)
_TASKS = pa.schema([pa.field("task", pa.int32()), pa.field("splits", pa.string())])
_PIECES = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("split_id", pa.int64()),
        pa.field("group", pa.int32()),
        pa.field("packets", pa.binary()),
    ]
)

Batches = Iterator[pa.RecordBatch]
MOST_HELPERS = 2  # of a bucket for which all wait: one for each direction
CONNECTION_WEIGHT = 512 << 10  # in bytes of payload, so that no bucket holds more than a few thousand connections
_NOT_THE_WORKERS = ("ModuleNotFoundError", "ImportError", "No space left", "MemoryError: JVM", "KeyboardInterrupt")


def run_scan(
    spark: SparkSession, tasks: Sequence[Sequence[Split]], driver: int, watched: str = ""
) -> tuple[dict[int, About], pa.Table]:
    """What each split tells, and the index of all. A split whose scan kills its worker is told as failed."""
    try:
        found = _scan_job(spark, tasks, driver, watched)
    except Exception as error:
        if not is_workers_fault(error):
            raise
        splits = [split for task in tasks for split in task]
        if len(splits) == 1:
            crashed = About(splits[0].split_id, status="failed", error_code="CRASHED")
            crashed.error_hint = f"reading this file kills the worker ({reason(error)}); please report it"
            return {crashed.split_id: crashed}, SCANNED.empty_table()
        half = len(splits) // 2
        left, right = (run_scan(spark, [part], driver, watched) for part in (splits[:half], splits[half:]))
        return left[0] | right[0], pa.concat_tables([left[1], right[1]])
    abouts = [About(**json.loads(text)) for text in found["about"].drop_null().to_pylist()]
    index = found.filter(pc.greater_equal(found["group"], 0))
    return {about.split_id: about for about in abouts}, index


def is_workers_fault(error: BaseException) -> bool:
    """A Python worker died or raised over what it was given; not: no package there, no room, no cluster, Ctrl-C."""
    text = str(error)
    if any(word in text for word in _NOT_THE_WORKERS):
        return False
    return any(word in text for word in ("Python worker exited", "PYTHON_EXCEPTION", "Traceback (most recent call"))


def reason(error: BaseException) -> str:
    """The last line of a Python traceback inside, else Java's last cause, else the first of the message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("Python worker exited" in line for line in lines):
        return "the Python worker died"
    raised = [x for x in lines if re.match(r"[A-Za-z_.]*(Error|Exception|Interrupt)\b", x)]
    causes = [found[1] for x in lines if (found := re.match(r"(?:Caused by)?: (?:[\w.$]+: )?(\S.*)", x))]
    if not raised and causes and lines[0].startswith("An error occurred while calling"):
        raised = causes
    return ((raised or lines or [type(error).__name__])[-1 if raised else 0])[:300].rstrip(".")


def _scan_job(spark: SparkSession, tasks: Sequence[Sequence[Split]], driver: int, watched: str) -> pa.Table:
    rows = [{"task": n, "splits": json.dumps([asdict(s) for s in task])} for n, task in enumerate(tasks)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, _TASKS))
    spread = frame.repartitionById(len(rows), "task") if len(rows) > 1 else frame.coalesce(1)
    return spread.mapInArrow(_scanner(driver, watched), spark_schema(SCANNED)).toArrow().cast(SCANNED)


def _scanner(driver: int, watched: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        keep_freed_memory()
        with closing(Pulse(watched)) as pulse:
            for batch in batches:
                for text in batch.column(1).to_pylist():
                    for fields in json.loads(text):
                        split = Split(**fields)
                        yield from _scanned(split, driver)
                        end = split.end or split.size_bytes
                        pulse.add(files=int(end == split.size_bytes), bytes=end - split.start)

    return run


def _scanned(split: Split, driver: int) -> Batches:
    failpoint(f"scan {PurePath(split.path).name}")
    failpoint("scan", driver)
    about, index = scan(split)
    rows: list[tuple[Any, ...]] = [(split.split_id, -1, json.dumps(about.as_dict()), None, None)]
    rows += [(split.split_id, group, None, flows, packets) for group, flows, packets in index.rows()]
    yield arrow_batch(zip(*rows), SCANNED)


def weights(index: pa.Table) -> dict[int, int]:
    """Payload bytes, a little for each packet and the memory that each connection takes, by group."""
    found: dict[int, int] = {}
    for group, flows in zip(index["group"].to_pylist(), index["flows"].to_pylist()):
        table = flows_of(flows)
        cost = pc.sum(table["bytes"]).as_py() + 200 * pc.sum(table["packets"]).as_py()
        cost += CONNECTION_WEIGHT * table.num_rows
        found[group] = found.get(group, 0) + cost
    return found


def payload_bytes(index: pa.Table) -> int:
    return sum(pc.sum(flows_of(flows)["bytes"]).as_py() or 0 for flows in index["flows"].to_pylist())


def first_seen(index: pa.Table) -> dict[bytes, int]:
    """The endpoints of every connection that the new captures hold, and the time of its first packet there."""
    found: dict[bytes, int] = {}
    for flows in index["flows"].to_pylist():
        table = flows_of(flows)
        for key, ts in zip(table["key"].to_pylist(), table["ts_first_ns"].to_pylist()):
            found[key] = min(ts, found.get(key, ts))
    return found


def tunnel_keys(index: pa.Table, with_tls: bool) -> set[bytes]:
    """The endpoints of connections with RTMPT, and `with_tls` of those that may have it inside TLS."""
    keys: set[bytes] = set()
    for flows in index["flows"].to_pylist():
        table = flows_of(flows)
        wanted = pc.or_(table["tunnel"], table["tls"]) if with_tls else table["tunnel"]
        keys.update(table.filter(wanted)["key"].to_pylist())
    return keys


def bound(keys: Iterable[bytes]) -> list[list[int]]:
    """Groups that must be decoded together: an RTMPT session may use several connections to its server."""
    servers: dict[bytes, set[int]] = {}
    for key in keys:
        for end in ends_of_key(key):  # the client's end is in no other
            servers.setdefault(end, set()).add(group_of_key(key))
    return [sorted(groups) for groups in servers.values() if len(groups) > 1]


def spare_cores(heavy: int) -> int:
    """For processes beside a worker, on its machine, where so many workers may want some."""
    return max(min((os.cpu_count() or 1) // heavy - 1, MOST_HELPERS), 0)


class Decoder:
    """The second pass over an index: buckets in, a DataFrame of staged parts out."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Mapping[int, SplitPlan],
        buckets: Buckets,
        options: Options,
        tables: Sequence[str],
        states: Mapping[int, Sequence[bytes]],
        newest_ns: int,
        driver: int,
        watched: str = "",
    ) -> None:
        self.spark = spark
        self.plans = dict(plans)
        self.buckets = buckets
        self.options = options
        self.tables = list(tables)
        self.states = {group: list(blobs) for group, blobs in states.items()}
        self.newest_ns = newest_ns
        self.driver = driver
        self.watched = watched
        fields = [pa.field("bucket", pa.int32()), pa.field("account", pa.string())]
        self.schema = pa.schema(fields + [pa.field(name, pa.binary()) for name in self.tables])

    def run(self, index: pa.Table, groups: frozenset[int], keep: Callable[[DataFrame], None]) -> list[tuple[int, str]]:
        """Decode these groups and keep their parts; gives the groups that kill their worker, and how."""
        try:
            keep(self.staged(index, groups))
        except Exception as error:
            if not is_workers_fault(error):
                raise
            if self.buckets.heavy:  # the process beside a worker may be to blame
                self.buckets.heavy = frozenset()
                return self.run(index, groups, keep)
            if len(groups) <= 1:
                return [(group, reason(error)) for group in groups]
            ordered = sorted(groups)
            half = len(ordered) // 2
            halves = (frozenset(ordered[:half]), frozenset(ordered[half:]))
            return [culprit for part in halves for culprit in self.run(index, part, keep)]
        return []

    def staged(self, index: pa.Table, groups: frozenset[int]) -> DataFrame:
        """Lazily: decoding happens when the parts are collected or written."""
        wanted = sorted(groups)
        bucket = pa.array([self.buckets.of_group[g] for g in index["group"].to_pylist()], pa.int32())
        table = pa.table(
            {"bucket": bucket, **{c: index[c] for c in ("split_id", "group", "packets")}}, schema=_PIECES
        ).filter(pc.is_in(index["group"], pa.array(wanted, pa.int32())))
        frame = self.spark.createDataFrame(table)
        count = self.buckets.count
        spread = frame.repartitionById(count, "bucket") if count > 1 else frame.coalesce(1)
        return spread.mapInArrow(self._task(), spark_schema(self.schema))

    def _task(self) -> Callable[[Batches], Batches]:
        plans, options, tables = self.plans, self.options, self.tables
        states, newest_ns, schema, driver = self.states, self.newest_ns, self.schema, self.driver
        watched, heavy = self.watched, self.buckets.heavy

        def run(batches: Batches) -> Batches:
            keep_freed_memory()
            rows = [row for batch in batches for row in batch.to_pylist()]
            for bucket in sorted({row["bucket"] for row in rows}):
                failpoint("split", driver)
                pieces: dict[int, Piece] = {}
                for row in rows:
                    if row["bucket"] == bucket and row["split_id"] in plans:
                        piece = pieces.setdefault(row["split_id"], Piece(plans[row["split_id"]]))
                        piece.groups.append(row["group"])
                        if row["packets"] is not None:
                            piece.indexes.append(row["packets"])
                for piece in pieces.values():
                    failpoint(f"decode {PurePath(piece.split.file.path).name}")
                groups = frozenset(group for piece in pieces.values() for group in piece.groups)
                files = {p.split.file for p in pieces.values()}
                open_flows = [state for g in sorted(groups) for state in states.get(g, ())]
                helpers = Helpers(spare_cores(len(heavy)) if bucket in heavy else 0)
                with rare_collections(), closing(helpers), closing(Pulse(watched)) as pulse:
                    what = list(pieces.values()), list(files), options, tables, open_flows, newest_ns
                    parts = decode(*what, pulse, helpers)
                    for blobs, account in parts:
                        row = (bucket, account, *map(blobs.get, tables))
                        yield arrow_batch([[value] for value in row], schema)

        return run


def unstage(table: str, ingest_id: int) -> Callable[[Batches], Batches]:
    """Staged parts of one table back into its rows, with the number of the ingest."""
    schema = arrow_schema(table)

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for blob in batch.column(0).to_pylist():
                if blob is not None:
                    yield from stamped(rows_of(blob), schema, ingest_id).to_batches()

    return run


def stamped(rows: pa.Table, schema: pa.Schema, ingest_id: int) -> pa.Table:
    place = schema.get_field_index("ingest_id")
    number = arrow_column([ingest_id] * rows.num_rows, pa.int64())
    return rows.set_column(place, schema.field("ingest_id"), number).cast(schema)


def collected(parts: pa.Table, tables: Iterable[str], ingest_id: int) -> dict[str, pa.Table]:
    """The rows of staged parts that came to the driver."""

    def unpacked(name: str) -> pa.Table | None:
        blobs = parts[name].drop_null().to_pylist()
        if not blobs:
            return None
        return stamped(pa.concat_tables([rows_of(blob) for blob in blobs]), arrow_schema(name), ingest_id)

    names = list(tables)
    with ThreadPoolExecutor() as pool:  # Spark waits meanwhile
        return {name: rows for name, rows in zip(names, pool.map(unpacked, names)) if rows is not None}


def accounts(parts: pa.Table) -> list[dict[str, Any]]:
    return [account_of(text) for text in parts["account"].drop_null().to_pylist()]
