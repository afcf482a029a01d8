"""The exact sequential path: capture files -> tables, in windows, with bounded memory.

Several files are one recording: they are read in the order of their first packets, and a connection that goes on in
the next file is one connection. This path is the truth that every other way of decoding is measured by. It writes
nothing and prints nothing: it hands out record batches and remembers what became of each file.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from rtmp_spark import __version__
from rtmp_spark.capture.attempts import number_attempts
from rtmp_spark.capture.block import Problem
from rtmp_spark.capture.connection import Connection
from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.facts import FRAME_BITS, Row
from rtmp_spark.capture.files import Capture, open_capture, sort_by_first_packet
from rtmp_spark.capture.findings import CAPTURE, Finding, FindingFold
from rtmp_spark.capture.items import Closed, Item
from rtmp_spark.capture.judging import Ended
from rtmp_spark.capture.keylog import can_decrypt, tls_secrets
from rtmp_spark.capture.memory import rare_collections
from rtmp_spark.capture.packet import Dissector
from rtmp_spark.capture.rows import Batch, RowSink
from rtmp_spark.capture.rtmpt import SessionWrapping, SharedConnection, Tunnels
from rtmp_spark.capture.settings import Settings
from rtmp_spark.capture.tcp import Reassembler
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.schema import TABLES, column_names

BLOCK_BYTES = 1 << 20
_SEVERITY = column_names("findings").index("severity")
AFTER_ALL = 1 << 62  # later than every packet
ALL_TABLES = tuple(name for name in TABLES if name not in ("payloads", "open_flows", "deliveries"))

Progress = Callable[[int, int], None]  # bytes of the current file read so far, number of the file


class TreeHash:
    """capture_id: SHA-256 over the SHA-256 of each 1 MiB block and the length; blocks can be hashed apart."""

    def __init__(self) -> None:
        self._leaves: list[bytes] = []
        self._rest = bytearray()
        self._length = 0

    def update(self, data: bytes | memoryview) -> None:
        self._length += len(data)
        view = memoryview(data)
        if self._rest:
            take = min(BLOCK_BYTES - len(self._rest), len(view))
            self._rest += view[:take]
            view = view[take:]
            if len(self._rest) < BLOCK_BYTES:
                return
            self._leaves.append(hashlib.sha256(self._rest).digest())
            self._rest = bytearray()
        whole = len(view) - len(view) % BLOCK_BYTES
        for start in range(0, whole, BLOCK_BYTES):
            self._leaves.append(hashlib.sha256(view[start : start + BLOCK_BYTES]).digest())
        self._rest += view[whole:]

    def result(self) -> str:
        leaves = self._leaves + ([hashlib.sha256(self._rest).digest()] if self._rest else [])
        return hashlib.sha256(b"".join(leaves) + self._length.to_bytes(8, "big")).hexdigest()[:32]


@dataclass
class CaptureFile:
    """What became of one file."""

    path: str
    capture_id: str | None = None
    size_bytes: int | None = None
    modified_at: int | None = None
    status: str = "failed"
    error_code: str | None = None
    error_hint: str | None = None
    format: str | None = None
    compression: str | None = None
    link_types: list[int] = field(default_factory=list)
    snaplen: int | None = None
    packets: int = 0
    packets_truncated: int = 0
    ts_first: int | None = None
    ts_last: int | None = None
    other_flows: int = 0
    problems: list[Problem] = field(default_factory=list)

    def row(self, sensor: str) -> Row:
        return (
            self.capture_id, sensor, self.path, self.size_bytes, self.modified_at, self.format, self.compression,
            self.link_types, self.snaplen, self.packets, self.packets_truncated, self.other_flows, self.ts_first,
            self.ts_last, self.status, self.error_code, self.error_hint, __version__, None,
        )  # fmt: skip


class Recording:
    """One recording: iterate `batches()` once; `files` and `connections` are final after that."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        settings: Settings | None = None,
        tables: Sequence[str] = ALL_TABLES,
        *,
        progress: Progress | None = None,
        identify: bool = True,
    ) -> None:
        """`identify=False` has paths for capture ids, which saves reading every byte once more."""
        self.settings = replace(
            settings or Settings(),
            message_rows="messages" in tables,
            command_rows="commands" in tables,
            interval_rows="intervals" in tables,
        )
        if "deliveries" in tables and self.settings.deliveries is not None:
            self.settings = replace(self.settings, message_rows=True, frames=self.settings.deliveries())
        self._paths = [os.fspath(path) for path in paths]
        self._sink = RowSink(tables)
        self._hash = identify and any(set(column_names(t)) & {"capture_id", "capture_ids"} for t in tables)
        self._progress = progress
        self.files: list[CaptureFile] = []
        self.connections = 0
        self.refusals: dict[str, int] = {}
        self.severities: Counter[str] = Counter()  # of all findings, looked at or not
        self._not_shown: set[str] = set()  # uids whose rows nobody will look at
        self._reassembler = Reassembler(self.settings.limits, per_second=self.settings.interval_rows)
        self._dissector = Dissector()
        self._open: dict[int, Conversation] = {}
        self._early: dict[int, list[tuple[int, int, tuple[float, ...]]]] = {}
        self._newest_second = 0
        self._tunnels = Tunnels(self._separate)
        self._separated: list[Conversation] = []  # RTMPT sessions on connections that had another one before
        self._lingering: list[Conversation] = []  # over, but their RTMPT sessions live on in other connections

    def batches(self) -> Iterator[Batch]:
        with rare_collections():
            yield from self._batches()

    def _batches(self) -> Iterator[Batch]:
        for number, path in enumerate(self._in_order()):
            self.files.append(_about(os.fspath(path)))
            yield from self._read(number)
            yield from self._sink.flush([file.capture_id for file in self.files])
        self._deliver(self._reassembler.finish(), AFTER_ALL)
        self._end_of_recording()
        yield from self._sink.flush([file.capture_id for file in self.files])

    # -- files --------------------------------------------------------------------------------------------------

    def _in_order(self) -> Sequence[str | os.PathLike[str]]:
        """Secrets that stand in front of a file's packets open connections of the files before it as well."""
        if len(self._paths) == 1:
            return self._paths
        return sort_by_first_packet(self._paths, self.settings.limits, lambda capture: self.take_secrets(capture, 0))

    def _read(self, number: int) -> Iterator[Batch]:
        file = self.files[number]
        tree = TreeHash()
        taken = 0
        try:
            capture = open_capture(file.path, self.settings.limits, on_bytes=tree.update if self._hash else None)
        except CaptureError as error:
            file.error_code = error.code.value if error.code is not None else "NOT_A_CAPTURE"
            file.error_hint = f"{error.detail}; {error.hint}".rstrip("; ")
            return
        with capture:
            for block in capture:
                segments = self._dissector.segments(block)
                self._newest_second = max(self._newest_second, int(block.ts_ns[-1]) // 1_000_000_000)
                taken = self.take_secrets(capture, taken)
                items = self._reassembler.feed(segments, number)
                self._deliver(items, number << FRAME_BITS | int(block.frame[-1]))
                if self._progress is not None:
                    self._progress(capture.size_bytes, number)
                yield from self._sink.ready()
        file.capture_id = tree.result() if self._hash else file.path
        self._describe(file, capture)

    def take_secrets(self, capture: Capture, taken: int) -> int:
        """TLS secrets that the capture itself carries, after the first `taken`; how many there are by now."""
        found = capture.decryption_secrets
        if len(found) > taken and can_decrypt():
            self.settings.keylog.add(tls_secrets(found[taken:]))
        return len(found)

    def _describe(self, file: CaptureFile, capture: Capture) -> None:
        file.format, file.compression = capture.format, capture.compression or None
        file.link_types, file.snaplen = [int(t) for t in capture.link_types], capture.snaplen or None
        file.packets, file.packets_truncated = capture.packets, capture.packets_truncated
        file.ts_first = None if capture.ts_first_ns is None else capture.ts_first_ns // 1000
        file.ts_last = None if capture.ts_last_ns is None else capture.ts_last_ns // 1000
        file.status = capture.status
        file.problems = [*capture.problems, *self._new_problems()]
        error = capture.error
        unreadable = [p for p in file.problems if p.code is ViolationCode.CAPTURE_LINK_TYPE]
        if error is None and unreadable and sum(p.count for p in unreadable) >= capture.packets > 0:
            file.status, error = "failed", unreadable[0]
        if error is not None:
            file.error_code, file.error_hint = error.code.value, f"{error.detail}; {error.hint}".rstrip("; ")

    def _new_problems(self) -> list[Problem]:
        """What the dissector and the reassembler complain about since the last file."""
        return [*self._dissector.take_problems(), *self._reassembler.take_problems()]

    # -- connections ----------------------------------------------------------------------------------------------

    def _deliver(self, items: Sequence[Item], at: int) -> None:
        """One window's items to their conversations, then let these speak."""
        touched: dict[int, Conversation] = {}
        closed: list[Conversation] = []
        for item in items:
            connection = item.connection
            conversation = connection.tag
            if conversation is None:
                conversation = connection.tag = Conversation(connection, self.settings, self._tunnels)
                self._open[connection.number] = conversation
                for side, second, values in self._early.pop(connection.number, ()):
                    conversation.seconds[side ^ connection.origin].add_tcp(second, values)
            if isinstance(item, Closed):
                closed.append(conversation)
                touched.pop(connection.number, None)
            else:
                conversation.receive(item)
                touched[connection.number] = conversation
        for session in self._tunnels.settle():
            if session.connection.tag is not None:
                touched.setdefault(session.connection.number, session.connection.tag)
        self._take_intervals()
        for conversation in touched.values():
            conversation.advance(self._sink, at, self._newest_second)
        self._close_all(closed, final=at == AFTER_ALL)

    def _close_all(self, closed: list[Conversation], final: bool) -> None:
        """In their order, but a connection on which a tunnel began stays while others carry that on."""
        waiting, left = [*self._lingering, *closed], -1
        self._lingering = []
        closed.clear()
        while len(waiting) != left:
            left, stay = len(waiting), []
            waiting.reverse()
            while waiting:  # each goes as soon as it is told: thousands may end together
                conversation = waiting.pop()
                if self._tunnels.carried_on(conversation.connection):
                    stay.append(conversation)
                else:
                    self._close(conversation)
            waiting = stay
        for conversation in waiting if final else ():
            self._close(conversation)
        self._lingering = [] if final else waiting
        if self._separated:
            over = [c for c in self._separated if final or _over(c)]
            self._separated = [c for c in self._separated if c not in over]
            for conversation in over:
                self._close(conversation)

    def _separate(self, shared: SharedConnection) -> Callable[[Item], None]:
        conversation = shared.tag = Conversation(cast(Connection, shared), self.settings, self._tunnels)
        self._separated.append(conversation)
        return conversation.take_inside

    def _take_intervals(self) -> None:
        found = self._reassembler.take_intervals()
        columns = [
            column.tolist()
            for column in (
                found.connection, found.side, found.second, found.packets, found.bytes,
                found.retransmitted_bytes, found.gap_bytes, found.zero_window_ns, found.window_min,
                found.in_flight_max, found.rtt_sum_ns, found.rtt_samples,
            )
        ]  # fmt: skip
        for number, side, second, *values in zip(*columns):
            conversation = self._open.get(number)
            if conversation is None:
                self._early.setdefault(number, []).append((side, second, tuple(values)))
            elif conversation.refusal is None:
                conversation.seconds[side ^ conversation.connection.origin].add_tcp(second, tuple(values))

    def _close(self, conversation: Conversation) -> None:
        connection = conversation.connection
        self._open.pop(connection.number, None)
        self._early.pop(connection.number, None)
        connection.tag = None
        closed = conversation.close(self._sink)
        conversation.release()
        if closed:
            self.connections += 1
            if not conversation.shown:
                self._not_shown.add(conversation.uid or "")
            return
        why = conversation.refusal or "unknown"
        self.refusals[why] = self.refusals.get(why, 0) + 1
        if why != "filtered":
            for number in connection.files:
                self.files[number].other_flows += 1

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end_of_recording(self) -> None:
        sink = self._sink
        if self.files:
            self.files[-1].problems += self._new_problems()
        settings = self.settings
        endings = [Ended(*row) for row in sink.take_late("endings")]
        streams = number_attempts(sink.take_late("streams"), {end.uid: end.orig_h for end in endings})
        sink.add("streams", self._shown("streams", streams))
        if settings.frames is not None:
            sink.add("deliveries", settings.frames.rows(streams))
        if settings.hindsight is not None:
            findings = settings.hindsight(streams, endings, sink.take_late("findings"))
            self.severities.update([row[_SEVERITY] for row in findings])
            sink.add("findings", self._shown("findings", findings))
        sink.add("captures", [file.row(self.settings.sensor) for file in self.files])
        for number, file in enumerate(self.files):
            fold = FindingFold()
            for problem in file.problems:
                frame = number << FRAME_BITS | (problem.frame or 0)
                fold.add(
                    Finding(
                        problem.code, problem.detail, problem.severity, CAPTURE, frame=frame,
                        ts=None if problem.ts_ns is None else problem.ts_ns // 1000, times=problem.count,
                        fix_hint=problem.remedy,
                    )
                )  # fmt: skip
            rows = fold.rows(None, self.settings.catalogue)
            self.severities.update([row[_SEVERITY] for row in rows])
            sink.add("findings", rows)

    def _shown(self, table: str, rows: list[Row]) -> list[Row]:
        if not self._not_shown:
            return rows
        uid = column_names(table).index("uid")
        return [row for row in rows if row[uid] not in self._not_shown]


def _over(conversation: Conversation) -> bool:
    return isinstance(conversation.wrapping, SessionWrapping) and conversation.wrapping.session.finished


def _about(path: str) -> CaptureFile:
    if path == "-":
        return CaptureFile(path)
    facts = Path(path).stat()
    return CaptureFile(path, size_bytes=facts.st_size, modified_at=facts.st_mtime_ns // 1000)


def analyze(
    paths: Iterable[str | os.PathLike[str]], settings: Settings | None = None, tables: Sequence[str] = ALL_TABLES
) -> Iterator[Batch]:
    """The tables of a recording as (table, record batch)."""
    yield from Recording(paths, settings, tables).batches()
