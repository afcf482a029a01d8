"""The first page of several connections: a timeline of attempts, who ended each, how long it stayed away; the list.

Works on rows of `connections`, `streams` and `findings` alone, so that it costs the same for an hour as for a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rtmp_spark.report import text, verdict
from rtmp_spark.report.grid import table
from rtmp_spark.report.panels import badge
from rtmp_spark.report.svg import label_edge, nice_ticks

Row = dict[str, Any]
MOST_NAMES = 40
MOST_BARS = 400  # per name
MOST_AT_ONCE, LEVEL_PX = 12, 17  # streams of one name drawn one below the other
MOST_IN_WORDS, MOST_ATTEMPTS = 6, 40  # names whose attempts are told one by one, and how many of them
MOST_LISTED = 500
MOST_RULES = 3  # that are named beside a connection
FILTER_FROM = 8  # connections


def attempts_panel(connections: Sequence[Row], streams: Sequence[Row]) -> str:
    """A lane per stream name and role, a bar per attempt; names that were tried again have their attempts in words."""
    if not streams:
        return "<p class='missing'>Nothing was published or played in this recording.</p>"
    ends = {row["uid"]: row for row in connections}
    named: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(streams, key=lambda r: (r["ts_start"], r["uid"])):
        named.setdefault((row["app"] or "", row["name"] or "", row["role"]), []).append(row)
    low = min(row["ts_start"] for row in streams)
    high = max(max(row["ts_end"] for row in streams), low + 1000)
    shown = sorted(named.items(), key=lambda item: (-len(item[1]), item[1][0]["ts_start"]))[:MOST_NAMES]
    lanes = "".join(_lane(key, rows, ends, low, high) for key, rows in shown)
    labels = "".join(
        f"<span{label_edge(tick * 1e6 / (high - low))}>{_time_label(int(low + tick * 1e6), high - low)}</span>"
        for tick in nice_ticks(0.0, (high - low) / 1e6, 4, time=True)
    )
    left = len(named) - len(shown)
    note = f"<p class='note'>{left:,} more names are not drawn.</p>" if left else ""
    again = "".join(_attempts_table(key, rows, ends) for key, rows in shown[:MOST_IN_WORDS] if _tried_again(rows))
    axis = f"<div class='axis'><span></span><div class='xlabels'>{labels}</div></div>"
    return f"<div class='attempts'>{lanes}{axis}</div>{note}{again}"


def _time_label(at: int, length: int) -> str:
    if length > 2 * 86_400_000_000:
        return text.day(at)
    return text.clock(at, date=False)[: 12 if length < 20_000_000 else 8]


def _lane(key: tuple[str, str, str], rows: Sequence[Row], ends: dict[str, Row], low: int, high: int) -> str:
    app, name, role = key
    bars = []
    free: list[int] = []  # when each level is free again
    left_out = max(len(rows) - MOST_BARS, 0)
    for row in rows[:MOST_BARS]:
        level = next((at for at, end in enumerate(free) if end <= row["ts_start"]), len(free))
        if level == MOST_AT_ONCE:
            left_out += 1
            continue
        free[level : level + 1] = [row["ts_end"]]
        left = (row["ts_start"] - low) / (high - low)
        width = max((row["ts_end"] - row["ts_start"]) / (high - low), 0.0)
        words = f"attempt {row['attempt_no']}: {text.words(row['verdict'])}, {text.span(_stayed(row))}"
        bars.append(
            f"<a class='bar {row['verdict']}' href='#{text.escape(row['uid'])}' "
            f"style='left:{left:.3%};width:{width:.3%};top:{3 + LEVEL_PX * level}px' "
            f"title='{text.escape(f'{words}, {_ended(row, ends)}')}'></a>"
        )
    more = f" <span class='dim'>and {left_out:,} more</span>" if left_out else ""
    return (
        f"<div class='lane'><span class='who'>{role} <b>{text.wire(_path(app, name), 80)}</b>{more}</span>"
        f"<div class='track' style='height:{3 + LEVEL_PX * len(free)}px'>{''.join(bars)}</div></div>"
    )


def _path(app: str, name: str) -> str:
    return f"{app or '?'}/{name or '(name not recorded)'}"


def _stayed(row: Row) -> float:
    return float(row["ts_end"] - row["ts_start"]) / 1000


def _ended(row: Row, ends: dict[str, Row]) -> str:
    connection = ends.get(row["uid"])
    return verdict.ending(connection) if connection is not None else "the end is not known"


def _tried_again(rows: Sequence[Row]) -> bool:
    return any(row["attempt_no"] > 1 for row in rows)


def _attempts_table(key: tuple[str, str, str], rows: Sequence[Row], ends: dict[str, Row]) -> str:
    app, name, role = key
    lines = [
        [
            str(row["attempt_no"]), f"<a href='#{text.escape(row['uid'])}'>{text.clock(row['ts_start'])}</a>",
            text.span(_stayed(row)), badge(row["verdict"]), text.escape(_ended(row, ends)), text.span(row["down_ms"]),
        ]
        for row in rows[-MOST_ATTEMPTS:]
    ]  # fmt: skip
    head = ("#attempt", "start (UTC)", "#stayed", "verdict", "how it ended", "#after a break of")
    last = f", the last {len(lines)}" if len(lines) < len(rows) else ""
    most = max(row["attempt_no"] for row in rows)
    count = f"{len(rows):,} attempts" if most == len(rows) else f"{len(rows):,} streams, up to {most:,} attempts"
    return f"<h4>{role} {text.wire(_path(app, name), 80)}: {count}{last}</h4>{table(head, lines)}"


class Judged:
    """Every connection with its verdict and its findings counted."""

    def __init__(self, connections: Sequence[Row], streams: Sequence[Row], findings: Sequence[Row]) -> None:
        own_streams: dict[str, list[Row]] = {}
        own_findings: dict[str | None, list[Row]] = {}
        for row in streams:
            own_streams.setdefault(row["uid"], []).append(row)
        for row in findings:
            own_findings.setdefault(row["uid"], []).append(row)
        self.rows: list[tuple[Row, list[Row], list[Row], verdict.Verdict]] = []
        for row in connections:
            mine, found = own_streams.get(row["uid"], []), own_findings.get(row["uid"], [])
            self.rows.append((row, mine, found, verdict.judge(row, mine, found)))
        self.of_files = own_findings.get(None, [])

    def by_capture(self) -> dict[str, Counter[str]]:
        """How many connections of each verdict a capture holds; one that goes on in the next counts in both."""
        counted: dict[str, Counter[str]] = {}
        for row, _, _, judged in self.rows:
            for capture in row["capture_ids"]:
                counted.setdefault(capture, Counter())[judged.word] += 1
        return counted

    def worst_first(self) -> list[str]:
        ranked = sorted(
            self.rows,
            key=lambda item: (
                verdict.VERDICTS.index(item[3].word),
                -sum(f["severity"] == "error" for f in item[2]),
                -sum(f["severity"] == "warning" for f in item[2]),
                item[0]["ts_start"],
            ),
        )
        return [item[0]["uid"] for item in ranked]


def tiles(judged: Judged) -> str:
    counted = Counter(item[3].word for item in judged.rows)
    shown = [word for word in reversed(verdict.VERDICTS) if counted[word]]
    return "<div class='tiles'>" + "".join(
        f"<div class='tile {word}'><b>{counted[word]:,}</b><span>{text.words(word)}</span></div>" for word in shown
    ) + "</div>"  # fmt: skip


def connections_panel(judged: Judged, detailed: set[str]) -> str:
    shown = judged.rows
    if len(shown) > MOST_LISTED:
        rank = {uid: place for place, uid in enumerate(judged.worst_first())}
        shown = sorted(shown, key=lambda item: rank[item[0]["uid"]])[:MOST_LISTED]
    lines = [_line(*item, item[0]["uid"] in detailed) for item in shown]
    left = len(judged.rows) - len(shown)
    note = f"<p class='note'>The worst first; {left:,} more connections are not listed.</p>" if left > 0 else ""
    search = "<input class='search' type='search' placeholder='filter' aria-label='filter connections' hidden>"
    head = (
        "start (UTC)", "verdict", "what is wrong", "client → server", "stream", "software", "#lasted", "#up", "#down",
        "end",
    )  # fmt: skip
    return (search if len(judged.rows) > FILTER_FROM else "") + table(head, lines, "connections") + note


def _line(row: Row, streams: list[Row], findings: list[Row], judged: verdict.Verdict, detailed: bool) -> list[str]:
    told = [] if judged.word == "ok" else [f"<div>{text.prose(judged.sentence, 160)}</div>"]
    grave = list({f["rule_id"]: f for f in reversed(verdict.ordered(findings)) if f["severity"] != "info"}.values())
    told += [
        f"<div class='sev {f['severity']}' title='{text.escape(f['rule_id'])}'>{text.escape(f['title'])}</div>"
        for f in reversed(grave)
        if not told or f["rule_id"] != judged.rule_id
    ]
    if len(told) > MOST_RULES:
        told[MOST_RULES:] = [f"<div class='dim'>and {len(told) - MOST_RULES} more</div>"]
    played = "; ".join(f"{stream['role']} {_path(stream['app'] or '', stream['name'] or '')}" for stream in streams[:3])
    when = text.clock(row["ts_start"])
    end = f"{row['closed_by'] or ''} {row['close_kind']}, {text.words(row['close_cause'])}".strip()
    return [
        f"<a href='#{text.escape(row['uid'])}'>{when}</a>" if detailed else when,
        badge(judged.word),
        "".join(told),
        "<br>→&nbsp;".join(text.wire(text.endpoint(row[f"{end}_h"], row[f"{end}_p"])) for end in ("orig", "resp")),
        text.wire(played, 120),
        text.wire(software(row), 60),
        text.span((row["ts_end"] - row["ts_start"]) / 1000),
        text.size(row["delivered_bytes_c2s"]),
        text.size(row["delivered_bytes_s2c"]),
        text.escape(end),
    ]


def software(row: Row) -> str:
    """Who the client is, as far as it is known."""
    return row["software"] or row["flash_ver"] or "unknown"
