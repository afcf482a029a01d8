"""Findings as `check` shows them: lines for people, JUnit XML for CI servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import quoteattr

from rtmp_spark.codec.errors import LAYER
from rtmp_spark.commands.output.colours import HEADING, SEVERITY_STYLES
from rtmp_spark.commands.output.terminal import PrintLine, client_and_server
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.report.judged_connections import JudgedConnections
from rtmp_spark.report.path_text import path_sentence
from rtmp_spark.report.verdict import SEVERITIES

_GRAVE = ("error", "warning")
_LISTED_FILES = 20
_NOT_XML = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(55296, 57344), 65534, 65535), ".")


def print_findings(
    findings: Sequence[dict[str, Any]],
    judged: JudgedConnections,
    print_line: PrintLine,
    files: Mapping[str, str] = MappingProxyType({}),
    paths: Sequence[dict[str, Any]] = (),
) -> None:
    """Print findings by connection, worst first, then those of files, rows of `paths`, and a total. `files` are the
    names of the captures by id, if there are several."""
    groups: dict[str | None, list[dict[str, Any]]] = {}
    for row in findings:
        groups.setdefault(row["uid"], []).append(row)
    for connection in judged.ranked():
        rows = groups.pop(connection.row["uid"], None)
        if rows is not None:
            word = connection.verdict.word.replace("_", " ")
            print_line(f"{_title(connection.row['uid'], connection.row)}: {word}", HEADING)
            _print_group(rows, print_line, files)
    for uid, rows in groups.items():
        print_line(_title(uid, None), HEADING)
        _print_group(rows, print_line, files)
    for capture, counts in _captures_with_problems(findings, files):
        print_line(f"{_counted(counts, [word for word in _GRAVE if counts[word]])} in {files[capture]}")
    for row in paths:
        print_line(escape_for_terminal(f"{row['uid_a']} and {row['uid_b']} are one connection. {path_sentence(row)}"))
    total = _counted(Counter(row["severity"] for row in findings), SEVERITIES)
    print_line(f"{len(judged.all)} connection{'s' if len(judged.all) != 1 else ''}: {total}", "bold")


def _print_group(findings: Sequence[dict[str, Any]], print_line: PrintLine, files: Mapping[str, str]) -> None:
    """Print the findings of one connection or of the files."""
    for row in sorted(
        findings, key=lambda r: (SEVERITIES.index(r["severity"]), r["frame"] or 0, LAYER.get(r["rule_id"], 0))
    ):
        for line, style in zip(_lines(row, files), (SEVERITY_STYLES[row["severity"]], "", "")):
            print_line(line, style, 2)


def _captures_with_problems(
    findings: Sequence[dict[str, Any]], files: Mapping[str, str]
) -> list[tuple[str, Counter[str]]]:
    """The captures with errors or warnings, worst first, if there are several captures."""
    counted: dict[str, Counter[str]] = {}
    for row in findings:
        if row["capture_id"] in files and row["severity"] in _GRAVE:
            counted.setdefault(row["capture_id"], Counter())[row["severity"]] += 1
    return sorted(counted.items(), key=lambda item: [-item[1][word] for word in _GRAVE])[:_LISTED_FILES]


def _counted(counts: Counter[str], words: Iterable[str]) -> str:
    return ", ".join(f"{counts[word]} {word}{'s' if counts[word] != 1 and word != 'info' else ''}" for word in words)


def _title(uid: str | None, connection: dict[str, Any] | None) -> str:
    if uid is None:
        return "capture file"
    if connection is None:
        return uid
    client, server = connection["software"], connection["server_software"]
    software = f" ({client or 'unknown client'}, {server or 'unknown server'})" if client or server else ""
    return escape_for_terminal(f"{uid} {client_and_server(connection)}{software}")


def _place(row: dict[str, Any], files: Mapping[str, str]) -> str:
    """A Wireshark display filter for the packet, and the name of its file."""
    words = [f"frame.number == {row['frame']}"] if row["frame"] else []
    if row["capture_id"] in files:
        words.append(f"in {escape_for_terminal(files[row['capture_id']])}")
    return " ".join(words)


def _lines(row: dict[str, Any], files: Mapping[str, str]) -> list[str]:
    times = f" x{row['count']}" if row["count"] > 1 else ""
    clause = f" [{row['clause']}]" if row["clause"] else ""
    fault = f" At fault: {row['at_fault']}." if row["at_fault"] else ""
    head = f"{row['severity']:<7} {row['rule_id']}{times}: {row['title']}.{clause}{fault} {_place(row, files)}"
    lines = [head.rstrip()]
    if row["detail"]:
        lines.append(f"        {escape_for_terminal(row['detail'])}")
    if row["fix_hint"] and row["severity"] != "info":
        lines.append(f"        -> {escape_for_terminal(row['fix_hint'])}")
    return lines


def junit(
    failed: Sequence[dict[str, Any]],
    findings: Sequence[dict[str, Any]],
    connections: Sequence[dict[str, Any]],
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """JUnit XML: a failed test case per failing finding, and a passed one per connection without; its name says
    whether the connection has other findings."""
    cases: list[str] = []
    failures = 0
    titles = {row["uid"]: _title(row["uid"], row) for row in connections}
    by_uid: dict[str | None, list[dict[str, Any]]] = {uid: [] for uid in titles}
    for row in failed:
        by_uid.setdefault(row["uid"], []).append(row)
    counts: dict[str | None, Counter[str]] = {uid: Counter() for uid in titles}
    for row in findings:
        counts.setdefault(row["uid"], Counter())[row["severity"]] += 1
    for uid, rows in by_uid.items():
        suite = _attribute(titles.get(uid) or _title(uid, None))
        if not rows:
            others = _counted(counts[uid], [word for word in _GRAVE if counts[uid][word]])
            name = _attribute(f"passed with {others}" if others else "no problems found")
            cases.append(f"    <testcase classname={suite} name={name}/>")
        for row in rows:
            failures += 1
            place = _place(row, files)
            message = _attribute(f"{row['title']}: {row['detail'] or ''}" + (f" ({place})" if place else ""))
            cases.append(
                f"    <testcase classname={suite} name={_attribute(row['rule_id'])}>\n"
                f"      <failure type={_attribute(row['severity'])} message={message}/>\n"
                f"    </testcase>"
            )
    body = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n'
        f'  <testsuite name="rtmp-spark check" tests="{len(cases)}" failures="{failures}" errors="0">\n'
        f"{body}\n  </testsuite>\n</testsuites>\n"
    )


def _attribute(text: str) -> str:
    return quoteattr(text.translate(_NOT_XML))
