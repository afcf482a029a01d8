"""Captures in, Delta tables out: `ingest(spark, paths, lake)`.

Plan, scan, decode, write, commit. Any split size, number of buckets, order of files and way of cutting a recording
into ingests gives the same tables. What is known already is skipped; what fails is a row with its reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rtmp_spark.capture.connection import endpoint
from rtmp_spark.capture.keylog import KeyLog
from rtmp_spark.codec.errors import UserError, ViolationCode
from rtmp_spark.schema import TABLES

from . import passes, staging
from .apart import apart, at_home, of_parts
from .decode import Options
from .deliver import deliveries
from .failpoint import failpoint
from .file_rows import file_rows
from .flow_state import SavedFlow
from .grown import beginnings, contained, failed_before
from .keys import require_cryptography
from .lake import Lake, Writer, open_writer, sweep_staging
from .late import late_parts
from .ledger import Ledger, Superseded
from .lock import whole_path
from .neighbours import Fresh, neighbours
from .paths import CaptureFile, list_captures
from .plan import Scanned, assign, cut, judge, number, pack, split_plans
from .progress import Progress, Teller
from .redo import Redo, redo, require_all
from .resumed import LATE_NS, Resumed, resumed, saved_flows
from .session import interpreted
from .stoppable import Stop, Stopped
from .summary import Summary
from .tables import WRITERS
from .together import judged_together

SPLIT_BYTES = 64 << 20
LITTLE = 2_000  # rows of one table, which is written beside small questions
FEW_ROWS = 20_000  # of all tables; more are written quicker by code made for them
DECODED = tuple(name for name in TABLES if name not in ("captures", "payloads", "deliveries"))


def ingest(
    spark: SparkSession,
    paths: Iterable[str],
    lake: str,
    *,
    sensor: str = "",
    keep_payloads: bool = False,
    keep_secrets: bool = False,
    host: str | None = None,
    port: int | None = None,
    since: int | None = None,
    until: int | None = None,
    keylog: KeyLog | None = None,
    split_bytes: int = SPLIT_BYTES,
    redo: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    wait_seconds: float = 600,
    progress: Callable[[Progress], None] | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Decode captures into the tables of a lake, which is made when it is not there.

    Whoever sets `stop` and cancels the Spark jobs gets `Stopped`.
    """
    run = _Ingest(spark, whole_path(lake), progress, stop or Stop(), max(int(split_bytes), 4096))
    options = Options(sensor=sensor, keep_payloads=keep_payloads, host=host, port=port, since=since, until=until)
    if keylog is not None and len(keylog):
        require_cryptography(spark)
        options = replace(options, keylog=keylog.dump())
    return run(list_captures(paths), options, keep_secrets, redo, verify, dry_run, wait_seconds)


