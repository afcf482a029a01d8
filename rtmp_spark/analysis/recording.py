"""The sequential analysis: capture files to tables, in windows, with bounded memory.

Several files are one recording: they are read in the order of their first packets, and a connection that continues in
the next file is one connection. The rows of an ingest are tested against the rows of this analysis. It writes and
prints nothing: it returns record batches and keeps the result for each file.

The connections of large captures can be divided among processes. Each of them reads all packets, decodes its own
connections, and sends their rows, window by window; here they are put in the order in which one process would make
them. What needs all connections (RTMPT sessions, TLS secrets in a capture, limits on the memory of all connections)
makes one process start again; it leaves out the batches that were returned before.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

from rtmp_spark import __version__
from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.core import AnalysisCore
from rtmp_spark.analysis.decoding_processes import DecodingProcesses, ProcessLost, Send, can_fork
from rtmp_spark.analysis.recorded_rows import Recorded, Stage, replay
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.content_hash import TreeHash
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.files.live_input import LiveInput, open_live
from rtmp_spark.capture.files.open_capture import Capture, OnBytes, open_capture, sort_by_first_packet
from rtmp_spark.capture.memory_tuning import rare_collections
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.problem import Problem
from rtmp_spark.capture.tcp.connection_share import ConnectionShare, NotSeparable, is_spread
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog, can_decrypt, tls_secrets
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import (
    BRIEF_FLOWS_AT_ONCE,
    READ_WINDOW_BYTES,
    REMEMBERED_PACKETS,
    SEPARATED_BYTES,
    SPREAD_WINDOW_BYTES,
    Limits,
)
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.attempts import number_attempts
from rtmp_spark.forensics.ended_connection import Ended
from rtmp_spark.forensics.findings import problem_findings
from rtmp_spark.forensics.rules_across_connections import findings_across_connections
from rtmp_spark.schema import TABLES, column_names

_SEVERITY = column_names("findings").index("severity")
ALL_TABLES = tuple(name for name in TABLES if name not in ("payloads", "open_flows", "deliveries", "paths"))

_File = tuple[str | os.PathLike[str], int | None]  # a path and the time of its first packet, if there are several
Progress = Callable[[int, int], None]  # bytes of the current file read so far, number of the file


class CaptureSource(Protocol):
    """Where the captures of a recording are."""

    def about(self, path: str) -> FileFacts: ...

    def open(self, facts: FileFacts, limits: Limits, on_bytes: OnBytes | None) -> Capture: ...


class LocalFiles:
    """Captures on this machine; `-` is standard input."""

    def about(self, path: str) -> FileFacts:
        if path == "-":
            return FileFacts(path)
        found = Path(path).stat()
        return FileFacts(path, size_bytes=found.st_size, modified_at=found.st_mtime_ns // 1000)

    def open(self, facts: FileFacts, limits: Limits, on_bytes: OnBytes | None) -> Capture:
        return open_capture(facts.path, limits, on_bytes=on_bytes, facts=facts)


class LiveFiles(LocalFiles):
    """Captures of which some are pipes, or with `follow` files that grow: what is there is read at once."""

    def __init__(self, *, follow: bool = False) -> None:
        self.follow = follow
        self._input: LiveInput | None = None

    @property
    def waiting(self) -> bool:
        """Whether more of the capture may come."""
        return self._input is not None and not self._input.ended

    def stop(self) -> bool:
        """What is there now is the rest; returns whether anything was being read."""
        if self._input is None:
            return False
        self._input.stop()
        return True

    def open(self, facts: FileFacts, limits: Limits, on_bytes: OnBytes | None) -> Capture:
        self._input = open_live(facts.path, follow=self.follow)
        if self._input is None:
            return super().open(facts, limits, on_bytes)
        return Capture(cast(BinaryIO, self._input), limits, READ_WINDOW_BYTES, on_bytes, facts, close_file=True)


class _Window(NamedTuple):
    """What one process found in a window."""

    entries: list[Recorded]
    size_bytes: int  # of the file, read so far
    file_no: int


class _End(NamedTuple):
    """What one process found at the end."""

    entries: list[Recorded]
    brief_flows: int  # connections of a few packets that had not ended before
    connections: int
    refusals: Counter[str]
    other_connections: Counter[int]
    problems: list[Problem]


class _NotYetNoted(ConnectionObserver):
    """Leaves out the first connections, which the observer knows already."""

    def __init__(self, observer: ConnectionObserver, known: int) -> None:
        self._observer = observer
        self._known = known

    def note(self, connection: ConnectionAnalysis) -> object:
        return self._observer.note(connection)

    def noted(self, note: object) -> None:
        self._known -= 1
        if self._known < 0:
            self._observer.noted(note)


class Recording:
    """Captures that belong together: iterate `batches()` once; `files` and `connections` are final after that."""

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        settings: Settings | None = None,
        tables: Sequence[str] = ALL_TABLES,
        *,
        progress: Progress | None = None,
        observer: ConnectionObserver | None = None,
        identify: bool = True,
        source: CaptureSource | None = None,
    ) -> None:
        """`identify=False` uses paths as capture ids, which saves hashing every byte."""
        self.settings = settings or Settings()
        self._tables = tables
        self._paths = [os.fspath(path) for path in paths]
        self._source = source or LocalFiles()
        self._observer = observer or ConnectionObserver()
        self._core = self._new_core()
        self._dissector = Dissector()
        self._hash = identify and any(set(column_names(t)) & {"capture_id", "capture_ids"} for t in tables)
        self._progress = progress
        self._is_share = False  # this is another process, which decodes some of the connections
        self._noted = 0  # connections that the observer knows from other processes
        self.files: list[FileFacts] = []
        self.severities: Counter[str] = Counter()  # of all findings, shown or not

    @property
    def connections(self) -> int:
        return self._core.connections

    @property
    def refusals(self) -> Counter[str]:
        """Why TCP connections gave no rows."""
        return self._core.refusals

    def batches(self) -> Iterator[Batch]:
        with rare_collections():
            yield from self._batches()

    def _new_core(self, share: ConnectionShare | None = None) -> AnalysisCore:
        settings = self.settings if share is None else replace(self.settings, helpers=None)
        core = AnalysisCore(settings, self._tables, self._observer, share, closes_early=True)
        core.remember_packets(REMEMBERED_PACKETS if len(self._paths) > 1 else 0)
        return core

    def _batches(self) -> Iterator[Batch]:
        files = self._in_order()
        taken = 0
        if self._divides(files):
            try:
                for batch in self._divided(files):
                    taken += 1
                    yield batch
                return
            except NotSeparable:
                pass
            except ProcessLost:
                self.settings.warn("A process that decodes has died; the captures are read again by one process.")
            self.files = []
            self._observer = _NotYetNoted(self._observer, self._noted)
            self._core = self._new_core()
        yield from itertools.islice(self._undivided(files), taken, None)  # the same batches as before

    def _undivided(self, files: Sequence[_File]) -> Iterator[Batch]:
        for number in range(len(files)):
            yield from self._read_file(files, number)
            yield from self._core.batches(self._capture_ids)
        self._core.finish()
        self._end()
        yield from self._core.batches(self._capture_ids)

    # -- several processes -----------------------------------------------------------------------------------------

    def _divides(self, files: Sequence[_File]) -> bool:
        """Whether several processes are faster and give the same rows."""
        if self.settings.jobs < 2 or len(self.settings.keylog) or not can_fork():
            return False
        if not isinstance(self._source, LocalFiles) or (isinstance(self._source, LiveFiles) and self._source.follow):
            return False
        paths = [Path(path) for path, _ in files]
        if not all(path.is_file() for path in paths):
            return False
        return sum(path.stat().st_size for path in paths) >= SEPARATED_BYTES and self._is_spread(files[0][0])

    def _is_spread(self, path: str | os.PathLike[str]) -> bool:
        """Whether the first packets of a capture show that several processes are worth their cost."""
        try:
            with open_capture(path, self.settings.limits, window_bytes=SPREAD_WINDOW_BYTES) as capture:
                segments = Dissector().segments(next(iter(capture)))
        except (CaptureError, StopIteration):
            return False
        return is_spread(segments)

    def _divided(self, files: Sequence[_File]) -> Iterator[Batch]:
        """The same batches as `_undivided`, from rows that other processes decode."""
        with DecodingProcesses(self.settings.jobs, lambda share, send: self._decode_share(files, share, send)) as parts:
            for _ in files:
                while isinstance((received := parts.receive())[0], _Window):
                    windows = cast("list[_Window]", received)
                    self._add_recorded([window.entries for window in windows])
                    if self._progress is not None:
                        self._progress(windows[0].size_bytes, windows[0].file_no)
                    yield from self._core.ready()
                self.files.append(cast(FileFacts, received[0]))
                yield from self._core.batches(self._capture_ids)
            ends = cast("list[_End]", parts.receive())
        brief = any(entry.stage == Stage.BRIEF_FLOWS for end in ends for entry in end.entries)
        if brief and sum(end.brief_flows for end in ends) > BRIEF_FLOWS_AT_ONCE:
            raise NotSeparable  # one process ends them in several steps
        self._add_recorded([end.entries for end in ends])
        for end in ends:
            self._core.connections += end.connections
            self._core.refusals.update(end.refusals)
            self._core.other_connections.update(end.other_connections)
        if self.files:
            self.files[-1].problems += ends[0].problems
        self._end()
        yield from self._core.batches(self._capture_ids)

    def _add_recorded(self, entries: list[list[Recorded]]) -> None:
        ordered = sorted(itertools.chain.from_iterable(entries), key=lambda entry: entry.key)
        self._noted += replay(ordered, self._core.sink, self._core.deliveries, self._observer)

    def _decode_share(self, files: Sequence[_File], share: ConnectionShare, send: Send) -> None:
        """In another process: decode some of the connections."""
        core = self._core = self._new_core(share)
        self._is_share = True
        self._hash = self._hash and share.own == 0
        self._progress = lambda size, file_no: send(_Window(core.take_recorded(), size, file_no))
        for number in range(len(files)):
            for _ in self._read_file(files, number):
                pass
            send(self.files[number])
        brief = core.brief_flows
        core.finish()
        problems = self._new_problems()
        send(_End(core.take_recorded(), brief, core.connections, core.refusals, core.other_connections, problems))

    @property
    def _capture_ids(self) -> list[str | None]:
        return [file.capture_id for file in self.files]

    # -- files --------------------------------------------------------------------------------------------------

    def _in_order(self) -> Sequence[_File]:
        """Paths in the order of time, with the times of their first packets.

        TLS secrets before a file's packets also apply to the files before it.
        """
        if len(self._paths) == 1:
            return [(self._paths[0], None)]
        keylog = self.settings.keylog
        return sort_by_first_packet(self._paths, self.settings.limits, lambda capture: take_secrets(keylog, capture, 0))

    def _read_file(self, files: Sequence[_File], number: int) -> Iterator[Batch]:
        self.files.append(self._source.about(os.fspath(files[number][0])))
        self._core.begin_file(files[number + 1][1] if number + 1 < len(files) else None)
        yield from self._read(number)

    def _read(self, number: int) -> Iterator[Batch]:
        file = self.files[number]
        tree = TreeHash()
        taken = 0
        try:
            on_bytes = tree.update if self._hash else None
            capture = self._source.open(file, self.settings.limits, on_bytes)
        except CaptureError as error:
            file.fail(error)
            return
        with capture:
            for block in capture:
                segments = self._dissector.segments(block)
                taken = take_secrets(self.settings.keylog, capture, taken)
                if taken and self._is_share:
                    raise NotSeparable
                waiting = isinstance(self._source, LiveFiles) and self._source.waiting
                self._core.live = waiting and self._observer.live
                self._core.feed(block, segments, number)
                if self._progress is not None:
                    self._progress(capture.size_bytes, number)
                yield from self._core.ready(all_rows=waiting)
                if self._core.live:
                    self._core.tell_settled()
                del block, segments
        file.capture_id = tree.result() if self._hash else file.path
        file.conclude(self._new_problems())

    def _new_problems(self) -> list[Problem]:
        """Problems of the dissector and the reassembler since the last file."""
        return [*self._dissector.take_problems(), *self._core.take_problems()]

    # -- end -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Complete the rows that need the whole recording."""
        sink = self._core.sink
        if self.files:
            self.files[-1].problems += self._new_problems()
        for number, count in self._core.other_connections.items():
            self.files[number].other_flows = count
        endings = [Ended(*row) for row in sink.take_late("endings")]
        streams = number_attempts(sink.take_late("streams"), {end.uid: end.orig_h for end in endings})
        sink.add("streams", streams)
        limited: list[Row] = []
        if self._core.deliveries is not None:
            matched = self._core.deliveries.matched(streams)
            sink.add("deliveries", matched.rows)
            limited = matched.findings
            if self._core.deliveries.ignored:
                self.files[-1].problems.append(_unmatched_frames(self._core.deliveries.ignored))
        if self.settings.rules_across_connections:
            findings = [*findings_across_connections(streams, endings, sink.take_late("findings")), *limited]
            self.severities.update([row[_SEVERITY] for row in findings])
            sink.add("findings", findings)
        for table, rows in file_rows(self.files, self.settings.sensor).items():
            sink.add(table, rows)
            if table == "findings":
                self.severities.update([row[_SEVERITY] for row in rows])


