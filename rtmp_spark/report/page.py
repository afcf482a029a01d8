"""The report: one HTML file that needs nothing else, neither network nor another file.

A page for one connection has the ten sections of it. A page for several begins with the timeline of attempts and the
list, one of an archive with its counts, and holds the sections of the worst ones. A content security policy forbids
everything but the two bundled assets, so that even a string that slipped through unescaped could do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from rtmp_spark import __version__
from rtmp_spark.report import archive, overview, panels, text
from rtmp_spark.report.session import Session
from rtmp_spark.report.source import Tables

Row = dict[str, Any]
MOST_DETAILED = 40  # sessions with all their sections on one page
SECTIONS = (
    ("verdict", "Verdict"), ("identity", "Identity"), ("sequence", "Sequence"), ("declared", "Declared and measured"),
    ("bitrate", "Bitrate"), ("gop", "GOP"), ("timestamps", "Timestamps"), ("av", "Audio and video"),
    ("flow", "Flow control"), ("findings", "Findings and counts"),
)  # fmt: skip


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; img-src data:"


@cache
def asset(name: str) -> str:
    return files("rtmp_spark.report").joinpath("assets", name).read_text("utf-8")


def render(tables: Tables, *, uid: str | None = None, command: str = "rtmp-spark report") -> str:
    """The whole page as text."""
    return "".join(pieces(tables, uid=uid, command=command))


def pieces(tables: Tables, *, uid: str | None = None, command: str = "rtmp-spark report") -> Iterator[str]:
    """The page in parts, so that a large one need not be in memory as a whole."""
    captures = tables.rows("captures")
    connections = sorted(tables.rows("connections"), key=lambda row: (row["ts_start"], row["uid"]))
    of_files = [row for row in tables.rows("findings") if row["uid"] is None]
    if uid is not None:
        connections = [row for row in connections if row["uid"] == uid]
        own = {capture for row in connections for capture in row["capture_ids"]}
        captures = [row for row in captures if row["capture_id"] in own]
        of_files = [row for row in of_files if row["capture_id"] in own]
    one = len(connections) == 1
    judged = overview.Judged(connections, tables.rows("streams"), tables.rows("findings"))
    if one:
        chosen = connections
        title = _ends(connections[0])
        first = ""
    else:
        ranked = judged.worst_first()[:MOST_DETAILED]
        chosen = [row for row in connections if row["uid"] in set(ranked)]
        title = f"{len(connections):,} connections"
        first = _first_page(tables, connections, judged, set(ranked), captures)
    yield _head(f"RTMP report: {title}", tables.origin, [] if one else chosen)
    yield first
    tables.prepare([row["uid"] for row in chosen])
    for row in chosen:
        yield session_section(Session(tables, row, captures), alone=one)
    yield "<section class='provenance'><h2>Provenance</h2>"
    yield panels.provenance_panel(captures, judged.by_capture(), command, __version__)
    yield panels.recording_panel(of_files, captures)
    yield f"</section></main><script>{asset('report.js')}</script></body></html>\n"


def _head(title: str, origin: str, chosen: Sequence[Row]) -> str:
    digest = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    policy = f"{_POLICY}; script-src 'sha256-{digest}'"
    options = "".join(f"<option value='{text.escape(row['uid'])}'>{text.escape(_ends(row))}</option>" for row in chosen)
    options = f"<option value=''>overview</option>{options}"
    choose = f"<select class='choose' aria-label='connection' hidden>{options}</select>"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<meta name='referrer' content='no-referrer'><title>{text.escape(title)}</title>"
        f"<link rel='icon' href='data:,'><style>{asset('report.css')}</style></head>"
        f"<body class='rs page'><header class='top'><div><h1>{text.escape(title)}</h1>"
        f"<p class='dim'>{text.wire(origin, 160)}</p></div><div class='tools'>{choose if chosen else ''}"
        "<button class='theme' type='button' hidden>dark / light</button></div></header><main>"
    )


def _ends(row: Row) -> str:
    return f"{text.endpoint(row['orig_h'], row['orig_p'])} → {text.endpoint(row['resp_h'], row['resp_p'])}"


def _first_page(
    tables: Tables, connections: Sequence[Row], judged: overview.Judged, detailed: set[str], captures: Sequence[Row]
) -> str:
    parts = ["<section class='overview' id='overview'>", overview.tiles(judged)]
    broken = [row for row in captures if row["status"] != "ok"]
    if broken:
        named = ", ".join(text.wire(row["path"], 80) for row in broken[:5])
        parts.append(f"<p class='warn'>{text.one_of(len(broken), 'capture')} damaged or unreadable: {named}</p>")
    streams = tables.rows("streams")
    if len(connections) >= archive.ARCHIVE_FROM:
        parts.append(archive.panels(judged))
    parts.append(f"<h2>Attempts over time</h2>{overview.attempts_panel(connections, streams)}")
    parts.append(f"<h2>Connections</h2>{overview.connections_panel(judged, detailed)}")
    if len(detailed) < len(connections):
        parts.append(
            f"<p class='note'>The {len(detailed)} with the worst verdicts have their sections on this page; "
            "for another: <code>rtmp-spark report … --uid UID</code>.</p>"
        )
    return "".join([*parts, "</section>"])


def session_section(session: Session, *, alone: bool = False) -> str:
    """The ten sections of one connection."""
    bodies = (
        panels.verdict_panel(session),
        panels.identity_panel(session),
        panels.ladder_panel(session),
        panels.declared_panel(session) + panels.deliveries_panel(session),
        panels.bitrate_panel(session),
        panels.media_panel(session, "gop", "frames"),
        panels.media_panel(session, "clock"),
        panels.media_panel(session, "skew", "jitter"),
        panels.flow_panel(session),
        panels.findings_panel(session) + "<h4>Messages</h4>" + panels.counts_panel(session),
    )
    uid = session.uid
    contents = "".join(f"<a href='#{uid}-{key}'>{name}</a>" for key, name in SECTIONS)
    parts = "".join(
        f"<section class='part' id='{uid}-{key}'><h3>{name}</h3>{body}</section>"
        for (key, name), body in zip(SECTIONS, bodies)
    )
    head = "" if alone else f"<h2>{text.wire(_ends(session.connection))} {panels.badge(session.verdict.word)}</h2>"
    return f"<article class='session' id='{uid}'>{head}<nav class='contents'>{contents}</nav>{parts}</article>"
