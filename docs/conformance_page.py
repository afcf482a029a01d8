"""docs/conformance.md: `python docs/conformance_page.py` stores a run, `docs/generate.py` writes the page.

    rtmp-spark probe rtmp://127.0.0.1/live --json --captures packets > run.jsonl
    python docs/conformance_page.py nginx-rtmp 1.2.2 run.jsonl packets

A stored run is a JSON file with verdicts and details, and the packets of its failures.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from rtmp_spark.probe.catalogue import CASES
from rtmp_spark.probe.outcome import PASSED, Verdict
from rtmp_spark.probe.scenarios import scenario

STORED = Path("docs") / "conformance"
_LARGEST_CAPTURE = 60_000  # bytes; larger ones are not stored
_LARGEST_OF_MUST = 150_000
_HEAD = """# Conformance of servers and clients

Generated from the results in `docs/conformance/` by `python docs/generate.py`; do not edit. [The conformance
suite](probe.md) explains the levels and verdicts and how to add a case.

Facts only: each line is what one version did on one day, on the loopback interface, with default settings unless the
text above the table says otherwise. A failed PRACTICE is often a decision and not a mistake; a skipped case is an
optional feature that is missing, or could not be decided. "Packets" leads to a capture of the failure that Wireshark
and `rtmp-spark inspect` open.
"""


def store(name: str, version: str, results: Path, packets: Path | None, note: str = "", to: Path = STORED) -> Path:
    """Keep a run (JSON Lines of `rtmp-spark probe --json`) and the packets of its failures."""
    rows = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    to.mkdir(parents=True, exist_ok=True)
    kept = []
    for row in rows:
        entry = {key: row[key] for key in ("id", "verdict", "detail") if row[key]}
        if row["verdict"] == Verdict.FAILED.value and packets is not None and row["capture"]:
            source = packets / row["capture"]
            if source.stat().st_size <= (_LARGEST_OF_MUST if row["level"] == "MUST" else _LARGEST_CAPTURE):
                target = to / name / row["capture"]
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(source, target)
                entry["capture"] = f"{name}/{row['capture']}"
        kept.append(entry)
    kind = "client" if rows and rows[0]["section"] == scenario.name else "server"
    head = {"name": name, "version": version, "date": date.today().isoformat(), "kind": kind, "note": note}
    path = to / f"{name}.json"
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in kept)
    path.write_text(f'{json.dumps(head)[:-1]}, "results": [\n{lines}\n]}}\n', "utf-8")
    return path


def document(stored: Path) -> str:
    """The page about all stored runs."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(stored.glob("*.json"))]
    lines = [_HEAD]
    commands = {"server": "rtmp-spark probe rtmp://HOST/live", "client": "rtmp-spark probe --listen :1935"}
    for kind, command in commands.items():
        chosen = [run for run in runs if run["kind"] == kind]
        lines.append(f"## {kind.capitalize()}s\n\nCommand: `{command}`\n")
        lines += _overview(chosen)
        for run in chosen:
            lines += _failures(run)
    return "\n".join(lines)


_KNOWN = {case.id: case for case in (*CASES, *scenario.cases)}


def _overview(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield f"| {runs[0]['kind'] if runs else ''} | version | date | passed | failed | skipped | failed MUST |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for run in runs:
        verdicts = [Verdict(row["verdict"]) for row in run["results"]]
        passed = sum(verdict in PASSED for verdict in verdicts)
        failed = Counter(_level(row) for row in run["results"] if row["verdict"] == "failed")
        skipped = len(verdicts) - passed - failed.total()
        anchor = run["name"].lower().replace(".", "")
        counts = f"{passed} | {failed.total()} | {skipped} | {failed['MUST']}"
        yield f"| [{run['name']}](#{anchor}) | {run['version']} | {run['date']} | {counts} |"
    yield ""


def _level(row: dict[str, Any]) -> str:
    case = _KNOWN.get(row["id"])
    return case.level.value if case is not None else "?"


def _failures(run: dict[str, Any]) -> Iterator[str]:
    yield f"### {run['name']}\n"
    if run["note"]:
        yield f"{run['note']}\n"
    failed = [row for row in run["results"] if row["verdict"] == "failed"]
    if not failed:
        yield "No case failed.\n"
        return
    yield "| case | level | what is expected | what happened | |"
    yield "|---|---|---|---|---|"
    for row in failed:
        case = _KNOWN.get(row["id"])
        if case is None:
            continue
        packets = f"[packets](conformance/{row['capture']})" if "capture" in row else ""
        detail = row.get("detail", "").replace("|", "\\|")
        link = f"[{case.id}](../{case.script.__module__.replace('.', '/')}.py)"
        yield f"| {link} {case.title} | {case.level.value} | {case.expected} | {detail} | {packets} |"
    yield ""


if __name__ == "__main__":
    name, version, results, *rest = sys.argv[1:]
    print(store(name, version, Path(results), Path(rest[0]) if rest else None, " ".join(rest[1:])))