def _unmatched_frames(count: int) -> Problem:
    text = f"{count} media messages were not compared to match played with published streams"
    return Problem(ViolationCode.CAPTURE_LIMIT, text, "ingest the capture into a lake, which has no such limit", count)


def take_secrets(keylog: KeyLog, capture: Capture, taken: int) -> int:
    """Add the TLS secrets that a capture contains, after the first `taken`, to `keylog`; returns how many it has."""
    found = capture.decryption_secrets
    if len(found) > taken and can_decrypt():
        keylog.add(tls_secrets(found[taken:]))
    return len(found)


def file_rows(files: Sequence[FileFacts], sensor: str) -> dict[str, list[Row]]:
    """The rows about files: `captures`, and `findings` with file numbers in place of capture ids."""
    findings = [row for number, file in enumerate(files) for row in problem_findings(number, file.problems).rows(None)]
    return {"captures": [capture_row(file, sensor) for file in files], "findings": findings}


def capture_row(file: FileFacts, sensor: str) -> Row:
    """The row of `captures` about a file; `ingested_at` is empty."""
    times = (None if ns is None else ns // 1000 for ns in (file.ts_first_ns, file.ts_last_ns))
    return (
        file.capture_id, sensor, file.path, file.size_bytes, file.modified_at, file.format, file.compression,
        file.link_types, file.snaplen, file.packets, file.truncated.count, file.other_flows, *times,
        file.status, file.error_code, file.error_hint, __version__, None,
    )  # fmt: skip
