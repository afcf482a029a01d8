"""The report: one HTML file that needs no network and no other file.

A page about one connection has its ten sections. A page about several begins with the timeline of attempts and the list
of connections, adds counts per day if there are many, and has the sections of the connections with the worst verdicts.
A content security policy allows only the bundled style and script, so a string that was not escaped could do no harm.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from rtmp_spark import __version__
from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.judged_connections import JudgedConnections
from rtmp_spark.report.panel import asset
from rtmp_spark.report.panels.archive_panels import ARCHIVE_FROM, archive_panels
from rtmp_spark.report.panels.attempts_panel import attempts_panel
from rtmp_spark.report.panels.connections_panel import connections_panel, tiles
from rtmp_spark.report.panels.deliveries_panel import deliveries_panel
from rtmp_spark.report.panels.elements import badge
from rtmp_spark.report.panels.findings_panel import counts_panel, findings_panel
from rtmp_spark.report.panels.identity_panel import identity_panel
from rtmp_spark.report.panels.ladder_panel import ladder_panel
from rtmp_spark.report.panels.media_panels import bitrate_panel, declared_panel, flow_panel, media_panel
from rtmp_spark.report.panels.paths_panel import paths_panel
from rtmp_spark.report.panels.provenance_panel import provenance_panel, recording_panel
from rtmp_spark.report.panels.verdict_panel import verdict_panel
from rtmp_spark.report.table_source import Tables

Row = dict[str, Any]
MOST_DETAILED = 40  # connections whose sections are on one page
SECTIONS = (
    ("verdict", "Verdict"), ("identity", "Identity"), ("sequence", "Sequence"), ("declared", "Declared and measured"),
    ("bitrate", "Bitrate"), ("gop", "GOP"), ("timestamps", "Timestamps"), ("av", "Audio and video"),
    ("flow", "Flow control"), ("findings", "Findings and counts"),
)  # fmt: skip


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; img-src data:"


def render(tables: Tables, *, uid: str | None = None, command: str = "rtmp-spark report") -> str:
    """The whole page as text."""
    return "".join(pieces(tables, uid=uid, command=command))


def pieces(tables: Tables, *, uid: str | None = None, command: str = "rtmp-spark report") -> Iterator[str]:
    """The page in parts: a large page is never in memory as a whole."""
    captures = tables.rows("captures")
    connections = sorted(tables.rows("connections"), key=lambda row: (row["ts_start"], row["uid"]))
    of_files = [row for row in tables.rows("findings") if row["uid"] is None]
    if uid is not None:
        connections = [row for row in connections if row["uid"] == uid]
        own = {capture for row in connections for capture in row["capture_ids"]}
        captures = [row for row in captures if row["capture_id"] in own]
        of_files = [row for row in of_files if row["capture_id"] in own]
    one = len(connections) == 1
    judged = JudgedConnections(connections, tables.rows("streams"), tables.rows("findings"))
    if one:
        chosen = connections
        title = _ends(connections[0])
        first = ""
    else:
        chosen = [connection.row for connection in judged.ranked()[:MOST_DETAILED]]
        title = f"{len(connections):,} connections"
        first = _first_page(tables, connections, judged, {row["uid"] for row in chosen}, captures)
    yield _head(f"RTMP report: {title}", tables.origin, [] if one else chosen)
    yield first
    tables.prepare([row["uid"] for row in chosen])
    for row in chosen:
        yield connection_section(ConnectionData(tables, row, captures), alone=one)
    yield "<section class='provenance'><h2>Provenance</h2>"
    yield provenance_panel(captures, judged.by_capture(), command, __version__)
    yield recording_panel(of_files, captures)
    yield f"</section></main><script>{asset('report.js')}</script></body></html>\n"


def _head(title: str, origin: str, chosen: Sequence[Row]) -> str:
    digest = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    policy = f"{_POLICY}; script-src 'sha256-{digest}'"
    options = "".join(
        f"<option value='{page_text.escape(row['uid'])}'>{page_text.escape(_ends(row))}</option>" for row in chosen
    )
    options = f"<option value=''>overview</option>{options}"
    choose = f"<select class='choose' aria-label='connection' hidden>{options}</select>"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta name='referrer' content='no-referrer'><title>{page_text.escape(title)}</title>"
        f"<link rel='icon' href='data:,'><style>{asset('report.css')}</style></head>"
        f"<body class='rs page'><header class='top'><div><h1>{page_text.escape(title)}</h1>"
        f"<p class='dim'>{page_text.untrusted(origin, 160)}</p></div><div class='tools'>{choose if chosen else ''}"
        "<button class='theme' type='button' hidden>dark / light</button></div></header><main>"
    )


def _ends(row: Row) -> str:
    return f"{units.endpoint(row['orig_h'], row['orig_p'])} → {units.endpoint(row['resp_h'], row['resp_p'])}"


def _first_page(
    tables: Tables, connections: Sequence[Row], judged: JudgedConnections, detailed: set[str], captures: Sequence[Row]
) -> str:
    parts = ["<section class='overview' id='overview'>", tiles(judged)]
    broken = [row for row in captures if row["status"] != "ok"]
    if broken:
        named = ", ".join(page_text.untrusted(row["path"], 80) for row in broken[:5])
        parts.append(f"<p class='warn'>{units.counted(len(broken), 'damaged or unreadable capture')}: {named}</p>")
    streams = tables.rows("streams")
    if len(connections) >= ARCHIVE_FROM:
        parts.append(archive_panels(judged))
    parts.append(f"<h2>Attempts over time</h2>{attempts_panel(connections, streams)}")
    parts.append(f"<h2>Connections</h2>{connections_panel(judged, detailed)}")
    if len(detailed) < len(connections):
        parts.append(
            f"<p class='note'>This page has the sections of the {len(detailed)} connections with the worst verdicts. "
            "For another one, run <code>rtmp-spark report … --uid UID</code>.</p>"
        )
    return "".join([*parts, "</section>"])


def connection_section(data: ConnectionData, *, alone: bool = False) -> str:
    """The ten sections of one connection."""
    bodies = (
        verdict_panel(data) + paths_panel(data),
        identity_panel(data),
        ladder_panel(data),
        declared_panel(data) + deliveries_panel(data),
        bitrate_panel(data),
        media_panel(data, "gop", "frames"),
        media_panel(data, "clock"),
        media_panel(data, "skew", "jitter"),
        flow_panel(data),
        findings_panel(data) + "<h4>Messages</h4>" + counts_panel(data),
    )
    uid = data.uid
    contents = "".join(f"<a href='#{uid}-{key}'>{no} {name}</a>" for no, (key, name) in enumerate(SECTIONS, 1))
    parts = "".join(
        f"<section class='part' id='{uid}-{key}'><h3><span class='no'>{no}</span> {name}</h3>{body}</section>"
        for no, ((key, name), body) in enumerate(zip(SECTIONS, bodies), 1)
    )
    hidden = " class='unseen'" if alone else ""  # the title of the page names the connection already
    head = f"<h2{hidden}>{page_text.untrusted(_ends(data.connection))} {badge(data.verdict.word)}</h2>"
    packets = " ".join(f"{x:g}:{frame}" for x, frame in data.packets)
    return (
        f"<article class='session' id='{uid}' data-start='{data.start}' data-packets='{packets}'>{head}"
        f"<nav class='contents' aria-label='sections'>{contents}</nav>{parts}</article>"
    )
