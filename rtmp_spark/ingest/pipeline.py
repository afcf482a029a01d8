"""One round of an ingest: decodes captures and publishes the result.

Its steps are: plan, scan, decode, apply rules across connections, publish. The tables are the same for any
split size, number of buckets, order of files and division of a recording into ingests. The engine that runs the
parallel stages is a parameter; this module keeps only descriptions of files and the rows that rules across connections
need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark import __version__
from rtmp_spark.capture.problem import Problem
from rtmp_spark.capture.tcp.tcp_connection import endpoint
from rtmp_spark.codec.errors import UserError, ViolationCode
from rtmp_spark.ingest.captures.changed_files import beginnings, contained, failed_before
from rtmp_spark.ingest.captures.known_captures import CRASHED, KnownCaptures
from rtmp_spark.ingest.captures.late_captures import late_parts
from rtmp_spark.ingest.captures.probed_files import ProbedFile, probe_all
from rtmp_spark.ingest.captures.redo import Redo, ends_of_keys, redo, require_all, require_all_rows
from rtmp_spark.ingest.decode.connection_state import header_of
from rtmp_spark.ingest.decode.decode_job import BUCKET_INPUT, PLANS, BucketResult, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.decode_plan import dump_plans
from rtmp_spark.ingest.decode.resumed_connections import LATE_NS, Resumed, late_part, resumed, saved_flows
from rtmp_spark.ingest.ingest_progress import ProgressReporter
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.publish.across_job import NewConnections
from rtmp_spark.ingest.publish.across_stage import AcrossStage
from rtmp_spark.ingest.publish.file_rows import file_rows
from rtmp_spark.ingest.publish.open_rows import write_open_and_final
from rtmp_spark.ingest.publish.replaced_rows import replace_captures, replace_connections
from rtmp_spark.ingest.scan.flow_tables import (
    first_seen,
    groups_of_keys,
    keys_of_one_server,
    looked_up,
    payload_bytes,
    weights,
)
from rtmp_spark.ingest.scan.partition import groups_by_part, parts_of_files, split_by_part
from rtmp_spark.ingest.scan.plan import (
    Buckets,
    Scanned,
    assign_buckets,
    combine_scans,
    cut_into_splits,
    is_sorted,
    number_captures,
    pack_into_tasks,
    split_plans,
)
from rtmp_spark.ingest.scan.split_scan import Split
from rtmp_spark.ingest.stages import Stages
from rtmp_spark.lake.failpoint import failpoint
from rtmp_spark.lake.writer import Writer
from rtmp_spark.schema import TABLES

DECODED = tuple(name for name in TABLES if name not in ("captures", "payloads", "deliveries", "paths"))


@dataclass
class ScannedInput:
    """The captures of an ingest after the first pass."""

    files: list[Scanned]
    flows: pa.Table  # their connections
    sections: pa.Table  # where their packets are staged


@dataclass(frozen=True)
class Replaced:
    """What an ingest replaces in the lake."""

    resumed: set[str]  # connections that continue: their provisional rows
    states: set[str]  # saved states that are not needed any more
    redone: set[str]  # connections that are decoded again: all rows
    capture_ids: set[str]  # captures that are decoded again


class Ingest:
    """One round of an ingest, into a lake that is open for writing."""

    def __init__(
        self,
        stages: Stages,
        writer: Writer,
        options: IngestOptions,
        summary: Summary,
        progress: ProgressReporter,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> None:
        self.stages = stages
        self.writer = writer
        self.summary = summary
        self.progress = progress
        self.check_cancelled = check_cancelled
        key = None if options.keep_secrets else writer.redact_key.hex()
        self.options = replace(options, redact_key=key)
        self.known = KnownCaptures.of(writer, options.sensor)
        self.open_uids: set[str] = set()  # connections with rows that may continue after this round
        self._next_head_ns: int | None = None
        self._open_here: Collection[str] = ()

    def run(
        self, files: Sequence[ProbedFile], next_head_ns: int | None = None, open_here: Collection[str] = ()
    ) -> None:
        """Decode and publish the new ones of these files; the summary states the result for each.

        `next_head_ns`: the time at which the files of later rounds begin. `open_here`: the uids of connections that
        earlier rounds of the same ingest left open.
        """
        failpoint("plan")
        self._next_head_ns, self._open_here = next_head_ns, open_here
        options = self.options
        chosen = self.known.select([p.file for p in files], options.verify or options.redo, __version__)
        self.summary.known += chosen.known  # another ingest was faster
        self.summary.failed += chosen.failed
        if not chosen.new:
            return
        wanted = set(chosen.new)
        new_files = [probed for probed in files if probed.file in wanted]
        with self.summary.timed("scan"):
            found = self._scan(new_files)
        replaces = self._redo(new_files, found)
        known_ids = self.known.content_ids - (replaces.capture_ids if replaces is not None else set())
        number_captures(
            found.files,
            known_ids | contained(self.known.rows, found.files),
            self.writer.captures_numbered,
            self.known.failures,
        )
        new = sorted((item for item in found.files if item.number >= 0), key=lambda item: item.number)
        self.summary.duplicates = [item.file.path for item in found.files if item.duplicate]
        failed_again = [item for item in found.files if item.number < 0 and not item.duplicate]
        self.summary.failed += [(item.file.path, item.about.error_hint or "") for item in failed_again]
        if new:
            self._decode_and_publish(ScannedInput(new, found.flows, found.sections), replaces)

    # -- first pass -----------------------------------------------------------------------------------------------

    def _scan(self, probed: Sequence[ProbedFile]) -> ScannedInput:
        splits = cut_into_splits(probed, self.options.split_bytes)
        files = [item.file for item in probed]
        self.summary.splits = len(splits)
        self.check_cancelled()
        size_bytes = sum(file.size_bytes for file in files)
        with self.progress.watched("scan", files, size_bytes) as watched:
            job = ScanJob(self.writer.staging, self._sorts(size_bytes), watched)
            scans = self.stages.scan(job, pack_into_tasks(splits, self.stages.cores))
            scanned, again = combine_scans(files, splits, scans.splits)
            flows, sections = scans.flows, scans.sections
            if again:
                whole = [
                    Split(len(splits) + n, file.path, 0, 0, file.size_bytes, file.modified_ns)
                    for n, file in enumerate(again)
                ]
                more = self.stages.scan(job, pack_into_tasks(whole, self.stages.cores))
                scanned += combine_scans(again, whole, more.splits)[0]
                flows, sections = (pa.concat_tables(both) for both in ((flows, more.flows), (sections, more.sections)))
        return ScannedInput(scanned, flows, sections)

    def _sorts(self, size_bytes: int) -> bool:
        wanted = self.options.sorted_copy
        return is_sorted(size_bytes, self.stages.cores) if wanted is None else wanted

    def _redo(self, files: Sequence[ProbedFile], found: ScannedInput) -> Redo | None:
        """What must be decoded again together with these files. Adds captures to `found`, or takes files out of it."""
        held = beginnings(self.known.rows, found.files)
        grown = sorted({item.file.path for item in held.values()})
        crashed = self.known.crashed_ids(__version__)
        retried = sorted(item.file.path for item in found.files if item.about.capture_id in crashed)
        if not self.options.redo and not held and not retried:
            return None
        try:
            saved = saved_flows(self.writer.lake, self.options.sensor)
            replaces = redo(self.writer, found.files, first_seen(found.flows), self.options.sensor, saved, held)
            require_all_rows(self.writer, replaces, self.options)
            if replaces.more:
                with self.summary.timed("scan"):
                    more = probe_all(self.stages.run, replaces.more, self.stages.cores)
                    everything = self._scan([*files, *more])
                logs = [self.options.keylog, *(probed.secrets.encode("latin-1") for probed in more)]
                self.options = replace(self.options, keylog=b"\n".join(log for log in logs if log))
                require_all(replaces, everything.files, held)
                found.files, found.flows, found.sections = everything.files, everything.flows, everything.sections
        except UserError as error:
            if self.options.redo:
                raise
            # The other files are ingested; the published rows of these stay as they are.
            self.summary.late += [f"{path} has grown since it was ingested: {error}" for path in grown]
            self.summary.late += [f"{path} has a connection that was left out: {error}" for path in retried]
            found.files = [item for item in found.files if item.file.path not in (*grown, *retried)]
            return None
        self.summary.grown = grown
        self.summary.joined = [file.path for file in replaces.more]
        self.summary.files += len(replaces.more)
        self.summary.bytes += sum(file.size_bytes for file in replaces.more)
        return replaces

    # -- second pass ----------------------------------------------------------------------------------------------

    def _decode_and_publish(self, found: ScannedInput, replaces: Redo | None) -> None:
        plans = split_plans(found.files, self._next_head_ns)
        wanted = pa.array(sorted(plans), pa.int64())
        flows, sections = (t.filter(pc.is_in(t["split_id"], wanted)) for t in (found.flows, found.sections))
        options = self.options
        with_tls = bool(options.keylog) or any(item.about.with_secrets for item in found.files)
        newest_ns = max(item.about.ts_tail_ns or 0 for item in found.files)
        if self._next_head_ns is not None:  # later rounds may hold packets of the time before
            newest_ns = min(newest_ns, self._next_head_ns)
        saved = saved_flows(self.writer.lake, options.sensor, flows)
        if replaces is None:
            in_order = self._is_in_order(found)
            continued = resumed(saved, flows, with_tls, newest_ns, in_order=in_order)
            self.summary.late += continued.warnings()
            self.summary.late += self._late(found, flows, continued, newest_ns)
            resumed_here = {header.uid for header in continued.headers if header.has_rows}
            self.summary.resumed += len(resumed_here.difference(self._open_here))
            self.summary.connections -= len(resumed_here.intersection(self._open_here))  # counted in the round before
        else:
            continued = resumed((), flows, with_tls)
        servers = keys_of_one_server(continued.tunnels)
        file_of_split = {split_id: plan.file.number for split_id, plan in plans.items()}
        parts = parts_of_files(flows, file_of_split, servers)
        flows, sections = (split_by_part(t, file_of_split, parts) for t in (flows, sections))
        joined_keys = {key for keys in servers for key in keys}.union(key for key, _ in continued.states)
        group_of = groups_of_keys(flows, joined_keys)
        states: dict[int, list[bytes]] = {}
        for key, packed in continued.states:
            states.setdefault(group_of[key], []).append(packed)
        cost = weights(flows)
        bound = [sorted({group_of[key] for key in keys if key in group_of}) for keys in servers]
        buckets = assign_buckets(cost, bound, groups_by_part(cost), self.stages.cores)
        self.summary.buckets = buckets.count
        self.summary.ingest_id = self.writer.ingest_id
        captures = [item.file for item in found.files]
        self.check_cancelled()
        work = payload_bytes(flows) if self.progress.listener is not None else 0
        secrets = tuple(
            (item.number, run, log) for item in found.files for _, scan in item.splits for run, log in scan.secrets
        )
        several_files = len(found.files) > 1 or self._next_head_ns is not None or self.known.newest_beginning > 0
        self.writer.staging.write(PLANS, dump_plans(plans))
        with self.summary.timed("decode"), self.progress.watched("decode", captures, work) as watched:
            job = DecodeJob(
                self.writer.location,
                self.writer.staging,
                self.writer.ingest_id,
                options,
                (*DECODED, *(["payloads"] if options.keep_payloads else [])),
                newest_ns,
                secrets,
                several_files,
                buckets.heavy,
                watched,
            )
            decoded = self.stages.decode(job, bucket_input(sections, buckets, states), buckets.count)
        logs = [self.options.keylog, *(log.encode("latin-1") for _, _, log in secrets)]  # for later rounds
        self.options = replace(self.options, keylog=b"\n".join(log for log in logs if log))
        self.check_cancelled()  # a worker killed by Ctrl-C must not be taken for one that its input killed
        self._note_crashes(decoded.crashed, found, flows)
        # A connection of the lake that could not be decoded keeps the rows and the state that it has.
        kept = {header_of(packed).uid for group, _ in decoded.crashed for packed in states.get(group, ())}
        again = Redo() if replaces is None else replaces
        groups = pa.array([group for group, _ in decoded.crashed], pa.int32())
        failed = ends_of_keys(first_seen(flows.filter(pc.is_in(flows["group"], groups))))
        redone = {uid for uid, ends in again.uids.items() if ends not in failed}
        capture_ids = again.capture_ids if len(redone) == len(again.uids) else again.capture_ids - again.held
        replaced = Replaced(continued.uids - kept, continued.dropped | again.states, redone, capture_ids)
        still_open = {uid for uid, _, _ in saved} - continued.dropped - continued.uids - redone | kept
        self.open_uids = still_open.union(*(bucket.open_uids for bucket in decoded.buckets))
        starts = {header.uid: min(header.second * 1_000_000, header.ts_last_ns // 1000) for header in continued.headers}
        self.progress.report("write", captures, messages=sum(b.rows.get("messages", 0) for b in decoded.buckets))
        with self.summary.timed("write"):
            self._publish(found.files, decoded.buckets, replaced, still_open, starts)
        self._sum_up(found.files)

    def _is_in_order(self, found: ScannedInput) -> bool:
        """Whether every new capture begins after those of the lake, so that its packets come last in any case."""
        heads = [item.about.ts_head_ns // 1000 for item in found.files if item.about.ts_head_ns is not None]
        return min(heads, default=0) >= self.known.newest_beginning

    def _late(self, found: ScannedInput, flows: pa.Table, continued: Resumed, newest_ns: int) -> list[str]:
        """Warnings about parts of connections in the lake that cannot be resumed."""
        times = [item.about.ts_first_ns for item in found.files if item.about.ts_first_ns is not None]
        if min(times, default=newest_ns) >= self.known.newest_packet * 1000 - LATE_NS:
            return []
        joined = {*continued.late, *(header.uid for header in continued.headers)}
        uids = late_parts(self.writer, self.options.sensor, flows, joined)
        return [late_part(uid) for uid in uids]

    def _note_crashes(self, crashed: Sequence[tuple[int, str]], found: ScannedInput, flows: pa.Table) -> None:
        """A connection that kills its worker, twice and alone, is left out: a finding about the files that hold it."""
        for group, how in crashed:
            mine = flows.filter(pc.equal(flows["group"], group))
            ends = sorted({_endpoints(key) for key in first_seen(mine)})
            splits = set(mine["split_id"].to_pylist())
            text = f"{', '.join(ends[:5])}: decoding it kills the worker ({how})"
            self.summary.crashed.append(text)
            for item in found.files:
                if any(split.split_id in splits for split, _ in item.splits):
                    item.about.error_code = CRASHED
                    problem = Problem(ViolationCode.CAPTURE_LIMIT, text, "please report it", len(ends))
                    item.about.problems.append(problem)

    # -- across connections, and publishing ------------------------------------------------------------------------

    def _publish(
        self,
        files: Sequence[Scanned],
        buckets: Sequence[BucketResult],
        replaced: Replaced,
        still_open: set[str],
        resumed_at: dict[str, int],
    ) -> None:
        writer, sensor = self.writer, self.options.sensor
        written = [file for bucket in buckets for file in bucket.files]
        open_uids = still_open.union(*(bucket.open_uids for bucket in buckets))
        other_flows: dict[int, int] = {}
        for bucket in buckets:
            self.summary.connections += bucket.connections
            for table, count in bucket.rows.items():
                self.summary.rows[table] = self.summary.rows.get(table, 0) + count
            for number, count in bucket.other_flows.items():
                other_flows[number] = other_flows.get(number, 0) + count
        writer.resume(replaced.resumed)
        replace_connections(writer, replaced.redone)
        replace_connections(writer, replaced.states, ("open_flows",))
        new = NewConnections(
            [file for file in written if file.table == "connections"],
            [file for bucket in buckets for file in bucket.staged],
            sorted(replaced.resumed | replaced.redone),
            resumed_at,
            sorted(open_uids),
        )
        across = AcrossStage(self.stages, writer, sensor, self.summary.seconds.get("decode", 0.0), self.check_cancelled)
        across.run(new, written)
        written += across.files
        failpoint("between tables")
        self.summary.incomplete += [problem.detail for problem in across.problems]
        files[-1].about.problems += across.problems
        about_files = file_rows(files, other_flows, sensor, writer.ingest_id)
        self.summary.rows |= across.rows
        self.summary.rows["findings"] += about_files["findings"].num_rows
        for table, made in about_files.items():
            written += write_open_and_final(writer.target, table, made, open_uids)
        again = [row for row in self.known.rows if row["capture_id"] in replaced.capture_ids]
        replace_captures(writer, again, failed_before(self.known.rows, files))
        summary = json.dumps({"rows": self.summary.rows})
        writer.publish(written, captures_numbered=files[-1].number + 1, summary=summary)

    def _sum_up(self, files: Sequence[Scanned]) -> None:
        for item in files:
            named = item.file.path, item.about.error_hint or ""
            if item.about.status == "failed":
                self.summary.failed.append(named)
            else:
                self.summary.ingested.append(item.file.path)
            if item.about.status == "partial":
                self.summary.partial.append(named)


def bucket_input(sections: pa.Table, buckets: Buckets, states: dict[int, list[bytes]]) -> pa.Table:
    """The rows (schema BUCKET_INPUT) from which each bucket is decoded."""

    def of_groups(groups: pa.Array | pa.ChunkedArray) -> pa.Array:
        return pa.array(looked_up(buckets.of_group, groups).astype(np.int32), from_pandas=False)

    columns = [sections[name] for name in ("group", "split_id", "run", "position", "length")]
    pieces = [of_groups(sections["group"]), *columns, pa.nulls(sections.num_rows, pa.binary())]
    saved = [(group, state) for group, packed in states.items() for state in packed]
    nothing = [pa.nulls(len(saved), field.type) for field in BUCKET_INPUT][2:-1]
    groups = pa.array([group for group, _ in saved], pa.int32())
    resumed = [of_groups(groups), groups, *nothing, pa.array([state for _, state in saved], pa.binary())]
    return pa.concat_tables([pa.table(columns, schema=BUCKET_INPUT) for columns in (pieces, resumed)])


def _endpoints(key: bytes) -> str:
    return " - ".join(f"{host}:{port}" for host, port in (endpoint(key[:18]), endpoint(key[18:])))
