"""How `check` shows findings: lines for people, JUnit XML for CI servers. Every text from the wire is made harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import quoteattr

from rtmp_spark.codec.errors import LAYER
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.commands.terminal import STYLES, Say, ends

_ORDER = {"error": 0, "warning": 1, "info": 2}
_GRAVE = ("error", "warning")
_TOLD_FILES = 20
_NOT_XML = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(55296, 57344), 65534, 65535), ".")


def show(
    findings: Sequence[dict[str, Any]],
    connections: Sequence[dict[str, Any]],
    say: Say,
    files: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """`files` are the names of the captures by their ids, where there are several."""
    known = {row["uid"]: row for row in connections}
    groups: dict[str | None, list[dict[str, Any]]] = {}
    for row in findings:
        groups.setdefault(row["uid"], []).append(row)
    for uid, rows in groups.items():
        say(_title(uid, known.get(uid)), "bold cyan")
        for row in sorted(rows, key=lambda r: (_ORDER[r["severity"]], r["frame"] or 0, LAYER.get(r["rule_id"], 0))):
            for line, style in zip(_lines(row, files), (STYLES[row["severity"]], "", "")):
                say(line, style, 2)
    for capture, counts in _trouble(findings, files):
        say(f"{_counted(counts, [word for word in _GRAVE if counts[word]])} in {files[capture]}")
    total = _counted(Counter(row["severity"] for row in findings), _ORDER)
    say(f"{len(connections)} connection{'s' if len(connections) != 1 else ''}: {total}", "bold")


def _trouble(findings: Sequence[dict[str, Any]], files: Mapping[str, str]) -> list[tuple[str, Counter[str]]]:
    """Of several captures those with errors or warnings, worst first."""
    counted: dict[str, Counter[str]] = {}
    for row in findings:
        if row["capture_id"] in files and row["severity"] in _GRAVE:
            counted.setdefault(row["capture_id"], Counter())[row["severity"]] += 1
    return sorted(counted.items(), key=lambda item: [-item[1][word] for word in _GRAVE])[:_TOLD_FILES]


def _counted(counts: Counter[str], words: Iterable[str]) -> str:
    return ", ".join(f"{counts[word]} {word}{'s' if counts[word] != 1 and word != 'info' else ''}" for word in words)


def _title(uid: str | None, connection: dict[str, Any] | None) -> str:
    if uid is None:
        return "the capture"
    if connection is None:
        return uid
    client, server = connection["software"], connection["server_software"]
    software = f" ({client or 'unknown client'}, {server or 'unknown server'})" if client or server else ""
    return harmless(f"{uid} {ends(connection)}{software}")


def _place(row: dict[str, Any], files: Mapping[str, str]) -> str:
    """The packet as a filter of Wireshark, and which file it is in."""
    words = [f"frame.number == {row['frame']}"] if row["frame"] else []
    if row["capture_id"] in files:
        words.append(f"in {harmless(files[row['capture_id']])}")
    return " ".join(words)


def _lines(row: dict[str, Any], files: Mapping[str, str]) -> list[str]:
    times = f" x{row['count']}" if row["count"] > 1 else ""
    clause = f" [{row['clause']}]" if row["clause"] else ""
    fault = f" at fault: {row['at_fault']}." if row["at_fault"] else ""
    head = f"{row['severity']:<7} {row['rule_id']}{times}: {row['title']}.{clause}{fault} {_place(row, files)}"
    lines = [head.rstrip()]
    if row["detail"]:
        lines.append(f"        {harmless(row['detail'])}")
    if row["fix_hint"] and row["severity"] != "info":
        lines.append(f"        -> {harmless(row['fix_hint'])}")
    return lines


def junit(
    failed: Sequence[dict[str, Any]],
    connections: Sequence[dict[str, Any]],
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """One test case per connection, and one for the files; each finding that fails is a failure of its own case."""
    cases: list[str] = []
    failures = 0
    titles = {row["uid"]: _title(row["uid"], row) for row in connections}
    by_uid: dict[str | None, list[dict[str, Any]]] = {uid: [] for uid in titles}
    for row in failed:
        by_uid.setdefault(row["uid"], []).append(row)
    for uid, rows in by_uid.items():
        suite = _attribute(titles.get(uid) or _title(uid, None))
        if not rows:
            cases.append(f'    <testcase classname={suite} name="conforms"/>')
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
