"""The sequential analysis: capture files to tables, in windows, with bounded memory.

Several files are one recording: they are read in the order of their first packets, and a connection that continues in
the next file is one connection. The rows of an ingest are tested against the rows of this analysis. It writes and
prints nothing: it returns record batches and keeps the result for each file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from rtmp_spark import __version__
from rtmp_spark.analysis.connection_analysis import ConnectionObserver
from rtmp_spark.analysis.core import AnalysisCore
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.content_hash import TreeHash
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.files.live_input import LiveInput, open_live
from rtmp_spark.capture.files.open_capture import Capture, OnBytes, open_capture, sort_by_first_packet
from rtmp_spark.capture.memory_tuning import rare_collections
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.capture.problem import Problem
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog, can_decrypt, tls_secrets
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import READ_WINDOW_BYTES, REMEMBERED_PACKETS, Limits
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.attempts import number_attempts
from rtmp_spark.forensics.ended_connection import Ended
from rtmp_spark.forensics.findings import problem_findings
from rtmp_spark.forensics.rules_across_connections import findings_across_connections
from rtmp_spark.schema import TABLES, column_names

_SEVERITY = column_names("findings").index("severity")
ALL_TABLES = tuple(name for name in TABLES if name not in ("payloads", "open_flows", "deliveries", "paths"))

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
        self._follow = follow
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
        self._input = open_live(facts.path, follow=self._follow)
        if self._input is None:
            return super().open(facts, limits, on_bytes)
        return Capture(cast(BinaryIO, self._input), limits, READ_WINDOW_BYTES, on_bytes, facts, close_file=True)


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
        self._paths = [os.fspath(path) for path in paths]
        self._source = source or LocalFiles()
        self._observer = observer or ConnectionObserver()
        self._core = AnalysisCore(self.settings, tables, self._observer)
        self._core.remember_packets(REMEMBERED_PACKETS if len(self._paths) > 1 else 0)
        self._dissector = Dissector()
        self._hash = identify and any(set(column_names(t)) & {"capture_id", "capture_ids"} for t in tables)
        self._progress = progress
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

    def _batches(self) -> Iterator[Batch]:
        files = self._in_order()
        for number, (path, _) in enumerate(files):
            self.files.append(self._source.about(os.fspath(path)))
            self._core.begin_file(files[number + 1][1] if number + 1 < len(files) else None)
            yield from self._read(number)
            yield from self._core.batches(self._capture_ids)
        self._core.finish()
        self._end()
        yield from self._core.batches(self._capture_ids)

    @property
    def _capture_ids(self) -> list[str | None]:
        return [file.capture_id for file in self.files]

    # -- files --------------------------------------------------------------------------------------------------

    def _in_order(self) -> Sequence[tuple[str | os.PathLike[str], int | None]]:
        """Paths in the order of time, with the times of their first packets.

        TLS secrets before a file's packets also apply to the files before it.
        """
        if len(self._paths) == 1:
            return [(self._paths[0], None)]
        keylog = self.settings.keylog
        return sort_by_first_packet(self._paths, self.settings.limits, lambda capture: take_secrets(keylog, capture, 0))

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
                waiting = isinstance(self._source, LiveFiles) and self._source.waiting
                self._core.live = waiting and self._observer.live
                self._core.feed(block, segments, number)
                if self._progress is not None:
                    self._progress(capture.size_bytes, number)
                yield from self._core.ready(all_rows=waiting)
                if self._core.live:
                    self._core.tell_settled()
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
