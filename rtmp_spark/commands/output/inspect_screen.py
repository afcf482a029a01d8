"""The screen of `inspect`: verdicts, captures, connections in detail, and a total.

A single connection is always shown in detail, several only with `--verbose`. verdict_lines.py and connection_lines.py
have the lines.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import Any, NamedTuple

import pyarrow as pa

from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.sensor_recordings import SensorRecordings
from rtmp_spark.commands.output.colours import HEADING, SEVERITY_STYLES
from rtmp_spark.commands.output.connection_lines import (
    MessageLines,
    Row,
    finding_line,
    message_lines,
    print_connection,
    span_text,
)
from rtmp_spark.commands.output.tables.json_lines import json_rows
from rtmp_spark.commands.output.terminal import PrintLine, line_printer, short_capture_names
from rtmp_spark.commands.output.verdict_lines import JudgedStream, judged_streams, print_verdicts, verdict_line
from rtmp_spark.report.judged_connections import JudgedConnections
from rtmp_spark.report.path_text import path_sentence
from rtmp_spark.report.verdict import SEVERITIES, counted_verdicts

SCREEN_TABLES = ("captures", "connections", "streams", "findings", "paths")
_LONGEST_LINE = 2000  # names from peers may have any length
_LISTED_VERDICTS = 60
_LISTED_CAPTURES = 4
_VERDICT_COLUMNS = {
    "connections": [
        "uid", "sensor", "ts_start", "orig_h", "orig_p", "service", "app", "close_cause", "packets_c2s", "packets_s2c",
        "loss_pct_c2s", "loss_pct_s2c",
    ],
    "streams": [
        "uid", "stream_id", "direction", "app", "name", "role", "ts_start", "media_bytes", "fps", "video_bitrate",
        "audio_bitrate", "received_bitrate", "verdict", "verdict_rule_id", "verdict_text",
    ],
}  # fmt: skip


class _Note(NamedTuple):
    uid: str
    messages: int
    lines: MessageLines | None  # if it may have to be shown in detail


class InspectScreen(ConnectionObserver):
    """Collects rows and connections while a recording is read; `show` prints the screen. Connections that end while a
    capture is still being written are printed at once."""

    live = True

    def __init__(self, *, verbose: bool = False, before_printing: Callable[[], None] = lambda: None) -> None:
        self._verbose = verbose
        self._before_printing = before_printing
        self._batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in SCREEN_TABLES}
        self._notes = self._connections = self._with_commands = 0
        self._message_count = 0
        self._messages: dict[str, MessageLines] = {}  # of the connections to show in detail

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        self._batches[table].append(batch)

    def first_commands_wanted(self) -> bool:
        self._with_commands += 1
        return self._verbose or self._with_commands == 1

    def note(self, connection: ConnectionAnalysis) -> _Note:
        self._notes += 1
        count = sum(d.messages_seen for d in connection.directions if d is not None)
        return _Note(connection.uid, count, message_lines(connection) if self._verbose or self._notes == 1 else None)

    def noted(self, note: object) -> None:
        assert isinstance(note, _Note)
        self._connections += 1
        self._message_count += note.messages
        if self._connections > 1 and not self._verbose:
            self._messages.clear()
        elif note.lines is not None:
            self._messages[note.uid] = note.lines

    def settled(self, batches: Sequence[Batch]) -> None:
        rows: dict[str, list[Row]] = {"connections": [], "streams": [], "findings": []}
        for table, batch in batches:
            rows[table] += json_rows(batch)
        self._before_printing()
        print_line = _line_printer()
        for connection in JudgedConnections(*rows.values()).all:
            print_connection(print_line, connection, MessageLines("", []), {})
            print_line()
        sys.stdout.flush()

    def show(self, recording: SensorRecordings) -> None:
        print_line = _line_printer()
        streams, findings, captures = (self._rows(table) for table in ("streams", "findings", "captures"))
        judged = JudgedConnections(self._rows("connections"), streams, findings)
        files = short_capture_names(captures)
        verdicts = judged_streams(judged)
        self._show_verdicts(print_line, verdicts, files)
        self._show_captures(print_line, captures, judged.of_files, files)
        for connection in judged.ranked() if self._messages else ():
            messages = self._messages.get(connection.row["uid"])
            if messages is not None:
                print_line()
                print_connection(print_line, connection, messages, files)
        print_line()
        for row in self._rows("paths"):
            print_line(f"{row['uid_a']} and {row['uid_b']} are one connection. {path_sentence(row)}")
            print_line()
        self._show_hints(print_line, streams, verdicts)
        print_line(self._total(recording), "bold")

    def _rows(self, table: str) -> list[Row]:
        """The rows of a table; without details only with the columns that the verdicts need."""
        chosen = None if self._messages else _VERDICT_COLUMNS.get(table)
        batches = self._batches[table]
        return [row for batch in batches for row in json_rows(batch if chosen is None else batch.select(chosen))]

    def _show_verdicts(self, print_line: PrintLine, judged: Sequence[JudgedStream], files: dict[str, str]) -> None:
        if not judged:
            return
        listed = judged if self._verbose else judged[:_LISTED_VERDICTS]
        lines = [verdict_line(one, files) for one in listed]
        print_verdicts(print_line, lines, get_terminal_size().columns if sys.stdout.isatty() else None)
        if len(listed) < len(judged):
            others = counted_verdicts(Counter(one.verdict.word for one in judged[len(listed) :]))
            print_line(f"... and {len(judged) - len(listed):,} more: {others}. -v lists all of them.")
        print_line()

    def _show_captures(
        self, print_line: PrintLine, captures: Sequence[Row], findings: Sequence[Row], files: dict[str, str]
    ) -> None:
        """All captures, or their sum and those that could not be read as a whole."""
        listed = captures
        if len(captures) > _LISTED_CAPTURES and not self._verbose:
            print_line(_captures_line(captures), HEADING)
            listed = [capture for capture in captures if capture["status"] != "ok"]
        for capture in listed:
            print_line(_capture_line(capture), "bold" if capture["status"] == "ok" else "bold yellow")
        for finding in findings:
            print_line(finding_line(finding, files), SEVERITY_STYLES[finding["severity"]], 2)
            if finding["fix_hint"]:
                print_line(f"-> {finding['fix_hint']}", "", 10)

    def _show_hints(self, print_line: PrintLine, streams: Sequence[Row], verdicts: Sequence[JudgedStream]) -> None:
        published = {_stream_key(row) for row in streams if row["role"] == "publish"}
        played = {_stream_key(row) for row in streams if row["role"] == "play" and row["media_bytes"]}
        hints = []
        if self._connections > 1 and verdicts and not self._verbose:
            hints.append(
                f"For details: -v for all connections, --uid {verdicts[0].connection.row['uid']} for the first"
            )
        if played & published:
            hints.append("For latency and missing frames between publisher and players: --table deliveries")
        for hint in hints:
            print_line(hint, "dim")
        if hints:
            print_line()

    def _total(self, recording: SensorRecordings) -> str:
        others = sum(n for why, n in recording.refusals.items() if why != "filtered")
        counts = recording.severities
        findings = ", ".join(
            f"{counts[s]} {s}{'s' if counts[s] != 1 and s != 'info' else ''}" for s in SEVERITIES if counts[s]
        )
        connections = recording.connections
        return (
            f"{connections} RTMP connection{'' if connections == 1 else 's'}, {self._message_count} messages; "
            f"findings: {findings or 'none'}; {others} other TCP connection{'' if others == 1 else 's'}"
        )


def _line_printer() -> PrintLine:
    print_whole_line = line_printer()

    def print_line(text: str = "", style: str = "", indent: int = 0) -> None:
        print_whole_line(text[:_LONGEST_LINE], style, indent)

    return print_line


def _capture_line(row: Row) -> str:
    words = [row["path"], row["format"] or "unreadable"]
    if row["compression"]:
        words.append(row["compression"])
    words.append(f"{row['packets']} packets")
    if row["ts_first"] and row["ts_last"]:
        words.append(f"{_second(row['ts_first'])} UTC, {span_text(row['ts_first'], row['ts_last'])}")
    return ", ".join(words)


def _captures_line(rows: Sequence[Row]) -> str:
    words = [f"{len(rows):,} captures", f"{sum(row['packets'] for row in rows):,} packets"]
    timed = [row for row in rows if row["ts_first"] and row["ts_last"]]
    if timed:
        first, last = min(row["ts_first"] for row in timed), max(row["ts_last"] for row in timed)
        words.append(f"{_second(first)} to {_second(last)} UTC")
    return ", ".join(words)


def _second(time: str) -> str:
    return time[:19].replace("T", " ")


def _stream_key(row: dict[str, Any]) -> tuple[str | None, str | None]:
    """Application and stream name without its query, which servers use for authentication only."""
    return row["app"], row["name"] and row["name"].partition("?")[0]
