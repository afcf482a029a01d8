"""The verdicts of `inspect`: a line per stream, or per connection without streams, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rtmp_spark.commands.output.colours import VERDICT_STYLES
from rtmp_spark.commands.output.tables.column_table import cut, fitted
from rtmp_spark.commands.output.terminal import PrintLine
from rtmp_spark.report import units
from rtmp_spark.report.judged_connections import JudgedConnection, JudgedConnections, loss
from rtmp_spark.report.verdict import VERDICTS, Verdict

Row = dict[str, Any]
COLUMNS = ("UTC", "verdict", "stream", "fps", "encoded", "received", "loss", "sensor", "uid")
_NUMBERS = ("fps", "encoded", "received", "loss")
_CUT = "stream"  # the column that may be cut
_ONLY_WITH_ROOM = "uid"  # the column that is left out before a reason moves below its line
_STREAM_CHARS = 64  # names may have any length
_GAP = "  "
_SEVERAL_DAYS = 5  # in 2026-01-31T12:00:00: where the month begins
_ONE_DAY = 11  # and the time of day


class JudgedStream(NamedTuple):
    connection: JudgedConnection
    stream: Row | None  # None: the connection has none
    verdict: Verdict


class VerdictLine(NamedTuple):
    """What is printed of one stream. `started` is a time as in JSON rows."""

    word: str
    started: str
    cells: Mapping[str, str]
    reason: str


def judged_streams(judged: JudgedConnections) -> list[JudgedStream]:
    """All streams, and the connections without streams, worst first."""
    found = []
    for connection in judged.ranked():
        for stream in connection.streams:
            verdict = Verdict(stream["verdict"], stream["verdict_text"] or "", stream["verdict_rule_id"])
            found.append(JudgedStream(connection, stream, verdict))
        if not connection.streams:
            found.append(JudgedStream(connection, None, connection.verdict))
    return sorted(found, key=lambda one: VERDICTS.index(one.verdict.word))


def verdict_line(judged: JudgedStream, files: Mapping[str, str]) -> VerdictLine:
    """`files` are the names of the captures by id, if there are several."""
    connection, stream, verdict = judged
    row = connection.row
    cells = {"verdict": units.spaced(verdict.word), "sensor": row["sensor"], "uid": row["uid"]}
    if stream is None:
        cells["stream"] = f"client {units.endpoint(row['orig_h'], row['orig_p'])}"
        cells["loss"] = loss(row)
    else:
        encoded, received = units.encoded_bitrate(stream), stream["received_bitrate"]
        cells["stream"] = cut(f"{stream['role']} {stream['name'] or '(name not recorded)'}", _STREAM_CHARS)
        cells["fps"] = "" if stream["fps"] is None else units.number(stream["fps"], 4)
        cells["encoded"] = "" if encoded is None else units.bitrate(encoded)
        cells["received"] = "" if received is None else units.bitrate(received)
        cells["loss"] = loss(row, stream["direction"])
    return VerdictLine(verdict.word, (stream or row)["ts_start"], cells, _reason(connection, stream, verdict, files))


def _reason(connection: JudgedConnection, stream: Row | None, verdict: Verdict, files: Mapping[str, str]) -> str:
    if verdict.word == "ok":
        warnings = sum(finding["severity"] == "warning" for finding in connection.findings)
        return units.counted(warnings, "warning") if warnings else ""
    sentence = verdict.sentence.rstrip(".")
    if verdict.rule_id is None:
        return sentence
    cause = _finding(connection, stream, verdict.rule_id)
    if cause is None:
        return sentence
    file = f" of {files[cause['capture_id']]}" if cause["capture_id"] in files else ""
    return f"{sentence} (packet {cause['frame']}{file})"


def _finding(connection: JudgedConnection, stream: Row | None, rule_id: str) -> Row | None:
    """The first finding of a rule, with a packet, about a stream; None if it may be about another stream."""
    found = [row for row in connection.findings if row["rule_id"] == rule_id and row["frame"]]
    if stream is not None and len(connection.streams) > 1:
        found = [
            row for row in found if stream["ts_start"] <= row["ts"] and row["stream_id"] in (None, stream["stream_id"])
        ]
    return min(found, key=lambda row: row["ts"], default=None)


def print_verdicts(print_line: PrintLine, lines: Sequence[VerdictLine], width: int | None) -> None:
    """Print a header and the lines. With a `width`, names are cut to fit, and a reason that does not fit on its line
    is printed below it."""
    days = {line.started[:_ONE_DAY] for line in lines}
    begin = _ONE_DAY if len(days) == 1 else _SEVERAL_DAYS
    rows = [{"UTC": line.started[begin:19].replace("T", " "), **line.cells} for line in lines]
    columns = _chosen_columns(rows, width, max(len(line.reason) for line in lines))
    indent = columns["UTC"] + len(_GAP)  # of a reason below its line: where the verdict is
    header = dict(zip(COLUMNS, COLUMNS))
    print_line(_padded(header, columns).rstrip(), "dim")
    for line, row in zip(lines, rows):
        style, padded = VERDICT_STYLES[line.word], _padded(row, columns)
        for text in (padded, padded.rstrip()):  # a stream without media has room where its rates would be
            whole = f"{text}{_GAP}{line.reason}".rstrip()
            if width is None or len(whole) <= width:
                print_line(whole, style)
                break
        else:
            print_line(padded.rstrip(), style)
            print_line(line.reason, style, indent)


def _chosen_columns(rows: Sequence[Mapping[str, str]], width: int | None, longest_reason: int) -> dict[str, int]:
    """The columns with a value, and their widths. Sensors are shown only if there are several."""
    shown = [name for name in COLUMNS if any(row.get(name) for row in rows)]
    if len({row.get("sensor") for row in rows}) < 2:
        shown = [name for name in shown if name != "sensor"]
    widths = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in shown}
    if width is None:
        return widths
    if sum(widths.values()) + len(_GAP) * len(widths) + longest_reason > width:
        widths.pop(_ONLY_WITH_ROOM)
    return dict(zip(widths, fitted(list(widths.values()), [name != _CUT for name in widths], width)))


def _padded(row: Mapping[str, str], columns: Mapping[str, int]) -> str:
    cells = ((name, cut(row.get(name, ""), length), length) for name, length in columns.items())
    return _GAP.join(text.rjust(length) if name in _NUMBERS else text.ljust(length) for name, text, length in cells)
