"""The second pass: the connections of one bucket, decoded exactly, from only their own packets.

A bucket is a set of index groups. Its packets are read by their places (or, of files without an index, by reading
the file and leaving out strangers), in the order of the files, and go through the very same recording that
`inspect` uses: whatever the split size and the number of buckets, a connection sees the same packets in the same
order. What comes out are blobs of Arrow rows, one per table, and what the ledger wants to know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rtmp_spark.capture.beside import Helpers
from rtmp_spark.capture.block import PacketBlock
from rtmp_spark.capture.columns import arrow_batch
from rtmp_spark.capture.connection import Connection
from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.facts import FRAME_BITS
from rtmp_spark.capture.files import open_capture
from rtmp_spark.capture.flows import group as group_flows
from rtmp_spark.capture.intervals import Carry
from rtmp_spark.capture.keylog import KeyLog, can_decrypt
from rtmp_spark.capture.packet import Dissector, Segments
from rtmp_spark.capture.pcap import FILE_HEADER_BYTES, parse_header
from rtmp_spark.capture.recording import CaptureFile, Recording
from rtmp_spark.capture.redact import Redactor
from rtmp_spark.capture.rows import Batch
from rtmp_spark.capture.settings import Settings
from rtmp_spark.forensics.catalogue import entry
from rtmp_spark.forensics.judge import Judge
from rtmp_spark.schema import MESSAGE_TABLES, arrow_schema

from .flow_state import (
    STATE_VERSION,
    OpenFlow,
    bases,
    begins_tunnels,
    freeze,
    header_of,
    pack,
    placeholder,
    restore,
    save,
    state_of,
    wrapping_of,
)
from .gather import gather
from .paths import open_file
from .pulse import Pulse
from .scan import GROUPS, group_of_key, places

FLUSH_BYTES = 16 << 20  # of payload, after which rows leave
PART_BYTES = 8 << 20  # of rows in one staged part, before compression


@dataclass(frozen=True)
class Options:
    """What the user asked for, in a form that travels."""

    sensor: str = ""
    redact_key: str | None = None  # hex; None keeps secrets
    keep_payloads: bool = False
    host: str | None = None
    port: int | None = None
    since: int | None = None
    until: int | None = None
    keylog: bytes = field(default=b"", repr=False)  # TLS secrets; in memory and between processes only, never in rows

    def settings(self) -> Settings:
        key = None if self.redact_key is None else bytes.fromhex(self.redact_key)
        log = KeyLog()
        if can_decrypt():
            log.add(self.keylog)
        return Settings(
            keylog=log,
            judge=Judge,
            catalogue=entry,
            sensor=self.sensor,
            redactor=Redactor(key),
            keep_payloads=self.keep_payloads,
            host=self.host,
            port=self.port,
            since=self.since,
            until=self.until,
        )


@dataclass(frozen=True)
class FilePlan:
    """One capture of an ingest, in the order of time."""

    number: int  # in the lake, growing
    path: str
    capture_id: str
    whole: bool  # no index: read it from the start


@dataclass(frozen=True)
class SplitPlan:
    file: FilePlan
    start: int
    frames_before: int


@dataclass
class Piece:
    """What one bucket has to read of one split: the packets of its groups."""

    split: SplitPlan
    groups: list[int] = field(default_factory=list)
    indexes: list[bytes] = field(default_factory=list)


class BucketRecording(Recording):
    """A recording that is fed blocks and knows its files beforehand."""

    def __init__(self, settings: Settings, tables: Sequence[str], files: Iterable[FilePlan]) -> None:
        super().__init__([], settings, tables)
        self.capture_ids: list[str | None] = []
        self.files = _Files()  # type: ignore[assignment]
        for file in files:
            self._name_file(file.number, file.capture_id)

    def feed(self, block: PacketBlock, segments: Segments, number: int) -> None:
        self._newest_second = max(self._newest_second, int(block.ts_ns[-1]) // 1_000_000_000)
        items = self._reassembler.feed(segments, number)
        self._deliver(items, number << FRAME_BITS | int(block.frame[-1]))

    def rest(self) -> None:
        """After the last window."""
        for conversation in self._open.values():
            conversation.rest(self._sink)

    def resume(self, saved: Iterable[bytes]) -> None:
        """Connections of an earlier ingest go on; before their packets are fed."""
        flows = [(header_of(packed), state_of(packed)) for packed in saved]
        for header, state in sorted(flows, key=lambda flow: not begins_tunnels(flow[1])):  # others join these
            self._resume(header, state)

    def _resume(self, header: OpenFlow, state: dict[str, Any]) -> None:
        connection = self._reassembler.resume(state["connection"])
        conversation = restore(state, connection, self.settings, self._tunnels)
        if conversation is not None:
            connection.tag = conversation
            self._open[connection.number] = conversation
        elif state["early"]:
            self._early[connection.number] = [(d, second, tuple(values)) for d, second, values in state["early"]]
        columns = [np.array(column, np.int64) for column in state["carry"]]
        here = np.full(len(columns[0]), connection.number)
        self._reassembler._carry = self._reassembler._carry.plus(Carry(here, *columns))
        for number, capture_id in header.files.items():
            self._name_file(int(number), capture_id)

    def open_flows(self, newest_ns: int) -> list[tuple[Connection, OpenFlow, bytes]]:
        """Every connection that could go on in a later file, as it stands before `finish`.

        `newest_ns` is the newest of the files' last packets: what a bucket has seen says little about who is
        over for good. A closed one on which a session of RTMPT began can, as long as others carry the session on.
        """
        flows = []
        carry = self._reassembler._carry
        for connection in (*self._reassembler.connections, *(c.connection for c in self._lingering)):
            over_ns = max(connection.over_ns, self._tunnels.carried_on(connection))
            if over_ns < newest_ns:
                continue
            conversation = connection.tag
            messages, commands, second = ((0, 0), (0, 0), 0) if conversation is None else bases(conversation)
            key = connection.key.hex()
            files = {str(n): self.capture_ids[n] or "" for n in connection.files}
            uid = placeholder(self.settings.sensor, key)
            last_ns = connection.ts_last_ns or 0
            header = OpenFlow(uid, key, last_ns, over_ns, False, messages, commands, second, (), files)
            waiting = carry.select(carry.connection == connection.number)
            state = save(connection)
            state["carry"] = [waiting.side.tolist(), waiting.ts_ns.tolist(), waiting.end.tolist()]
            state["early"] = self._early.get(connection.number, [])
            header.tunnel, header.tls = wrapping_of(state) in ("rtmpt", "nested"), wrapping_of(state) == "tls"
            flows.append((connection, header, freeze(state)))
        return flows

    def finish(self) -> dict[int, str]:
        """End the recording; the connections that gave rows by it: number and uid."""
        gave: dict[int, str] = {}
        closed = self.settings.closed

        def note(conversation: Conversation) -> None:
            gave[conversation.connection.number] = conversation.uid or ""

        self.settings.closed = note
        self._deliver(self._reassembler.finish(), 1 << 62)
        self.settings.closed = closed
        self._sink.add("streams", self._sink.take_late("streams"))
        return gave

    def _name_file(self, number: int, capture_id: str) -> None:
        missing = number + 1 - len(self.capture_ids)
        self.capture_ids += [None] * max(missing, 0)
        self.capture_ids[number] = capture_id

    def take(self) -> Iterator[Batch]:
        yield from self._sink.flush(self.capture_ids)

    @property
    def other_flows(self) -> dict[int, int]:
        return {number: file.other_flows for number, file in self.files.items()}  # type: ignore[attr-defined]


class _Files(dict[int, CaptureFile]):
    def __missing__(self, number: int) -> CaptureFile:
        made = self[number] = CaptureFile("")
        return made


class Parts:
    """Batches on their way into staged parts: per table one Arrow stream each."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self.rows: dict[str, int] = {}
        self.bytes: dict[str, int] = {}  # as they are staged

    def add(self, batches: Iterable[Batch]) -> None:
        for table, batch in batches:
            self._held.setdefault(table, []).append(batch)
            self._bytes += batch.nbytes
            self.rows[table] = self.rows.get(table, 0) + batch.num_rows

    @property
    def full(self) -> bool:
        return self._bytes >= PART_BYTES

    def take(self) -> dict[str, bytes]:
        held, self._held, self._bytes = self._held, {}, 0
        blobs = {table: _stream(batches) for table, batches in held.items()}
        for table, blob in blobs.items():
            self.bytes[table] = self.bytes.get(table, 0) + len(blob)
        return blobs


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def rows_of(blob: bytes) -> pa.Table:
    """The rows of a table in a staged part."""
    return pa.ipc.open_stream(blob).read_all()


