"""The panels of one connection as HTML: what the report and a notebook both show.

Every function takes a `Session` and returns a fragment; texts from the wire pass through `text.wire` or `text.escape`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rtmp_spark.report import text, verdict
from rtmp_spark.report.figure import Figure
from rtmp_spark.report.flow import WAYS
from rtmp_spark.report.grid import table
from rtmp_spark.report.ladder import Step, run_words
from rtmp_spark.report.media import StreamMedia
from rtmp_spark.report.session import Session
from rtmp_spark.report.svg import draw

Row = dict[str, Any]
_LISTED_CAPTURES, _NAMED_CAPTURES = 200, 8  # of the page, and of one connection


def badge(word: str) -> str:
    return f"<span class='badge {text.escape(word)}'>{text.escape(text.words(word))}</span>"


def paste(code: str) -> str:
    """Something to copy into another program."""
    return f"<code class='copy'>{text.escape(code, 500)}</code>"


# -- 1: verdict ---------------------------------------------------------------------------------------------------


def verdict_panel(session: Session) -> str:
    judged = session.verdict
    worst = verdict.worst_findings(session.findings)
    items = "".join(_finding_item(session, row) for row in worst)
    rest = len(session.findings) - len(worst)
    link = f"<a href='#{session.uid}-findings'>all {len(session.findings)} findings</a>"
    more = f"<p class='note'>{link}</p>" if rest else ""
    listed = f"<ol class='worst'>{items}</ol>{more}" if worst else "<p class='note'>No findings.</p>"
    return f"<p class='verdict {judged.word}'>{badge(judged.word)} {text.prose(judged.sentence)}</p>{listed}"


def _finding_item(session: Session, row: Row) -> str:
    detail = row["detail"] or row["actual"]
    parts = [
        f"<div class='head'><span class='sev {row['severity']}'>{row['severity']}</span> "
        f"<b>{text.prose(row['title'])}</b> <code class='rule'>{text.escape(row['rule_id'])}</code>{_times(row)}"
        f"{_blame(row)}</div>"
    ]
    if detail and detail != row["title"]:
        parts.append(f"<div>{text.wire(detail, 600)}</div>")
    if row["fix_hint"]:
        parts.append(f"<div class='fix'>{text.prose(row['fix_hint'])}</div>")
    parts.append(f"<div class='where'>{' · '.join(_places(session, row))}</div>")
    return f"<li class='{row['severity']}'>{''.join(parts)}</li>"


def _times(row: Row) -> str:
    return f" <span class='dim'>×{row['count']:,}</span>" if row["count"] > 1 else ""


def _blame(row: Row) -> str:
    return f" <span class='dim'>{text.escape(row['at_fault'])}</span>" if row["at_fault"] else ""


def _places(session: Session, row: Row) -> list[str]:
    places = []
    if row["clause"]:
        places.append(text.escape(row["clause"], 200))
    if row["frame"]:
        places.append(paste(f"frame.number == {row['frame']}"))
        if len(session.captures) > 1:
            places.append(text.escape(session.capture_name.get(row["capture_id"], "")))
    if row["ts"] is not None:
        places.append(f"at {text.span((row['ts'] - session.start) / 1000)}")
    if row["direction"]:
        places.append(text.escape(WAYS.get(row["direction"], row["direction"])))
    return places


# -- 2: identity --------------------------------------------------------------------------------------------------


def identity_panel(session: Session) -> str:
    row = session.connection
    client = text.endpoint(row["orig_h"], row["orig_p"])
    server = text.endpoint(row["resp_h"], row["resp_p"])
    left = len(session.captures) - _NAMED_CAPTURES
    more = f" and {left:,} more" if left > 0 else ""
    facts: list[tuple[str, str]] = [
        ("client → server", f"{text.wire(client)} → {text.wire(server)}"),
        ("uid", f"<code>{text.escape(row['uid'])}</code> {_sensor(row)}"),
        ("service", text.escape(row["service"]) + (", recorded from the middle on" if row["midstream"] else "")),
        ("application", text.wire(row["app"])),
        ("streams", ", ".join(text.wire(name) for name in row["stream_names"][:8]) or text.MISSING),
        ("client software", _software(row, "client", row["software"])),
        ("server software", _software(row, "server", row.get("server_software"))),
        ("client says", text.wire(row["flash_ver"])),
        ("server says", text.wire(row["server_ver"])),
        ("time", f"{text.clock(row['ts_start'])} UTC for {text.span(session.duration_ms)}"),
        ("bytes", f"{text.size(row['delivered_bytes_c2s'])} up, {text.size(row['delivered_bytes_s2c'])} down"),
        ("end", text.escape(verdict.ending(row))),
        ("recording", _quality(session)),
        ("capture", ", ".join(text.wire(row["path"]) for row in session.captures[:_NAMED_CAPTURES]) + more),
        ("Wireshark", paste(wireshark_filter(row))),
        ("Community ID", f"<code>{text.escape(row['community_id'])}</code>"),
    ]
    return "<dl class='facts'>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"


def _software(row: Row, side: str, name: str | None) -> str:
    """The name, and what speaks for it."""
    told = [text.wire(e.partition(": ")[2], 120) for e in row.get("software_evidence") or () if e.startswith(side)]
    evidence = f" <span class='dim'>by {'; '.join(told[:6])}</span>" if told else ""
    return (f"<b>{text.wire(name)}</b>" if name else "not recognised") + evidence


def _sensor(row: Row) -> str:
    return f"at {text.wire(row['sensor'])}" if row["sensor"] else ""


def _quality(session: Session) -> str:
    """What the recording lacks, or that it lacks nothing."""
    row = session.connection
    lacks = []
    for way, words in WAYS.items():
        if row[f"missed_bytes_{way}"]:
            lacks.append(f"{text.size(row[f'missed_bytes_{way}'])} {words} in no packet")
        if not row[f"packets_{way}"]:
            lacks.append(f"no packets {words}")
    again = row["retransmitted_bytes_c2s"] + row["retransmitted_bytes_s2c"]
    if again:
        lacks.append(f"{text.size(again)} sent again")
    if row["out_of_order_packets_c2s"] + row["out_of_order_packets_s2c"]:
        lacks.append(f"{row['out_of_order_packets_c2s'] + row['out_of_order_packets_s2c']:,} packets out of order")
    cut = sum(capture["packets_truncated"] for capture in session.captures)
    if cut:
        lacks.append(f"{text.one_of(cut, 'packet')} cut at {session.captures[0]['snaplen'] or '?'} bytes")
    if row["midstream"]:
        lacks.append("its beginning was not recorded")
    if any(capture["status"] != "ok" for capture in session.captures):
        lacks.append("a damaged file")
    return text.escape("; ".join(lacks)) if lacks else "complete, nothing lost or sent again"


def wireshark_filter(row: Row) -> str:
    """A display filter for the packets of a connection."""
    ip = "ipv6" if ":" in row["orig_h"] else "ip"
    ports = f"tcp.port == {row['orig_p']} && tcp.port == {row['resp_p']}"
    hosts = dict.fromkeys([row["orig_h"], row["resp_h"]])
    return " && ".join([*(f"{ip}.addr == {host}" for host in hosts), ports])


# -- 3: ladder ----------------------------------------------------------------------------------------------------


def ladder_panel(session: Session) -> str:
    steps, runs = session.ladder.steps, session.media.runs
    if not steps:
        return "<p class='missing'>No handshake, command or control message is in this recording.</p>"
    rows = [
        "<div class='rung heads'><span></span><span class='client'>client</span><span class='server'>server</span>"
        "<span></span></div>"
    ]
    for index, step in enumerate(steps):
        if index and index < len(runs):
            rows.append(_run(runs[index]))
        rows.append(_rung(step, session.start))
    if len(runs) > len(steps):
        rows.append(_run(runs[len(steps)]))
    end = text.escape(verdict.ending(session.connection))
    rows.append(f"<div class='rung run'><span></span><span class='band end'>{end}</span></div>")
    left = session.ladder.left_out
    note = f"<p class='note'>{left:,} steps in the middle are left out.</p>" if left else ""
    return f"<div class='ladder'>{''.join(rows)}</div>{note}"


def _rung(step: Step, start: int) -> str:
    count = f" <span class='dim'>×{step.count:,}</span>" if step.count > 1 else ""
    on = f" <span class='dim'>[{step.stream_id}]</span>" if step.stream_id else ""
    words = f" <span class='words'>{text.wire(step.words, 160)}</span>" if step.words else ""
    answer = f"<span class='ms'>{text.span(step.response_ms)}</span>" if step.response_ms is not None else ""
    frame = f"<span class='frame' title='packet number in the capture'>#{step.frame}</span>" if step.frame else ""
    return (
        f"<div class='rung {step.direction} {step.kind}'><span class='at'>{(step.ts - start) / 1e6:.3f} s</span>"
        f"<span class='arrow'><span class='what'><b>{text.wire(step.name, 80)}</b>{on}{count}{words}</span></span>"
        f"<span class='meta'>{answer}{frame}</span></div>"
    )


def _run(run: tuple[int, int, int]) -> str:
    if not run[0] + run[1]:
        return ""
    return f"<div class='rung run'><span></span><span class='band'>{text.escape(run_words(run))}</span></div>"


# -- 4: declared and measured -------------------------------------------------------------------------------------


def declared_panel(session: Session) -> str:
    if not session.media.streams:
        return f"<p class='missing'>{_no_media(session)}</p>"
    parts = []
    for stream in session.media.streams:
        rows = [
            (
                "differs" if line.differs else "",
                [text.escape(line.name), text.wire(line.declared), *map(text.escape, (line.configured, line.measured))],
            )
            for line in session.declared(stream)
        ]
        head = ("", "onMetaData", "configuration record", "measured")
        parts.append(_stream_head(session, stream) + table(head, rows, "declared"))
    if session.media.left_out:
        parts.append(f"<p class='note'>{text.one_of(session.media.left_out, 'smaller stream')} not shown.</p>")
    return "".join(parts)


def _no_media(session: Session) -> str:
    row = session.connection
    if row["service"] != "rtmp":
        return f"The connection is {text.escape(row['service'])}; its contents were not read."
    return "No media are in this recording of the connection."


def _stream_head(session: Session, stream: StreamMedia) -> str:
    if len(session.media.streams) < 2:
        return ""
    return f"<h4>stream {stream.stream_id}, {WAYS[stream.direction]}</h4>"


# -- 5 to 9: plots ------------------------------------------------------------------------------------------------


def bitrate_panel(session: Session) -> str:
    return draw(session.bitrate, session.x_range)


def media_panel(session: Session, *keys: str) -> str:
    found = session.media_figures(*keys)
    if not found:
        return f"<p class='missing'>{_no_media(session)}</p>"
    parts, before = [], None
    for stream, figure in found:
        if stream is not before:
            parts.append(_stream_head(session, stream))
            before = stream
        parts.append(draw(figure, session.x_range))
    return "".join(parts)


def flow_panel(session: Session) -> str:
    return drawn(session.flow_control, session)


def drawn(figures: Sequence[Figure], session: Session) -> str:
    return "".join(draw(figure, session.x_range) for figure in figures)


# -- 10: findings, counts, provenance -----------------------------------------------------------------------------


def findings_panel(session: Session) -> str:
    if not session.findings:
        return "<p class='note'>No findings.</p>"
    rows = [
        (
            row["severity"],
            [
                f"<span class='sev {row['severity']}'>{row['severity']}</span>",
                f"<code class='rule'>{text.escape(row['rule_id'])}</code>{_times(row)}{_blame(row)}",
                f"{text.wire(row['detail'] or row['title'], 400)}{_expected(row)}",
                f"<span class='where'>{' · '.join(_places(session, row))}</span>",
            ],
        )
        for row in session.findings
    ]
    return table(("severity", "rule", "what was seen", "where"), rows, "findings")


def _expected(row: Row) -> str:
    if not row["expected"]:
        return ""
    return f"<div class='dim'>expected {text.wire(row['expected'])}, got {text.wire(row['actual'])}</div>"


def counts_panel(session: Session) -> str:
    if not session.message_counts:
        return "<p class='missing'>No RTMP messages were recorded.</p>"
    rows = [
        [
            WAYS[row["direction"]], text.escape(text.words(row["type_name"])), text.escape(row["status"]),
            f"{row['count']:,}", text.size(row["bytes"]),
        ]
        for row in session.message_counts
    ]  # fmt: skip
    return table(("direction", "message", "status", "#count", "#bytes"), rows)


def recording_panel(findings: Sequence[Row], captures: Sequence[Row]) -> str:
    """What is to be said about the files themselves; empty when there is nothing."""
    names = {row["capture_id"]: row["path"] for row in captures}
    rows = [
        (
            row["severity"],
            [
                f"<span class='sev {row['severity']}'>{row['severity']}</span>",
                f"<code class='rule'>{text.escape(row['rule_id'])}</code>{_times(row)}",
                text.wire(row["detail"] or row["title"], 400),
                text.wire(names.get(row["capture_id"], ""), 120),
                text.prose(row["fix_hint"]) if row["fix_hint"] else "",
            ],
        )
        for row in verdict.ordered(findings)
    ]
    if not rows:
        return ""
    return "<h4>About the recording</h4>" + table(("severity", "rule", "what was seen", "file", "remedy"), rows)


def provenance_panel(captures: Sequence[Row], verdicts: Mapping[str, Counter[str]], command: str, version: str) -> str:
    """`verdicts` are those of the connections in each capture: in which of the files the trouble is."""
    rows = [
        [
            text.wire(row["path"]), _verdicts(verdicts.get(row["capture_id"], Counter())), text.escape(row["format"]),
            f"{row['packets']:,}", text.clock(row["ts_first"]), text.escape(row["status"]) + _hint(row),
            f"<code>{text.escape(row['capture_id'])}</code>",
        ]
        for row in captures[:_LISTED_CAPTURES]
    ]  # fmt: skip
    left = len(captures) - len(rows)
    note = f"<p class='note'>{text.one_of(left, 'more capture')} not listed.</p>" if left else ""
    head = ("capture", "connections", "format", "#packets", "first packet (UTC)", "status", "capture_id")
    return f"<p>rtmp_spark {text.escape(version)} · {paste(command)}</p>{table(head, rows)}{note}"


def _verdicts(counted: Counter[str]) -> str:
    worst_first = [word for word in verdict.VERDICTS if counted[word]]
    return ", ".join(f"{counted[word]:,} {text.words(word)}" for word in worst_first) or text.MISSING


def _hint(row: Row) -> str:
    return f"<div class='dim'>{text.escape(row['error_hint'], 300)}</div>" if row["error_hint"] else ""


def deliveries_panel(session: Session) -> str:
    """How the stream travelled from its publisher to this player; empty when the tables do not know."""
    if not session.deliveries:
        return ""
    rows = [
        [
            f"<a href='#{text.escape(row['publish_uid'])}'>{text.escape(row['publish_uid'])}</a>",
            *(text.span(row[f"latency_ms_{p}"]) for p in ("p50", "p95", "p99")),
            text.span(row["first_frame_ms"]), text.span(row["burst_ms"]),
            *(f"{row[f'frames_{what}']:,}" for what in ("published", "missing", "changed")),
        ]
        for row in session.deliveries
    ]  # fmt: skip
    head = (
        "publisher", "#latency p50", "#p95", "#p99", "#first frame", "#cached burst", "#frames", "#missing", "#changed",
    )  # fmt: skip
    return f"<h4>Delivered from its publisher</h4>{table(head, rows)}"