class _Ingest:
    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        progress: Callable[[Progress], None] | None,
        stop: Stop,
        split_bytes: int,
    ) -> None:
        self.spark = spark
        self.path = lake
        self.teller = Teller(progress)
        self.stop = stop
        self.split_bytes = split_bytes
        self.summary = Summary(lake)
        self.cores = _cores(spark)
        self.beside = ThreadPoolExecutor(1)  # Spark's small queries and writes are mostly waiting
        self.crashed: list[tuple[int, str]] = []
        self.ledger: list[dict[str, Any]] = []  # what it knows of captures; times in microseconds
        self.known_until = 0  # the newest packet in the lake, microseconds
        self.resumed_at: dict[str, int] = {}  # from when on a connection that goes on is new, microseconds

    def __call__(
        self,
        files: list[CaptureFile],
        options: Options,
        keep_secrets: bool,
        again: bool,
        verify: bool,
        dry_run: bool,
        wait_seconds: float,
    ) -> Summary:
        self.summary.files, self.summary.bytes = len(files), sum(f.size_bytes for f in files)
        self._stop_if_asked()
        if dry_run:
            return self._dry_run(files, options.sensor, verify or again)
        writer: Writer | None = None
        try:
            with ExitStack() as stack:
                stack.enter_context(interpreted(self.spark))
                with self.summary.timed("open"):
                    writer = stack.enter_context(open_writer(self.spark, self.path, wait_seconds=wait_seconds))
                stack.enter_context(self.beside)  # ends before the lock is given back
                key = None if keep_secrets else writer.lake.redact_key.hex()
                self._run(writer, files, Options(**{**asdict(options), "redact_key": key}), again, verify)
        except Exception as error:
            if self.stop.is_set():
                raise Stopped(writer is not None and writer.committed) from None
            if not isinstance(error, (PySparkException, OSError)) and not type(error).__module__.startswith("py4j"):
                raise
            done = writer is not None and writer.committed
            landed = "all of it landed, but old rows are still there" if done else "nothing of it landed"
            sentence = f"The ingest stopped and {landed}: {passes.reason(error)}."
            raise UserError(sentence, "Mend that and run it again; the rest is done then.", 3) from error
        return self.summary

    def _dry_run(self, files: list[CaptureFile], sensor: str, verify: bool) -> Summary:
        if Ledger(self.spark, self.path).exists():
            files = self._new(Lake(self.spark, self.path), files, sensor, verify)[0]
        self.summary.ingested = [f.path for f in files]
        self.summary.splits = len(cut(files, self.split_bytes))
        return self.summary

    def _run(self, writer: Writer, files: list[CaptureFile], options: Options, again: bool, verify: bool) -> None:
        failpoint("plan")
        saved = self.beside.submit(saved_flows, writer, options.sensor)
        with self.summary.timed("plan"):
            files, known_ids = self._new(writer, files, options.sensor, verify or again)
        if not files:
            return
        begun: Future[None] | None = None
        if writer.is_new:  # whatever the scan finds will be written
            begun = self._begin(writer, options)
        with self.summary.timed("scan"):
            scanned, index = self._scan(files)
        replaces: Redo | None = None
        held = beginnings(self.ledger, scanned)
        grown = sorted({item.file.path for item in held.values()})
        try:
            if held and not again:
                self._require_all_rows(writer, options)
            if again or held:
                replaces = redo(writer, scanned, passes.first_seen(index), options.sensor, saved.result(), held)
                if replaces.more:
                    with self.summary.timed("scan"):
                        scanned, index = self._scan([*files, *replaces.more])
                    require_all(replaces, scanned, held)
                known_ids -= replaces.capture_ids
                self.summary.grown = grown
        except UserError as error:
            if again:
                raise
            replaces = None  # the others go their way, and what was there of these stays
            self.summary.late += [f"{path} has grown since it was ingested: {error}" for path in grown]
            chosen = {file.path for file in files}.difference(grown)
            scanned = [item for item in scanned if item.file.path in chosen]
        if replaces is not None:
            self.summary.joined = [file.path for file in replaces.more]
            self.summary.files += len(replaces.more)
            self.summary.bytes += sum(file.size_bytes for file in replaces.more)
        file_and_reason = ("path", "size_bytes", "modified_at", "error_hint")
        failed = {tuple(row[name] for name in file_and_reason) for row in self.ledger if row["status"] == "failed"}
        number(scanned, known_ids | contained(self.ledger, scanned), writer.state.files, failed)
        new = sorted((s for s in scanned if s.number >= 0), key=lambda s: s.number)
        self.summary.duplicates = [s.file.path for s in scanned if s.duplicate]
        again_failed = [s for s in scanned if s.number < 0 and not s.duplicate]
        self.summary.failed += [(s.file.path, s.about.error_hint or "") for s in again_failed]
        if not new:
            return
        self._write(writer, new, index, options, replaces, saved, begun or self._begin(writer, options))

    def _require_all_rows(self, writer: Writer, options: Options) -> None:
        """Rows that nobody asked to replace are not replaced by fewer."""
        chosen = [options.host, options.port, options.since, options.until]
        fewer = "only some of its rows are asked for" if chosen != [None] * 4 else ""
        if not options.keep_payloads and writer.table("payloads").limit(1).count():
            fewer = fewer or "the lake has payloads, and they are not asked for"
        if fewer:
            raise UserError(f"{fewer}, and the rest would be lost.", "Ingest it without these options, or with --redo.")

    def _begin(self, writer: Writer, options: Options) -> Future[None]:
        return self.beside.submit(writer.begin, [*_tables(options), "captures", "deliveries"])

    def _new(
        self, lake: Lake | Writer, files: list[CaptureFile], sensor: str, verify: bool
    ) -> tuple[list[CaptureFile], set[str]]:
        """Files that the ledger does not know, and the content that it does."""
        columns = ["path", "size_bytes", "modified_at", "capture_id", "status", "error_hint", "error_code", "sensor",
                   "ts_first", "ts_last", "compression"]  # fmt: skip
        rows: list[dict[str, Any]] = []
        if not (isinstance(lake, Writer) and lake.is_new):
            rows = [r for r in lake.table("captures").select(*columns).toArrow().to_pylist() if r["sensor"] == sensor]
        for found in rows:
            found.update({name: _micros(found[name]) for name in ("modified_at", "ts_first", "ts_last")})
        self.ledger = rows
        known = {(r["path"], r["size_bytes"], r["modified_at"]): r for r in rows}
        self.known_until = max((r["ts_last"] or 0 for r in rows), default=0)
        fresh: list[CaptureFile] = []
        for file in files:
            row = known.get((file.path, file.size_bytes, file.modified_ns // 1000))
            if row is None or verify or row["error_code"] == "UNREADABLE":
                fresh.append(file)
            elif row["status"] == "failed":
                self.summary.failed.append((file.path, row["error_hint"] or ""))
            else:
                self.summary.known.append(file.path)
        return fresh, {r["capture_id"] for r in rows if r["capture_id"] and r["status"] != "failed"}

    def _scan(self, files: list[CaptureFile]) -> tuple[list[Scanned], pa.Table]:
        driver = os.getpid()
        splits = cut(files, self.split_bytes)
        self.summary.splits = len(splits)
        self._stop_if_asked()
        with self.teller.watched("scan", files, sum(f.size_bytes for f in files)) as watched:
            abouts, index = passes.run_scan(self.spark, pack(splits), driver, watched)
        scanned, again = judge(files, splits, abouts)
        if again:
            first = len(splits)
            whole = [type(splits[0])(first + n, file.path, 0, 0, file.size_bytes) for n, file in enumerate(again)]
            more, more_index = passes.run_scan(self.spark, pack(whole), driver)
            dropped = {s.split_id for s in splits if s.path in {f.path for f in again}}
            keep = pa.array([i not in dropped for i in index["split_id"].to_pylist()], pa.bool_())
            index = pa.concat_tables([index.filter(keep), more_index])
            scanned += judge(again, whole, more)[0]
        return scanned, index

    def _write(
        self,
        writer: Writer,
        new: list[Scanned],
        index: pa.Table,
        options: Options,
        replaces: Redo | None,
        saved: Future[list[SavedFlow]],
        begun: Future[None],
    ) -> None:
        plans = split_plans(new)
        ours = pa.array([i in plans for i in index["split_id"].to_pylist()], pa.bool_())
        index = index.filter(ours)
        tables = _tables(options)
        options, with_tls = with_secrets(options, new)
        newest_ns = max(s.about.ts_tail_ns or 0 for s in new)
        late: Future[list[str]] | None = None
        if replaces is None:
            going_on = self._resumed(saved.result(), index, with_tls, newest_ns)
            superseded = going_on.superseded
            first_ns = min((s.about.ts_first_ns for s in new if s.about.ts_first_ns is not None), default=newest_ns)
            if first_ns < self.known_until * 1000 - LATE_NS:
                joined = {*going_on.late, *(header.uid for header in going_on.headers)}
                late = self.beside.submit(late_parts, writer, options.sensor, index, joined)
        else:
            going_on = resumed((), index, with_tls)
            superseded = replaces.superseded
        states = going_on.states
        if not going_on.tunnels:  # their sessions may be anywhere
            index = apart(index, {split_id: plan.file.number for split_id, plan in plans.items()})
            states = at_home(states, index)
        bound = passes.bound(going_on.tunnels)
        buckets = assign(passes.weights(index), bound, _together(index, new), of_parts(index), self.cores)
        self.summary.buckets = buckets.count
        self.summary.ingest_id = writer.ingest_id
        captures = [s.file for s in new]
        payload = passes.payload_bytes(index) if self.teller.listener is not None else 0
        self._stop_if_asked()
        with self.summary.timed("decode"), self.teller.watched("decode", captures, payload) as watched:
            args = (self.spark, plans, buckets, options, tables, states, newest_ns, os.getpid(), watched)
            size = sum(file.size_bytes for file in captures)
            decoded = staging.decode(self.spark, passes.Decoder(*args), index, writer, self.cores, size)
            rows, large, self.crashed = decoded.rows, decoded.large, decoded.crashed
        if late is not None:
            going_on.late += late.result()
        self.summary.late.extend(going_on.told)
        other: dict[int, int] = {}
        for account in decoded.accounts:
            self.summary.connections += account["connections"]
            for name, count in account["rows"].items():
                self.summary.rows[name] = self.summary.rows.get(name, 0) + count
            for file, count in account["other_flows"].items():
                other[file] = other.get(file, 0) + count
        self._stop_if_asked()  # a worker that the signal killed may have been taken for one that its file killed
        self.teller.tell("write", captures, messages=self.summary.rows.get("messages", 0))
        with self.summary.timed("write"):
            self._tell_crashes(new, index)
            about_files = file_rows(new, other, options, writer.ingest_id)
            begun.result()
            few = not large and sum(made.num_rows for made in rows.values()) <= FEW_ROWS
            with nullcontext() if few else interpreted(self.spark, False):
                superseded = self._append(writer, {**rows, **large}, about_files, options.sensor, superseded)
        with self.summary.timed("commit"):
            files = new[-1].number + 1
            superseded += failed_before(self.ledger, new, options.sensor)
            writer.commit(superseded, json.dumps({"files": files, "rows": self.summary.rows}))
            if decoded.staged:
                sweep_staging(self.spark, writer.staging)
        for item in new:
            told = (item.file.path, item.about.error_hint or "")
            {"ok": self.summary.ingested, "partial": self.summary.ingested}.get(item.about.status, []).append(told[0])
            if item.about.status == "partial":
                self.summary.partial.append(told)
            elif item.about.status == "failed":
                self.summary.failed.append(told)

    def _append(
        self,
        writer: Writer,
        rows: dict[str, Any],
        about_files: dict[str, pa.Table],
        sensor: str,
        superseded: list[Superseded],
    ) -> list[Superseded]:
        """Write everything: what was decoded, beside it what several connections show together, then the rest."""
        gone = {s.uid for s in superseded if s.tables != ("open_flows",)}
        fresh = Fresh.of(rows, gone, self.resumed_at)
        final = {n: made for n, made in rows.items() if n not in ("streams", "findings") and not _is_empty(made)}
        with ThreadPoolExecutor(WRITERS) as pool, ExitStack() as stack:
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)  # what failed, or Ctrl-C, begins no more

            def write(tables: dict[str, Any]) -> list[Future[None]]:
                return [pool.submit(writer.append, name, made) for name, made in tables.items()]

            # Who fills every core comes after the questions that every ingest asks, or these would wait for it.
            little = {n: made for n, made in final.items() if isinstance(made, pa.Table) and made.num_rows <= LITTLE}
            done = write(little)
            known = neighbours(writer, sensor, fresh)
            done += write({n: made for n, made in final.items() if n not in little})
            streams, findings, changed = judged_together(writer, sensor, fresh, known)
            for first in done[:1]:
                first.result()
            failpoint("between tables")
            findings = pa.concat_tables([findings, about_files["findings"]])
            retold = pa.array([s.uid for s in changed if "findings" in s.tables], pa.string())
            told_before = pc.sum(pc.is_in(findings["uid"], retold)).as_py() or 0
            self.summary.rows["findings"] = findings.num_rows - told_before
            done += write({"streams": streams, "findings": findings, "captures": about_files["captures"]})
            for each in done:
                each.result()
        delivered, again = deliveries(writer, sensor, fresh, known, superseded)
        self.summary.rows["deliveries"] = delivered.num_rows
        writer.append("deliveries", delivered)
        return [*superseded, *changed, *again]

    def _resumed(self, saved: list[SavedFlow], index: pa.Table, with_tls: bool, newest_ns: int) -> Resumed:
        """Saved connections that go on in the new captures."""
        found = resumed(saved, index, with_tls, newest_ns)
        for header in found.headers:
            self.resumed_at[header.uid] = min(header.second * 1_000_000, header.ts_last_ns // 1000)
            self.summary.resumed += header.has_rows
        return found

    def _tell_crashes(self, new: Sequence[Scanned], index: pa.Table) -> None:
        """A connection that kills its worker costs only itself: a finding about the files that hold it."""
        for group, how in self.crashed:
            mine = index.filter(pc.equal(index["group"], group))
            ends = sorted({_ends(key) for key in passes.first_seen(mine)})
            splits = set(mine["split_id"].to_pylist())
            text = f"{', '.join(ends[:5])}: decoding kills the worker ({how})"
            self.summary.crashed.append(text)
            for item in new:
                if any(split.split_id in splits for split, _ in item.splits):
                    problem = (ViolationCode.CAPTURE_LIMIT.value, text, "please report it", len(ends), None)
                    item.about.problems.append(problem)

    def _stop_if_asked(self) -> None:
        if self.stop.is_set():
            raise Stopped(landed=False)


def with_secrets(options: Options, new: Sequence[Scanned]) -> tuple[Options, bool]:
    """TLS secrets at the head of a file hold for all files; and whether there are any, here or further inside."""
    logs = [options.keylog, *(s.about.secrets.encode("latin-1") for s in new)]
    options = replace(options, keylog=b"\n".join(log for log in logs if log))
    return options, bool(options.keylog) or any(s.about.with_secrets for s in new)


def _tables(options: Options) -> list[str]:
    return [*DECODED, *(["payloads"] if options.keep_payloads else [])]


def _ends(key: bytes) -> str:
    return " - ".join(f"{host}:{port}" for host, port in (endpoint(key[:18]), endpoint(key[18:])))


def _is_empty(rows: Any) -> bool:
    return isinstance(rows, pa.Table) and not rows.num_rows


def _cores(spark: SparkSession) -> int:
    try:
        return max(int(spark.conf.get("spark.sql.shuffle.partitions") or 2), 1)
    except ValueError:
        return 2


def _micros(when: datetime | None) -> int | None:
    if when is None:
        return None
    return int((when - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1_000_000 + 0.5)


def _together(index: pa.Table, new: Sequence[Scanned]) -> list[list[int]]:
    """Groups that share a file which can only be read whole."""
    whole = {split.split_id for item in new if item.whole for split, _ in item.splits}
    shared: dict[int, list[int]] = {}
    for split_id, group in zip(index["split_id"].to_pylist(), index["group"].to_pylist()):
        if split_id in whole:
            shared.setdefault(split_id, []).append(group)
    return list(shared.values())