def decode(
    pieces: Sequence[Piece],
    files: Sequence[FilePlan],
    options: Options,
    tables: Sequence[str],
    states: Sequence[bytes] = (),
    newest_ns: int = 0,
    pulse: Pulse | None = None,
    helpers: Helpers | None = None,
) -> Iterator[tuple[dict[str, bytes], str | None]]:
    """Parts of rows; the last one with the bucket's own account as JSON.

    `pulse` hears of payload bytes and messages; `helpers` decode beside this process.
    """
    pulse = pulse or Pulse("")
    recording = BucketRecording(replace(options.settings(), helpers=helpers), tables, files)
    recording.resume(states)
    parts = Parts(tables)
    ordered = sorted(pieces, key=lambda p: (p.split.file.number, p.split.start))
    dissector, current, told, read = Dissector(), -1, 0, 0
    for piece in ordered:
        number = piece.split.file.number
        if number != current:
            dissector, current = Dissector(), number
        for block, segments in _packets(piece, dissector, recording):
            recording.feed(block, segments, number)
            parts.add(recording._sink.ready())
            messages, size = parts.rows.get("messages", 0), int(segments.length.sum())
            pulse.add(bytes=size, messages=messages - told)
            told, read = messages, read + size
        if read >= FLUSH_BYTES:  # not for every tiny file: a batch costs much the same whatever it holds
            parts.add(recording.take())
            read = 0
        if parts.full:
            yield parts.take(), None
    recording.rest()
    parts.add(recording.take())
    flows = recording.open_flows(newest_ns)
    gave = recording.finish()
    provisional = list(recording.take())
    parts.add(provisional)
    if "open_flows" in tables:
        parts.add(_flow_rows(flows, gave, provisional, options.sensor))
    last = parts.take()
    account = {
        "connections": recording.connections,
        "refusals": recording.refusals,
        "other_flows": recording.other_flows,
        "rows": parts.rows,
        "bytes": parts.bytes,
    }
    yield last, json.dumps(account)


