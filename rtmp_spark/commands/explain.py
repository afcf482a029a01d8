"""`rtmp-spark explain CODE`: what a rule means, why it matters and what to do about it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import fill, wrap

from rtmp_spark.codec.errors import UserError, ViolationCode
from rtmp_spark.commands.exit_codes import USAGE

_WIDEST = 100
_NARROWEST = 60
_INDENT = "  "
_COLUMN_GAP = "  "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="a rule id (findings.rule_id) or a close cause (connections.close_cause); without it, all rules",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per rule")


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.forensics.catalogue.rules import CATALOGUE, with_cause

    if args.code is None:
        for code, entry in CATALOGUE.items():
            line = f"{code.value:<30} {code.severity.value:<8} {entry.title}"
            print(json.dumps(_fields(code)) if args.json else line)
        return 0
    name = args.code.upper().replace("-", "_")
    cause = name.lower()
    rule_of_cause = with_cause(cause)
    if rule_of_cause is not None:
        name = rule_of_cause.value
    if name not in ViolationCode.__members__:
        near = get_close_matches(name, ViolationCode.__members__, 3, 0.5)
        remedy = f"Did you mean {', '.join(near)}?" if near else "`rtmp-spark explain` lists all rules."
        raise UserError(f"Unknown rule {args.code}.", remedy, USAGE)
    code = ViolationCode[name]
    if args.json:
        print(json.dumps(_fields(code)))
    else:
        print("\n".join(_lines(code, cause if rule_of_cause is not None else None)))
    return 0


def _fields(code: ViolationCode) -> dict[str, object]:
    from rtmp_spark.forensics.catalogue.rules import CATALOGUE, reproduce, severities

    entry = CATALOGUE[code]
    return {
        "rule_id": code.value,
        "severities": [severity.value for severity in severities(code)],
        "title": entry.title,
        "clause": entry.clause,
        "when": entry.when,
        "why": entry.why,
        "remedy": entry.remedy,
        "causes": [cause._asdict() for cause in entry.causes] or None,
        "cases": entry.cases or None,
        "wireshark": entry.wireshark or None,
        "reproduce": reproduce(code),
    }


def _lines(code: ViolationCode, only_cause: str | None) -> Iterator[str]:
    """The explanation of a rule, with all of its causes or only one."""
    from rtmp_spark.forensics.catalogue.rules import CATALOGUE, reproduce, severities

    entry = CATALOGUE[code]
    causes = [cause for cause in entry.causes if only_cause in (None, cause.name)]
    yield f"{code.value}: {entry.title}"
    yield f"Severity: {' or '.join(severity.value for severity in severities(code))}."
    if entry.clause:
        yield f"Specification: {entry.clause}."
    yield from _section("When it is reported", entry.when)
    yield from _section("Why it matters", entry.why)
    if causes:
        yield "\nCauses"
        yield from _cause_table([(cause.name, cause.meaning, cause.remedy) for cause in causes])
    else:
        yield from _section("What to do", entry.remedy)
    yield from _section("Seen in practice", entry.cases)
    if entry.wireshark:
        yield f"\nWireshark display filter\n{_INDENT}{entry.wireshark}"
    command = reproduce(code)
    if command:
        yield f"\nHow to reproduce it\n{_INDENT}{command}"


def _section(title: str, text: str | None) -> Iterator[str]:
    if text:
        yield f"\n{title}\n{fill(text, _width(), initial_indent=_INDENT, subsequent_indent=_INDENT)}"


def _cause_table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Cause, meaning and remedy in three columns, wrapped to the width of the terminal."""
    head = ("cause", "meaning", "what to do")
    first = max(len(row[0]) for row in (head, *rows))
    rest = _width() - len(_INDENT) - first - 2 * len(_COLUMN_GAP)
    widths = (first, rest - rest // 2, rest // 2)
    for row in (head, tuple("-" * width for width in widths), *rows):
        wrapped = [wrap(cell, width) for cell, width in zip(row, widths)]
        for cells in zip_longest(*wrapped, fillvalue=""):
            yield (_INDENT + _COLUMN_GAP.join(f"{cell:<{width}}" for cell, width in zip(cells, widths))).rstrip()


def _width() -> int:
    return max(_NARROWEST, min(_WIDEST, get_terminal_size((_WIDEST, 24)).columns))
