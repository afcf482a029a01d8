"""`rtmp-spark explain CODE`: what a finding means, why it matters, and what to do about it."""

from __future__ import annotations

import argparse
import json
from difflib import get_close_matches
from shutil import get_terminal_size
from textwrap import fill

from rtmp_spark.codec.errors import UserError, ViolationCode

_WIDEST = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="a rule id, as in findings.rule_id, or a close_cause; without it: all"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object, or one a line")


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.forensics.catalogue import CATALOGUE, with_cause

    if args.code is None:
        for code, entry in CATALOGUE.items():
            print(
                json.dumps(_fields(code)) if args.json else f"{code.value:<30} {code.severity.value:<8} {entry.title}"
            )
        return 0
    name = args.code.upper().replace("-", "_")
    cause = name.lower()
    caused = with_cause(cause)
    if caused is not None:
        name = caused.value
    if name not in ViolationCode.__members__:
        near = get_close_matches(name, ViolationCode.__members__, 3, 0.5)
        hint = f"Did you mean {', '.join(near)}?" if near else "`rtmp-spark explain` lists all of them."
        raise UserError(f"{args.code} is no finding.", hint)
    code = ViolationCode[name]
    print(json.dumps(_fields(code)) if args.json else _text(code, cause if caused is not None else None))
    return 0


def _fields(code: ViolationCode) -> dict[str, object]:
    from rtmp_spark.forensics.catalogue import CATALOGUE, reproduce, severities

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


def _text(code: ViolationCode, only: str | None) -> str:
    """The whole text; of its causes all, or only one."""
    from rtmp_spark.forensics.catalogue import CATALOGUE

    known = _fields(code)
    severities = known["severities"]
    assert isinstance(severities, list)
    head = f"{code.value}: {known['title']}\n{' or '.join(severities)}" + (
        f"; {known['clause']}" if known["clause"] else ""
    )
    parts = (
        ("When", "when"),
        ("Why it matters", "why"),
        ("What to do", "remedy"),
        ("Seen", "cases"),
        ("In Wireshark", "wireshark"),
        ("Cause it", "reproduce"),
    )
    lines = [head]
    for title, field in parts:
        if field == "cases":
            lines += [_cause(*cause) for cause in CATALOGUE[code].causes if only in (None, cause[0])]
        if known[field] and not (field == "remedy" and known["causes"]):
            line = f"{title}: {known[field]}"
            lines.append(line if field in ("wireshark", "reproduce") else _filled(line))  # those are pasted as they are
    return "\n\n".join(lines)


def _cause(name: str, meaning: str, remedy: str) -> str:
    return f"{_filled(f'Cause {name}: {meaning}')}\n{_filled(f'    What to do: {remedy}')}"


def _filled(text: str) -> str:
    return fill(text, min(_WIDEST, get_terminal_size((_WIDEST, 24)).columns), subsequent_indent="    ")
