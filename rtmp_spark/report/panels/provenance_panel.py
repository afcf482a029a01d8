"""Where the page comes from: the captures, the command that made it, and findings about the capture files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.panels.elements import paste, times
from rtmp_spark.report.panels.html_table import table

Row = dict[str, Any]
_LISTED_CAPTURES = 200


def provenance_panel(captures: Sequence[Row], verdicts: Mapping[str, Counter[str]], command: str, version: str) -> str:
    """The captures and the command. `verdicts` counts the verdicts of the connections in each capture."""
    rows = [
        [
            page_text.untrusted(row["path"]),
            verdict.counted_verdicts(verdicts.get(row["capture_id"], Counter())) or units.MISSING,
            page_text.escape(row["format"]), f"{row['packets']:,}", units.utc_time(row["ts_first"]),
            page_text.escape(row["status"]) + _hint(row), f"<code>{page_text.escape(row['capture_id'])}</code>",
        ]
        for row in captures[:_LISTED_CAPTURES]
    ]  # fmt: skip
    left = len(captures) - len(rows)
    note = f"<p class='note'>{units.counted(left, 'more capture')} not listed.</p>" if left else ""
    head = ("capture", "connections", "format", "#packets", "first packet (UTC)", "status", "capture_id")
    return f"<p>rtmp_spark {page_text.escape(version)} · {paste(command)}</p>{table(head, rows)}{note}"


def _hint(row: Row) -> str:
    return f"<div class='dim'>{page_text.escape(row['error_hint'], 300)}</div>" if row["error_hint"] else ""


def recording_panel(findings: Sequence[Row], captures: Sequence[Row]) -> str:
    """Findings about the capture files; empty if there are none."""
    names = {row["capture_id"]: row["path"] for row in captures}
    rows = [
        (
            row["severity"],
            [
                f"<span class='sev {row['severity']}'>{row['severity']}</span>",
                f"<code class='rule'>{page_text.escape(row['rule_id'])}</code>{times(row)}",
                page_text.untrusted(row["detail"] or row["title"], 400),
                page_text.untrusted(names.get(row["capture_id"], ""), 120),
                page_text.prose(row["fix_hint"]) if row["fix_hint"] else "",
            ],
        )
        for row in verdict.ordered(findings)
    ]
    if not rows:
        return ""
    return "<h3>Findings about the capture files</h3>" + table(
        ("severity", "rule", "observation", "file", "remedy"), rows
    )
