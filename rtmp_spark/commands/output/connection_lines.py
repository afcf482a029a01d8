"""The lines of `inspect` about one connection: how it went, its streams, its commands and its findings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis
from rtmp_spark.codec.errors import LAYER
from rtmp_spark.codec.message import type_name
from rtmp_spark.commands.output.colours import HEADING, SEVERITY_STYLES, VERDICT_STYLES
from rtmp_spark.commands.output.terminal import PrintLine, client_and_server
from rtmp_spark.forensics.findings import lasting
from rtmp_spark.forensics.thresholds import LOSS_PACKETS
from rtmp_spark.report import units
from rtmp_spark.report.judged_connections import JudgedConnection
from rtmp_spark.schema import column_names

Row = dict[str, Any]
_SHOWN_COMMANDS = 16
_SHOWN_FINDINGS = 12
_COMMAND_COLUMNS = column_names("commands")[2:]  # a command row has no uid and direction yet
_WAYS = (("c2s", "up"), ("s2c", "down"))
_RANK = {"error": 0, "warning": 1, "info": 2}


class MessageLines(NamedTuple):
    """The lines about the messages of a connection, with the styles of those about commands."""

    types: str
    commands: list[tuple[str, str]]


def message_lines(connection: ConnectionAnalysis) -> MessageLines:
    """Call it when the connection is over. The analysis can be dropped after that; it is much larger."""
    types: Counter[str] = Counter()
    for direction in connection.directions:
        if direction is not None:
            for type_id, count in direction.type_counts.items():
                types[type_name(type_id)] += count
    counted = ", ".join(f"{name} {count}" for name, count in types.most_common())
    return MessageLines(f"messages: {counted}" if counted else "", list(_command_lines(connection)))


def print_connection(
    print_line: PrintLine, shown: JudgedConnection, messages: MessageLines, files: Mapping[str, str]
) -> None:
    """Print one connection. `files` are the names of the captures by id, if there are several."""
    row = shown.row
    midstream = ", recording starts mid-stream" if row["midstream"] else ""
    print_line(f"{row['uid']}  {client_and_server(row)}  {row['service']}{midstream}", HEADING)
    print_line(_life_line(row), "", 2)
    for line in (_peers_line(row), _tcp_line(row)):
        if line:
            print_line(line, "", 2)
    findings = sorted(shown.findings, key=lambda f: (_RANK[f["severity"]], f["frame"] or 0, LAYER.get(f["rule_id"], 0)))
    _print_verdicts(print_line, shown, findings)
    if messages.types:
        print_line(messages.types, "dim", 2)
    for line, style in messages.commands:
        print_line(line, style, 4)
    for finding in findings[:_SHOWN_FINDINGS]:
        print_line(finding_line(finding, files), SEVERITY_STYLES[finding["severity"]], 2)
    if len(findings) > _SHOWN_FINDINGS:
        print_line(f"... and {len(findings) - _SHOWN_FINDINGS} more findings", "dim", 2)


def _life_line(row: Row) -> str:
    """Start, duration, bytes and end of a connection."""
    ended = f"closed by the {row['closed_by']} ({row['close_kind']})"
    if row["close_kind"] == "open":
        ended = "still open at the end of the capture"
    return "; ".join(
        (
            f"{row['ts_start'][11:23]} for {span_text(row['ts_start'], row['ts_end'])}",
            f"{_bytes(row['delivered_bytes_c2s'])} up, {_bytes(row['delivered_bytes_s2c'])} down",
            f"{ended}: {row['close_cause'].replace('_', ' ')}",
        )
    )


def _peers_line(row: Row) -> str:
    """Application and software of both sides; empty if nothing is known."""
    known = [f"app {row['app']}"] if row["app"] else []
    for side, software, announced in (
        ("client", row["software"], row["flash_ver"]),
        ("server", row["server_software"], row["server_ver"]),
    ):
        if software or announced:
            known.append(f"{side} {software or 'unknown'}" + (f" (announces {announced})" if announced else ""))
    return "; ".join(known)


def _tcp_line(row: Row) -> str:
    """Missing, retransmitted and lost bytes; empty if there are none."""
    missing = row["missed_bytes_c2s"] + row["missed_bytes_s2c"]
    retransmitted = row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]
    if not missing and not retransmitted:
        return ""
    lost = [
        f"{row[f'loss_pct_{way}']:.1f} % lost {word}"
        for way, word in _WAYS
        if row[f"loss_pct_{way}"] and row[f"packets_{way}"] >= LOSS_PACKETS  # a rate of fewer says nothing
    ]
    return ", ".join([f"TCP: {_bytes(missing)} missing", f"{_bytes(retransmitted)} retransmitted", *lost])


def _print_verdicts(print_line: PrintLine, shown: JudgedConnection, findings: list[Row]) -> None:
    warnings = sum(finding["severity"] == "warning" for finding in findings)
    for stream in shown.streams:
        word = stream["verdict"]
        print_line(_stream_line(stream, warnings), VERDICT_STYLES["ok"] if word == "ok" and not warnings else "", 2)
        if word != "ok":
            print_line(f"{word.replace('_', ' ')}: {stream['verdict_text']}", VERDICT_STYLES[word], 4)
    if not shown.streams:
        word = shown.verdict.word
        print_line(f"{word}: {shown.verdict.sentence}", VERDICT_STYLES[word], 2)


def _command_lines(connection: ConnectionAnalysis) -> Iterator[tuple[str, str]]:
    start = (connection.connection.ts_first_ns or 0) // 1000
    commands = connection.commands
    for exchange in commands.first[:_SHOWN_COMMANDS]:
        row = dict(zip(_COMMAND_COLUMNS, commands.row(exchange)))
        arrow = "->" if exchange.direction == "c2s" else "<-"
        words = f"{(row['ts'] - start) / 1e6:9.3f} s  {arrow} {row['name'] or '?'}"
        if row["stream_id"]:
            words += f" [{row['stream_id']}]"
        words += f" {row['code']}" if row["code"] else _brief_arguments(json.loads(row["args"]))
        if row["description"]:
            words += f' "{row["description"]}"'
        if row["response_ms"] is not None:
            words += f"  ({row['response_ms']:.0f} ms)"
        yield words, "red" if row["level"] == "error" or row["name"] == "_error" else ""
    if commands.seen > _SHOWN_COMMANDS:
        more = commands.seen - _SHOWN_COMMANDS
        yield f"... and {more} more: --table commands --uid {connection.uid}", "dim"


def finding_line(row: Row, files: Mapping[str, str]) -> str:
    place = f" at frame {row['frame']}" if row["frame"] else ""
    if row["capture_id"] in files:
        place += f" of {files[row['capture_id']]}"
    times = f" x{row['count']}" if row["count"] > 1 else ""
    fault = f" [{row['at_fault']}]" if row["at_fault"] else ""
    return f"{row['severity']:<7} {row['rule_id']}{times}{place}{fault}: {row['detail']}"


def _stream_line(row: Row, warnings: int) -> str:
    words = [f"{row['role']} {row['name'] or '(name not recorded)'} [{row['stream_id']}]"]
    if row["video_codec"]:
        size = f" {row['width']}x{row['height']}" if row["width"] else ""
        rate = _bitrate(row["video_bitrate"])
        words.append(f"{row['video_codec']}{size}, {row['video_messages']} messages{rate}{_keyframes(row)}")
    if row["audio_codec"]:
        hertz = f" {row['sample_rate']} Hz" if row["sample_rate"] else ""
        rate = _bitrate(row["audio_bitrate"])
        words.append(f"{row['audio_codec']}{hertz}, {row['audio_messages']} messages{rate}")
    encoded, received = units.encoded_bitrate(row), row["received_bitrate"]
    if encoded is not None and received is not None:
        words.append(f"encoded {units.bitrate(encoded)}, received {units.bitrate(received)}{_pace(row)}")
    if row["attempt_no"] > 1:
        words.append(f"attempt {row['attempt_no']}")
    if row["verdict"] == "ok":
        words.append(f"ok, but {units.counted(warnings, 'warning')}" if warnings else "ok")
    return "; ".join(words)


def _pace(row: Row) -> str:
    return "" if row["pace"] is None else f" ({row['pace']:.2f} x real time)"


def _bitrate(bits: float | None) -> str:
    """The bitrate by timestamps, as in the table `streams`; the network may have been faster or slower."""
    return "" if bits is None else f", {units.bitrate(bits)}"


def _keyframes(row: Row) -> str:
    """The median keyframe interval by timestamps, and the longest one if it is over 10 % longer."""
    typical, longest = row["keyframe_interval_ms_p50"], row["keyframe_interval_ms_max"]
    if typical is None:
        return ""
    more = f" (longest {lasting(round(longest * 1000))})" if longest > 1.1 * typical else ""
    return f", keyframe every {lasting(round(typical * 1000))}{more}"


def _brief_arguments(args: list[Any]) -> str:
    """The strings and numbers among the first arguments of a command, and the app of connect."""
    shown = []
    for value in args[:4]:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            shown.append(str(value)[:60])
        elif isinstance(value, dict) and "app" in value:
            shown.append(f"app={str(value['app'])[:60]}")
    return (" " + ", ".join(shown)) if shown else ""


def span_text(start: str, end: str) -> str:
    """The duration between two times as they are in JSON rows."""
    first, last = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (start, end))
    seconds = (last - first).total_seconds()
    if seconds < 120:
        return lasting(round(seconds * 1e6))
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
