"""The verdict of a connection and its worst findings."""

from __future__ import annotations

from typing import Any

from rtmp_spark.report import page_text, verdict
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.panels.elements import badge, blame, places, times

Row = dict[str, Any]


def verdict_panel(data: ConnectionData) -> str:
    judged = data.verdict
    worst = verdict.worst_findings(data.findings)
    items = "".join(_finding_item(data, row) for row in worst)
    rest = len(data.findings) - len(worst)
    link = f"<a href='#{data.uid}-findings'>Show all {len(data.findings)} findings</a>"
    more = f"<p class='note'>{link}</p>" if rest else ""
    listed = f"<ol class='worst'>{items}</ol>{more}" if worst else "<p class='note'>No findings.</p>"
    return f"<p class='verdict {judged.word}'>{badge(judged.word)} {page_text.prose(judged.sentence)}</p>{listed}"


def _finding_item(data: ConnectionData, row: Row) -> str:
    detail = row["detail"] or row["actual"]
    parts = [
        f"<div class='head'><span class='sev {row['severity']}'>{row['severity']}</span> "
        f"<b>{page_text.prose(row['title'])}</b> <code class='rule'>{page_text.escape(row['rule_id'])}</code>"
        f"{times(row)}{blame(row)}</div>"
    ]
    if detail and detail != row["title"]:
        parts.append(f"<div>{page_text.untrusted(detail, 600)}</div>")
    if row["fix_hint"]:
        parts.append(f"<div class='fix'>{page_text.prose(row['fix_hint'])}</div>")
    parts.append(f"<div class='where'>{' · '.join(places(data, row))}</div>")
    return f"<li class='{row['severity']}'>{''.join(parts)}</li>"
