"""How `inspect` shows tables: JSON Lines, plain columns, and the screen.

Every string from the wire is shown without control characters; nothing here decodes or judges.
"""

from __future__ import annotations

import json
import time
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

import pyarrow as pa

from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.findings import Finding, lasting
from rtmp_spark.capture.recording import Recording
from rtmp_spark.capture.rows import Batch
from rtmp_spark.codec.errors import LAYER, Severity
from rtmp_spark.codec.message import type_name
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.commands.terminal import STYLES, Say, ends, printer
from rtmp_spark.report import verdict

SCREEN_TABLES = ("captures", "connections", "streams", "findings")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CELL_CHARS = 48
_LONGEST_LINE = 2000  # whatever a peer calls itself


# -- values -----------------------------------------------------------------------------------------------------


def time_text(microseconds: int) -> str:
    """2026-01-31T12:00:00.000000Z"""
    seconds, rest = divmod(microseconds, 1_000_000)
    try:
        when = time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return str(microseconds)
    return f"{when[0]:04}-{when[1]:02}-{when[2]:02}T{when[3]:02}:{when[4]:02}:{when[5]:02}.{rest:06}Z"


def _json_column(name: str, column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [None if v is None else time_text(v) for v in column.view(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    if name == "args":
        return [None if v is None else json.loads(v) for v in values]
    if pa.types.is_binary(kind):
        return [None if v is None else v.hex() for v in values]
    if pa.types.is_floating(kind):
        return [None if v is None or v != v or v in (float("inf"), float("-inf")) else v for v in values]
    return values


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [_json_column(name, column) for name, column in zip(names, batch.columns)]
    for values in zip(*columns):
        yield dict(zip(names, values))


def print_json(batches: Iterable[Batch], out: TextIO, *, with_table: bool) -> None:
    for table, batch in batches:
        for row in json_rows(batch):
            if with_table:
                row = {"table": table, **row}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        out.flush()


def file_names(captures: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What to call each capture, by its id, as short as tells them apart; nothing where there is only one."""
    paths = {row["capture_id"]: row["path"] for row in captures if row["capture_id"]}
    if len(paths) < 2:
        return {}
    short = {capture: path.rstrip("/").rpartition("/")[2] for capture, path in paths.items()}
    return short if len(set(short.values())) == len(short) else paths


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False)
    text = harmless(str(value))
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"


def print_table(batches: Iterable[Batch], out: TextIO) -> None:
    """Aligned columns; those without any value in the first batch are left out."""
    names: list[str] = []
    widths: list[int] = []
    for _, batch in batches:
        rows = list(json_rows(batch))
        if not rows:
            continue
        if not names:
            names = [name for name in batch.schema.names if any(row[name] is not None for row in rows)]
            widths = [max(len(name), *(len(_cell(row[name])) for row in rows)) for name in names]
            out.write("  ".join(name.ljust(width) for name, width in zip(names, widths)).rstrip() + "\n")
        for row in rows:
            cells = (_cell(row[name]).ljust(width) for name, width in zip(names, widths))
            out.write("  ".join(cells).rstrip() + "\n")
        out.flush()


# -- the screen -----------------------------------------------------------------------------------------------------

_SHOWN_CONNECTIONS = 12
_SHOWN_COMMANDS = 16
_SHOWN_FINDINGS = 12
_SHOWN_TROUBLED = 8
_VERDICTS = {"ok": "green", "degraded": "yellow", "failed": "bold red", "no_media": "yellow", "unknown": "dim"}
_RANK = {"error": 0, "warning": 1, "info": 2}


class Screen:
    """What a person wants to read about a recording, collected from its tables and connections.

    Only the earliest connections are shown one by one, so only theirs become rows; of the others, those with errors are
    named.
    """

    def __init__(self) -> None:
        self._batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in SCREEN_TABLES}
        self._first: list[tuple[int, str]] = []  # time and uid
        self._kept: dict[str, Conversation] = {}
        self._messages = 0
        self._troubled: list[tuple[int, str, str]] = []  # of the others: time, uid, the first error
        self._troubles = 0

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        self._batches[table].append(batch)

    def shows(self, conversation: Conversation) -> bool:
        """Whether it is among the first, as far as connections are known."""
        place = (conversation.connection.ts_first_ns or 0, conversation.uid or "")
        if place not in self._first:
            insort(self._first, place)
            del self._first[_SHOWN_CONNECTIONS:]
        return place in self._first

    def closed(self, conversation: Conversation) -> None:
        self._messages += sum(d.messages_seen for d in conversation.directions if d is not None)
        if conversation.shown:
            self._kept[conversation.uid or ""] = conversation
            return
        if Severity.ERROR in conversation.findings.severities():
            errors = [f for f in conversation.findings.first_ones() if f.severity is Severity.ERROR]
            self._troubles += 1
            insort(self._troubled, (conversation.connection.ts_first_ns or 0, conversation.uid or "", _first(errors)))
            del self._troubled[_SHOWN_TROUBLED:]

    def _rows(self, table: str, uids: set[str | None] | None = None) -> list[dict[str, Any]]:
        """Rows of a table, all or those of some connections."""
        rows: list[dict[str, Any]] = []
        for batch in self._batches[table]:
            if uids is None:
                rows += json_rows(batch)
                continue
            for index, uid in enumerate(batch.column("uid").to_pylist()):
                if uid in uids:
                    rows += json_rows(batch.slice(index, 1))
        return rows

    def show(self, recording: Recording) -> None:
        say_whole = printer()

        def say(text: str = "", style: str = "", indent: int = 0) -> None:
            say_whole(text[:_LONGEST_LINE], style, indent)

        shown = {uid: self._kept[uid] for _, uid in self._first if uid in self._kept}
        findings = self._rows("findings", {None, *shown})
        streams = self._rows("streams", set(shown))
        captures = self._rows("captures")
        files = file_names(captures)
        for capture in captures:
            say(self._capture_line(capture), "bold" if capture["status"] == "ok" else "bold yellow")
            if capture["error_hint"]:
                say(f"{capture['status']}: {capture['error_hint']}", "yellow", 2)
        for finding in findings:
            if finding["uid"] is None:
                self._finding(say, finding, files)
        connections = self._rows("connections", set(shown))
        for row in sorted(connections, key=lambda row: (row["ts_start"], row["uid"])):
            say()
            uid = row["uid"]
            self._connection(
                say,
                row,
                [s for s in streams if s["uid"] == uid],
                shown[uid],
                [f for f in findings if f["uid"] == uid],
                files,
            )
        say()
        if recording.connections > len(connections):
            self._later(say, recording.connections - len(connections))
            say()
        published = {_named(row) for row in streams if row["role"] == "publish"}
        played = {_named(row) for row in streams if row["role"] == "play" and row["media_bytes"]}
        if played & published:
            say("Which frames of a publisher reached its players, and how late: --table deliveries", "dim")
            say()
        say(self._tally(recording), "bold")

    def _later(self, say: Say, count: int) -> None:
        bad = f", {self._troubles} of them with errors" if self._troubles else ""
        say(f"... and {count} later ones{bad}: `rtmp-spark check` has the findings of all, `report` the verdicts")
        for _, uid, error in self._troubled:
            say(f"{uid}  {error}", STYLES["error"], 2)
        if self._troubled:
            say("--uid UID shows one of them", "dim", 2)

    def _tally(self, recording: Recording) -> str:
        others = sum(n for why, n in recording.refusals.items() if why != "filtered")
        told = recording.severities
        counted = ", ".join(f"{told[s]} {s}{'s' if told[s] != 1 and s != 'info' else ''}" for s in _RANK if told[s])
        connections = recording.connections
        return (
            f"{connections} RTMP connection{'' if connections == 1 else 's'}, {self._messages} messages; "
            f"findings: {counted or 'none'}; {others} other TCP connection{'' if others == 1 else 's'}"
        )

    @staticmethod
    def _capture_line(row: dict[str, Any]) -> str:
        words = [row["path"], row["format"] or "unreadable"]
        if row["compression"]:
            words.append(row["compression"])
        words.append(f"{row['packets']} packets")
        if row["ts_first"] and row["ts_last"]:
            words.append(f"{row['ts_first'][:19].replace('T', ' ')} UTC, {_span(row['ts_first'], row['ts_last'])}")
        return ", ".join(words)

    def _connection(
        self,
        say: Say,
        row: dict[str, Any],
        streams: list[dict[str, Any]],
        conversation: Conversation,
        findings: list[dict[str, Any]],
        files: Mapping[str, str],
    ) -> None:
        uid = row["uid"]
        say(
            f"{uid}  {ends(row)}  {row['service']}{', joined in the middle' if row['midstream'] else ''}",
            "bold cyan",
        )
        says = [f"{row['ts_start'][11:23]} for {_span(row['ts_start'], row['ts_end'])}"]
        says.append(f"{_bytes(row['delivered_bytes_c2s'])} up, {_bytes(row['delivered_bytes_s2c'])} down")
        ended = f"closed by the {row['closed_by']} ({row['close_kind']})"
        if row["close_kind"] == "open":
            ended = "still open at the end"
        says.append(f"{ended}: {row['close_cause'].replace('_', ' ')}")
        say("; ".join(says), "", 2)
        about = [f"app {row['app']}"] if row["app"] else []
        for side, software, says_it_is in (
            ("client", row["software"], row["flash_ver"]),
            ("server", row["server_software"], row["server_ver"]),
        ):
            if software or says_it_is:
                about.append(f"{side} {software or 'unknown'}" + (f" (says {says_it_is})" if says_it_is else ""))
        if about:
            say("; ".join(about), "", 2)
        lost = row["missed_bytes_c2s"] + row["missed_bytes_s2c"]
        if lost or row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]:
            again = row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]
            say(f"TCP: {_bytes(lost)} missing, {_bytes(again)} sent again", "", 2)
        for stream in streams:
            word = stream["verdict"]
            say(_stream_line(stream), _VERDICTS["ok"] if word == "ok" else "", 2)
            if word != "ok":
                say(f"{word.replace('_', ' ')}: {stream['verdict_text']}", _VERDICTS[word], 4)
        findings = sorted(findings, key=lambda f: (_RANK[f["severity"]], f["frame"] or 0, LAYER.get(f["rule_id"], 0)))
        if not streams:
            judged = verdict.judge(row, streams, findings)
            say(f"{judged.word}: {judged.sentence}", _VERDICTS[judged.word], 2)
        types: Counter[str] = Counter()
        for direction in conversation.directions:
            if direction is not None:
                for type_id, count in direction.type_counts.items():
                    types[type_name(type_id)] += count
        if types:
            say("messages: " + ", ".join(f"{name} {count}" for name, count in types.most_common()), "dim", 2)
        self._ladder(say, conversation)
        for finding in findings[:_SHOWN_FINDINGS]:
            self._finding(say, finding, files)
        if len(findings) > _SHOWN_FINDINGS:
            say(f"... and {len(findings) - _SHOWN_FINDINGS} more findings", "dim", 2)

    @staticmethod
    def _ladder(say: Say, conversation: Conversation) -> None:
        start = (conversation.connection.ts_first_ns or 0) // 1000
        session = conversation.session
        for exchange in session.ladder[:_SHOWN_COMMANDS]:
            row = session.command_row(exchange)
            arrow = "->" if exchange.direction == "c2s" else "<-"
            words = f"{(row[1] - start) / 1e6:9.3f} s  {arrow} {row[5] or '?'}"
            if row[3]:
                words += f" [{row[3]}]"
            words += f" {row[12]}" if row[12] else _brief(json.loads(row[8]))
            if row[13]:
                words += f' "{row[13]}"'
            if row[10] is not None:
                words += f"  ({row[10]:.0f} ms)"
            say(words, "red" if row[11] == "error" or row[5] == "_error" else "", 4)
        if session.commands_seen > _SHOWN_COMMANDS:
            more = session.commands_seen - _SHOWN_COMMANDS
            say(f"... and {more} more: --table commands --uid {conversation.uid}", "dim", 4)

    @staticmethod
    def _finding(say: Say, row: dict[str, Any], files: Mapping[str, str]) -> None:
        place = f" at frame {row['frame']}" if row["frame"] else ""
        if row["capture_id"] in files:
            place += f" of {files[row['capture_id']]}"
        times = f" x{row['count']}" if row["count"] > 1 else ""
        fault = f" [{row['at_fault']}]" if row["at_fault"] else ""
        say(
            f"{row['severity']:<7} {row['rule_id']}{times}{place}{fault}: {row['detail']}",
            STYLES[row["severity"]],
            2,
        )


def _first(errors: Sequence[Finding]) -> str:
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{errors[0].code.value}{more}: {errors[0].detail}"


def _named(row: dict[str, Any]) -> tuple[str | None, str | None]:
    """Which stream it is to a server: what stands behind a question mark is for its doorman."""
    return row["app"], row["name"] and row["name"].partition("?")[0]


def _stream_line(row: dict[str, Any]) -> str:
    words = [f"{row['role']} {row['name'] or '(name not recorded)'} [{row['stream_id']}]"]
    if row["video_codec"]:
        size = f" {row['width']}x{row['height']}" if row["width"] else ""
        rate = _bitrate(row["video_bitrate"])
        words.append(f"{row['video_codec']}{size}, {row['video_messages']} messages{rate}{_key_frames(row)}")
    if row["audio_codec"]:
        hertz = f" {row['sample_rate']} Hz" if row["sample_rate"] else ""
        rate = _bitrate(row["audio_bitrate"])
        words.append(f"{row['audio_codec']}{hertz}, {row['audio_messages']} messages{rate}")
    if row["attempt_no"] > 1:
        words.append(f"attempt {row['attempt_no']}")
    if row["verdict"] == "ok":
        words.append("ok")
    return "; ".join(words)


def _bitrate(bits: float | None) -> str:
    """By media time, as in the table and on the page: how fast it crossed the network is another matter."""
    return "" if bits is None else f", {bits / 1000:.0f} kb/s"


def _key_frames(row: dict[str, Any]) -> str:
    """How far apart they are in media time, and how far at most where that is more."""
    typical, longest = row["keyframe_interval_ms_p50"], row["keyframe_interval_ms_max"]
    if typical is None:
        return ""
    more = f", at most {lasting(round(longest * 1000))}" if longest > 1.1 * typical else ""
    return f", key frames {lasting(round(typical * 1000))} apart{more}"


def _brief(args: list[Any]) -> str:
    """The arguments that tell something: strings and numbers, and the app of connect."""
    shown = []
    for value in args[:4]:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            shown.append(str(value)[:60])
        elif isinstance(value, dict) and "app" in value:
            shown.append(f"app={str(value['app'])[:60]}")
    return (" " + ", ".join(shown)) if shown else ""


def _seconds(start: str, end: str) -> float:
    first, last = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (start, end))
    return (last - first).total_seconds()


def _span(start: str, end: str) -> str:
    seconds = _seconds(start, end)
    if seconds < 120:
        return lasting(round(seconds * 1e6))
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
