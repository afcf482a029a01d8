"""The list of connections, and the number of connections per verdict."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.judged_connections import JudgedConnection, JudgedConnections, loss, software
from rtmp_spark.report.panels.attempts_panel import stream_path
from rtmp_spark.report.panels.elements import badge
from rtmp_spark.report.panels.html_table import filterable, table

Row = dict[str, Any]
MOST_LISTED = 500
MOST_RULES = 3  # named per connection


def tiles(judged: JudgedConnections) -> str:
    counted = Counter(connection.verdict.word for connection in judged.all)
    shown = [word for word in reversed(verdict.VERDICTS) if counted[word]]
    return "<div class='tiles'>" + "".join(
        f"<div class='tile {word}'><b>{counted[word]:,}</b><span>{units.spaced(word)}</span></div>" for word in shown
    ) + "</div>"  # fmt: skip


def connections_panel(judged: JudgedConnections, detailed: set[str]) -> str:
    """One row per connection, worst first; uids in `detailed` link to their sections on the page."""
    shown = judged.ranked()[:MOST_LISTED]
    lines = [_line(connection, connection.row["uid"] in detailed) for connection in shown]
    left = len(judged.all) - len(shown)
    note = f"<p class='note'>{left:,} more connections are not listed.</p>" if left > 0 else ""
    head = (
        "start (UTC)", "verdict", "problems", "client → server", "stream", "software", "#duration", "#up<br>down",
        "#encoded<br>received", "#loss", "end",
    )  # fmt: skip
    return filterable(table(head, lines, "connections"), len(judged.all), "connections") + note


def _line(connection: JudgedConnection, detailed: bool) -> list[str]:
    row, judged = connection.row, connection.verdict
    ranked = verdict.ordered(connection.findings)
    grave = list({f["rule_id"]: f for f in reversed(ranked) if f["severity"] != "info"}.values())
    problems = [] if judged.word == "ok" else [f"<div>{page_text.prose(judged.sentence, 160)}</div>"]
    problems += [
        f"<div class='sev {f['severity']}' title='{page_text.escape(f['rule_id'])}'>"
        f"{page_text.escape(f['title'])}</div>"
        for f in reversed(grave)
        if not problems or f["rule_id"] != judged.rule_id
    ]
    if len(problems) > MOST_RULES:
        problems[MOST_RULES:] = [f"<div class='dim'>and {len(problems) - MOST_RULES} more</div>"]
    streams = "; ".join(f"{s['role']} {stream_path(s['app'] or '', s['name'] or '')}" for s in connection.streams[:3])
    when = units.utc_time(row["ts_start"])
    end = f"{row['closed_by'] or ''} {row['close_kind']}, {units.spaced(row['close_cause'])}".strip()
    endpoints = [page_text.untrusted(units.endpoint(row[f"{side}_h"], row[f"{side}_p"])) for side in ("orig", "resp")]
    return [
        f"<a href='#{page_text.escape(row['uid'])}'>{when}</a>" if detailed else when,
        badge(judged.word),
        "".join(problems),
        "<br>→&nbsp;".join(endpoints),
        page_text.untrusted(streams, 120),
        page_text.untrusted(software(row), 60),
        units.duration((row["ts_end"] - row["ts_start"]) / 1000),
        "<br>".join(units.size(row[f"delivered_bytes_{way}"]) for way in ("c2s", "s2c")),
        _rates(connection.streams),
        loss(row, connection.streams[0]["direction"] if connection.streams else None),
        page_text.escape(end),
    ]


def _rates(streams: list[Row]) -> str:
    """The bitrate of the first stream with media, by media time and by wall time."""
    stream = next((one for one in streams if one["received_bitrate"] is not None), None)
    if stream is None:
        return ""
    pace = "" if stream["pace"] is None else f" title='{stream['pace']:.2f} x real time'"
    received = f"<span{pace}>{units.bitrate(stream['received_bitrate'])}</span>"
    return f"{units.bitrate(units.encoded_bitrate(stream))}<br>{received}"
