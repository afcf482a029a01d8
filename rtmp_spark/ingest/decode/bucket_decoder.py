"""The second pass: decodes the connections of one bucket from their own packets.

A bucket is a set of groups. Its packets are read from the staging area, or from the captures by the places that are
staged there, in the order of the files, and go through the same analysis as in `inspect`. Whatever the split size and
the number of buckets, a connection sees the same packets in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.analysis.arrow_columns import arrow_column, arrow_rows
from rtmp_spark.analysis.core import AnalysisCore
from rtmp_spark.analysis.open_connection import OpenConnection, begins_tunnels
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.capture.files.record_layout import layout_of
from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.tcp.brief_flows import SavedBriefFlow
from rtmp_spark.capture.unwrap.tls.keylog import can_decrypt
from rtmp_spark.codec.limits import ANALYZED_BYTES, BRIEF_NS, REMEMBERED_PACKETS, SAVED_PACKETS, SILENT_NS
from rtmp_spark.conversation.decoding.helper_process import HelperPool
from rtmp_spark.ingest.captures.capture_paths import open_file, require_unchanged
from rtmp_spark.ingest.decode.connection_state import (
    STATE_VERSION,
    OpenFlow,
    body_of,
    freeze,
    header_of,
    pack,
    placeholder,
    state_of,
)
from rtmp_spark.ingest.decode.decode_job import DecodeJob
from rtmp_spark.ingest.decode.decode_plan import Piece
from rtmp_spark.ingest.decode.packet_windows import windows
from rtmp_spark.ingest.decode.read_packets import read_packets
from rtmp_spark.ingest.scan.staged_packets import StagedFiles, packets, places
from rtmp_spark.ingest.worker_progress import WorkCounter
from rtmp_spark.schema import arrow_schema

_NO_NUMBER = -1  # of a connection without rows


class MadeRows(NamedTuple):
    """Rows of one bucket."""

    table: str
    batch: pa.RecordBatch
    provisional: bool = False  # a later ingest may replace them
    resumed: bool = False  # of a connection that began in an earlier ingest


@dataclass
class Account:
    """What the driver needs to know about a decoded bucket, except its rows."""

    connections: int = 0
    other_flows: dict[int, int] = field(default_factory=dict)  # connections that are not RTMP, by file number
    open_uids: list[str] = field(default_factory=list)  # connections with rows that may continue in a later ingest


class SavedConnection(NamedTuple):
    number: int
    header: OpenFlow
    body: bytes


class BucketDecoder:
    """Decodes one bucket: `batches` yields its rows once; after that `account` is complete."""

    def __init__(
        self, job: DecodeJob, pieces: Sequence[Piece], states: Sequence[bytes] = (), helpers: HelperPool | None = None
    ) -> None:
        """Connections that ended before `job.newest_ns` cannot continue."""
        self.account = Account()
        self._settings = replace(job.options.settings(), helpers=helpers)
        self._tables = job.tables
        self._core = AnalysisCore(self._settings, job.tables)
        self._core.remember_packets(REMEMBERED_PACKETS if job.several_files else SAVED_PACKETS)
        self._pieces = sorted(pieces, key=lambda piece: piece.order)
        self._secrets = sorted(job.secrets)
        self._staged = StagedFiles(job.staging)
        self._newest_ns = job.newest_ns
        self._capture_ids: list[str | None] = []  # by file number of the lake
        for piece in pieces:
            self._name_file(piece.split.file.number, piece.split.file.capture_id)
        self._resumed = arrow_column(sorted({header_of(state).uid for state in states}), pa.string())
        self._resume(states)

    def _name_file(self, number: int, capture_id: str) -> None:
        missing = number + 1 - len(self._capture_ids)
        self._capture_ids += [None] * max(missing, 0)
        self._capture_ids[number] = capture_id

    def _resume(self, saved: Iterable[bytes]) -> None:
        states = []
        for packed in saved:
            header = header_of(packed)
            for number, capture_id in header.files.items():
                self._name_file(int(number), capture_id)
            if header.brief:
                self._core.resume_brief_flow(bytes.fromhex(header.key), body_of(packed))
            else:
                states.append(state_of(packed))
        for state in sorted(states, key=lambda state: not begins_tunnels(state)):  # others join these
            self._core.resume(state)

    def batches(self, counter: WorkCounter | None = None) -> Iterator[MadeRows]:
        """The rows of all connections. `counter` counts payload bytes and messages."""
        counter = counter or WorkCounter("")
        current, read = -1, 0
        for block, segments, piece in windows(self._pieces, self._packets, [place[:2] for place in self._secrets]):
            number = piece.split.file.number
            if number != current:
                self._core.begin_file(piece.split.file.next_head_ns)
                current = number
            self._take_secrets(*piece.place)
            self._core.feed(block, segments)
            messages = 0
            for made in self._final(self._core.ready()):
                messages += made.batch.num_rows if made.table == "messages" else 0
                yield made
            size = int(segments.length.sum())
            counter.add(bytes=size, messages=messages)
            read += size
            if read >= ANALYZED_BYTES:  # not for every window: a batch costs much the same whatever it holds
                yield from self._final(self._core.batches(self._capture_ids))
                read = 0
        self._staged.close()
        self._core.rest()
        yield from self._final(self._core.batches(self._capture_ids))
        yield from self._finish()

    def _take_secrets(self, number: int, run: int) -> None:
        """Add the TLS secrets that captures contain before this place."""
        while self._secrets and self._secrets[0][:2] <= (number, run):
            _, _, log = self._secrets.pop(0)
            if can_decrypt():
                self._settings.keylog.add(log.encode("latin-1"))

    def _packets(self, piece: Piece) -> Iterator[PacketBlock]:
        split = piece.split
        if split.is_copy:
            yield from packets(self._staged.read(split.staged, piece.sections), split.frames_before)
            return
        frame, offset = places(self._staged.read(split.staged, piece.sections))
        require_unchanged(split.file)
        with open_file(split.file.path) as file:
            layout = layout_of(file)
            yield from read_packets(file, layout, split.start + offset, split.frames_before + frame)
        require_unchanged(split.file)

    def _final(self, batches: Iterable[Batch]) -> Iterator[MadeRows]:
        for table, batch in batches:
            if not len(self._resumed):
                yield MadeRows(table, batch)
                continue
            resumed = pc.is_in(batch.column("uid"), self._resumed)
            yield MadeRows(table, batch.filter(resumed), resumed=True)
            yield MadeRows(table, batch.filter(pc.invert(resumed)))

    def _finish(self) -> Iterator[MadeRows]:
        """Save the connections that may continue, then end every connection."""
        flows = [self._save_brief(found) for found in self._core.open_brief_flows(self._newest_ns)]
        flows += [self._save(found) for found in self._core.open_connections(self._newest_ns)]
        uids = self._core.finish()
        self._core.sink.add("streams", self._core.sink.take_late("streams"))
        last = list(self._core.batches(self._capture_ids))
        flow_rows = list(_flow_rows(flows, uids, self._settings.sensor))
        self.account.connections = self._core.connections
        self.account.other_flows = dict(self._core.other_connections)
        self.account.open_uids = [flow.header.uid for flow in flows if flow.header.has_rows]
        open_uids = arrow_column(sorted(self.account.open_uids), pa.string())
        for table, batch in last:
            provisional = pc.is_in(batch.column("uid"), open_uids)
            yield from self._final([(table, batch.filter(pc.invert(provisional)))])
            yield MadeRows(table, batch.filter(provisional), provisional=True)
        if "open_flows" in self._tables:
            yield from (MadeRows(table, batch, provisional=True) for table, batch in flow_rows)

    def _save(self, found: OpenConnection) -> SavedConnection:
        connection, key = found.connection, found.connection.key.hex()
        header = OpenFlow(
            uid=placeholder(self._settings.sensor, key),
            key=key,
            ts_last_ns=connection.ts_last_ns or 0,
            over_ns=found.over_ns,
            has_rows=False,
            second=found.provisional_second,
            files=self._named(connection.files),
            tunnel=found.wrapping in ("rtmpt", "nested"),
            tls=found.wrapping == "tls",
        )
        return SavedConnection(connection.number, header, freeze(found.state))

    def _save_brief(self, found: SavedBriefFlow) -> SavedConnection:
        key = found.flow.key.hex()
        header = OpenFlow(
            uid=placeholder(self._settings.sensor, key),
            key=key,
            ts_last_ns=found.ts_last_ns,
            over_ns=found.ts_last_ns + (SILENT_NS if found.flow.payloads else BRIEF_NS),
            has_rows=False,
            second=0,
            files=self._named(found.flow.files),
            brief=True,
        )
        return SavedConnection(_NO_NUMBER, header, found.packed)

    def _named(self, files: Iterable[int]) -> dict[str, str]:
        return {str(number): self._capture_ids[number] or "" for number in files}


def _flow_rows(flows: Sequence[SavedConnection], uids: dict[int, str], sensor: str) -> Iterator[Batch]:
    """Rows of `open_flows`. `uids`: of the connections that gave rows, by number."""
    rows = []
    for number, header, body in flows:
        if number in uids:
            header.uid, header.has_rows = uids[number], True
        row = (header.uid, sensor, header.ts_last_ns // 1000, STATE_VERSION, pack(header, body), None)
        rows.append(row)
    if rows:
        yield "open_flows", arrow_rows(rows, arrow_schema("open_flows"))