def _flow_rows(
    flows: Sequence[tuple[Connection, OpenFlow, bytes]],
    gave: dict[int, str],
    provisional: Sequence[Batch],
    sensor: str,
) -> Iterator[Batch]:
    """Rows of `open_flows`; each header says which rows of its connection are provisional."""
    touched: dict[str, set[str]] = {}
    for table, batch in provisional:
        if table in MESSAGE_TABLES:
            for uid in batch.column(0).unique().to_pylist():
                touched.setdefault(uid, set()).add(table)
    rows = []
    for connection, header, frozen in flows:
        if connection.number in gave:
            header.uid, header.has_rows = gave[connection.number], True
            header.tables = tuple(sorted(touched.get(header.uid, ())))
        row = (header.uid, sensor, header.ts_last_ns // 1000, STATE_VERSION, pack(header, frozen), None)
        rows.append(row)
    if rows:
        yield "open_flows", arrow_batch(zip(*rows), arrow_schema("open_flows"))


def _packets(piece: Piece, dissector: Dissector, recording: Recording) -> Iterator[tuple[PacketBlock, Segments]]:
    split = piece.split
    with open_file(split.file.path) as file:
        if split.file.whole:
            capture = open_capture(file)
            taken, groups = 0, {group % GROUPS for group in piece.groups}
            for block in capture:
                taken = recording.take_secrets(capture, taken)
                yield block, _ours(dissector.segments(block), groups)
            return
        header = parse_header(file.read(FILE_HEADER_BYTES))
        frame, offset = (np.concatenate(c) for c in zip(*(places(blob) for blob in piece.indexes)))
        order = np.argsort(frame, kind="stable")
        for block in gather(file, header, split.start + offset[order], split.frames_before + frame[order]):
            yield block, dissector.segments(block)


def _ours(segments: Segments, groups: set[int]) -> Segments:
    """Without the connections of other buckets."""
    if not len(segments):
        return segments
    flows = group_flows(segments)
    wanted = np.array([group_of_key(key) in groups for key in flows.keys])
    if wanted.all():
        return segments
    mask = np.empty(len(flows.order), bool)
    mask[flows.order] = wanted[flows.group]
    return segments.select(mask)


def account_of(text: str) -> dict[str, Any]:
    account: dict[str, Any] = json.loads(text)
    account["other_flows"] = {int(k): v for k, v in account["other_flows"].items()}
    return account
