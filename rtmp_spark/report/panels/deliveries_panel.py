"""How the frames of a publisher reached this player."""

from __future__ import annotations

from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.panels.html_table import table


def deliveries_panel(data: ConnectionData) -> str:
    """Latency and missing frames from the publisher to this player; empty if the publisher is not in the tables."""
    if not data.deliveries:
        return ""
    rows = [
        [
            f"<a href='#{page_text.escape(row['publish_uid'])}'>{page_text.escape(row['publish_uid'])}</a>",
            *(units.duration(row[f"latency_ms_{p}"]) for p in ("p50", "p95", "p99")),
            units.duration(row["first_frame_ms"]), units.duration(row["burst_ms"]),
            *(f"{row[f'frames_{what}']:,}" for what in ("published", "missing", "changed")),
        ]
        for row in data.deliveries
    ]  # fmt: skip
    head = (
        "publisher", "#latency p50", "#p95", "#p99", "#first frame", "#cached burst", "#frames", "#missing", "#changed",
    )  # fmt: skip
    return f"<h4>Delivery from the publisher</h4>{table(head, rows)}"
