"""The result of `rtmp-spark demo`, and how it is shown: as text, as JSON, and as commands to continue with."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal

_INDENT = " " * 9
_WORD = re.compile(r"\w+")


@dataclass
class DemoResult:
    """The files that the demo makes, and what it finds."""

    directory: Path
    fault: str
    url: str = ""
    pcap: Path = field(init=False)
    lake: Path | None = None
    report: Path = field(init=False)
    findings: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pcap = self.directory / "session.pcap"
        self.report = self.directory / "report.html"

    @property
    def found(self) -> bool:
        return any(row["rule_id"] == self.fault for row in self.findings)


def print_result(demo: DemoResult, seconds: float) -> None:
    from rtmp_relay.faults import fault_catalogue

    recipe = fault_catalogue.CATALOGUE[ViolationCode[demo.fault]]
    print(f"\nPlanted: {demo.fault} ({recipe.what}). {'Found.' if demo.found else 'Not found!'}\n")
    _print_findings(demo)
    for row in demo.deliveries:
        print(
            f"{'':<8} {row['party']}: {row['frames_missing']} of {row['frames_published']} frames missing, "
            f"latency {row['latency_ms_p50']:,.1f} ms (median), {row['latency_ms_p99']:,.1f} ms (p99)."
        )
    print("\nFiles:")
    files = [(demo.pcap, "capture of the three connections"), (demo.directory / "played.flv", "what a player received")]
    if demo.lake is not None:
        files.append((demo.lake, "Delta tables"))
    for path, what in (*files, (demo.report, "report; open it in a browser")):
        print(f"  {short_path(path):<44} {what}")
    print("\nContinue with:")
    for command in next_commands(demo):
        print(f"  {command}")
    print(f"\nDone in {seconds:.0f} s. Report: {demo.report.resolve().as_uri()}")


def _print_findings(demo: DemoResult) -> None:
    """Errors and warnings in full, infos as a count."""
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    for row in (row for row in demo.findings if row["severity"] != "info" or row["rule_id"] == demo.fault):
        times = f" x{row['count']}" if row["count"] > 1 else ""
        print(f"{row['severity']:<8} {row['rule_id']}{times}, {row['party'] or 'capture file'}: {row['title']}.")
        detail = _detail_beyond_title(row["title"], row["detail"] or "")
        for text in (detail, row["fix_hint"] and f"-> {row['fix_hint']}"):
            if text:
                print(fill(escape_for_terminal(text), width, initial_indent=_INDENT, subsequent_indent=_INDENT))
    notes = sum(row["severity"] == "info" for row in demo.findings)
    print(f"{'info':<8} {notes} more in the report and in the table findings.")


def next_commands(demo: DemoResult) -> list[str]:
    """Commands that show what the demo made, ready to paste."""
    pcap, uid = short_path(demo.pcap), next((row["uid"] for row in demo.findings if row["uid"]), None)
    commands = [
        ["inspect", pcap],
        ["inspect", pcap, "--table", "commands"],
        ["explain", demo.fault],
        ["check", pcap, "--side", "client"],
    ]
    if uid:
        commands.append(["slice", pcap, "--uid", uid, "-o", short_path(demo.directory / "one.pcapng")])
    if demo.lake is not None:
        commands.append(["check", "--lake", short_path(demo.lake)])
    return [shlex.join([*_program(), *words]) for words in commands]


def _program() -> list[str]:
    """The words that start this program from the current directory."""
    if shutil.which("rtmp-spark"):
        return ["rtmp-spark"]
    script = Path(sys.executable).with_name("rtmp-spark")
    if script.exists():
        short = short_path(script)
        return [short if "/" in short else f"./{short}"]
    return [short_path(Path(sys.executable)), "-m", "rtmp_spark.cli"]


def as_json(demo: DemoResult, seconds: dict[str, float]) -> dict[str, Any]:
    keys = ("rule_id", "severity", "party", "at_fault", "uid", "frame", "count", "title", "detail", "clause")
    return {
        "directory": str(demo.directory),
        "url": demo.url,
        "pcap": str(demo.pcap),
        "lake": None if demo.lake is None else str(demo.lake),
        "report": str(demo.report),
        "fault": demo.fault,
        "found": demo.found,
        "findings": [{key: row[key] for key in keys} for row in demo.findings],
        "commands": next_commands(demo),
        "seconds": seconds,
    }


def short_path(path: Path) -> str:
    """The path relative to the current directory, if that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)


def _detail_beyond_title(title: str, detail: str) -> str:
    """The detail, or an empty text if the title has all of its words."""
    words = {word.lower() for word in _WORD.findall(detail)}
    return detail if words - {word.lower() for word in _WORD.findall(title)} else ""
