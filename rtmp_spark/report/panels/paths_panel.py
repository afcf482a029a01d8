"""The connection at another sensor: what was lost between the two, and whose fault it is."""

from __future__ import annotations

from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.panels.html_table import table
from rtmp_spark.report.path_text import path_sentence


def paths_panel(data: ConnectionData) -> str:
    """Network or server? Empty if the connection was captured at one sensor only."""
    if not data.paths:
        return ""
    rows = [
        [
            *(_sensor(row[f"sensor_{end}"], row[f"uid_{end}"]) for end in "ab"),
            *(units.number(row[f"packets_lost_{way}"]) for way in ("c2s", "s2c")),
            *(units.size(row[f"bytes_lost_{way}"]) for way in ("c2s", "s2c")),
            *(units.duration(row[f"delay_ms_{p}"]) for p in ("p50", "p95")),
            units.duration(row["clock_offset_ms"]), row["verdict"],
        ]
        for row in data.paths
    ]  # fmt: skip
    head = (
        "near the client", "near the server", "#packets lost up", "#down", "#bytes lost up", "#down", "#delay p50",
        "#p95", "#clock offset", "cause",
    )  # fmt: skip
    sentences = "".join(f"<p>{page_text.untrusted(path_sentence(row), 600)}</p>" for row in data.paths)
    return f"<h4>Between two sensors</h4>{sentences}{table(head, rows)}"


def _sensor(name: str, uid: str) -> str:
    return f"<a href='#{page_text.escape(uid)}'>{page_text.untrusted(name) or 'unnamed'}</a>"
