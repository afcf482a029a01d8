"""All findings of a connection, and how many messages of each type it carried."""

from __future__ import annotations

from typing import Any

from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.panels.elements import blame, places, times
from rtmp_spark.report.panels.html_table import filterable, table

Row = dict[str, Any]


def findings_panel(data: ConnectionData) -> str:
    if not data.findings:
        return "<p class='note'>No findings.</p>"
    rows = [
        (
            row["severity"],
            [
                f"<span class='sev {row['severity']}'>{row['severity']}</span>",
                f"<code class='rule'>{page_text.escape(row['rule_id'])}</code>{times(row)}{blame(row)}",
                f"{page_text.untrusted(row['detail'] or row['title'], 400)}{_expected(row)}",
                f"<span class='where'>{' · '.join(places(data, row))}</span>",
            ],
        )
        for row in data.findings
    ]
    return filterable(table(("severity", "rule", "observation", "location"), rows, "findings"), len(rows), "findings")


def _expected(row: Row) -> str:
    if not row["expected"]:
        return ""
    expected, actual = page_text.untrusted(row["expected"]), page_text.untrusted(row["actual"])
    return f"<div class='dim'>expected {expected}, got {actual}</div>"


def counts_panel(data: ConnectionData) -> str:
    if not data.message_counts:
        return "<p class='missing'>No RTMP message was recorded.</p>"
    rows = [
        [
            units.DIRECTION_LABELS[row["direction"]], page_text.escape(units.spaced(row["type_name"])),
            page_text.escape(row["status"]), f"{row['count']:,}", units.size(row["bytes"]),
        ]
        for row in data.message_counts
    ]  # fmt: skip
    return table(("direction", "message", "status", "#count", "#bytes"), rows)
