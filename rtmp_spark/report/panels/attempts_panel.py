"""Publish and play attempts over time: a lane per stream name, a bar per attempt, and how each attempt ended.

It uses rows of `connections` and `streams` only, so its cost does not depend on how long the sessions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.figures.svg import label_edge, nice_ticks
from rtmp_spark.report.figures.time_scale import TimeScale
from rtmp_spark.report.panels.elements import badge
from rtmp_spark.report.panels.html_table import table

Row = dict[str, Any]
MOST_NAMES = 40
MOST_LABELS = 4  # dates below an axis with breaks
SHORTEST = 1000  # microseconds
MOST_BARS = 400  # per name
MOST_AT_ONCE, LEVEL_PX = 12, 17  # simultaneous streams of one name, drawn below each other
MOST_TABLES, MOST_ATTEMPTS = 6, 40  # names whose attempts are listed, and the number of attempts per name


def attempts_panel(connections: Sequence[Row], streams: Sequence[Row]) -> str:
    """A lane per stream name and role with a bar per attempt, and a table of the attempts of names with several."""
    if not streams:
        return "<p class='missing'>Nothing was published or played in this recording.</p>"
    ends = {row["uid"]: row for row in connections}
    named: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(streams, key=lambda r: (r["ts_start"], r["uid"])):
        named.setdefault((row["app"] or "", row["name"] or "", row["role"]), []).append(row)
    scale = TimeScale.of((row["ts_start"], max(row["ts_end"], row["ts_start"] + SHORTEST)) for row in streams)
    shown = sorted(named.items(), key=lambda item: (-len(item[1]), item[1][0]["ts_start"]))[:MOST_NAMES]
    lanes = "".join(_lane(key, rows, ends, scale) for key, rows in shown)
    left = len(named) - len(shown)
    note = f"<p class='note'>{left:,} more stream names are not drawn.</p>" if left else ""
    tables = "".join(_attempts_table(key, rows, ends) for key, rows in shown[:MOST_TABLES] if _tried_again(rows))
    axis = f"<div class='axis'><span></span><div class='xlabels'>{_labels(scale)}</div></div>"
    return f"<div class='attempts'>{lanes}{axis}</div>{note}{tables}"


def _labels(scale: TimeScale) -> str:
    """Times below an axis without breaks; on one with breaks, the start of each part and the length of each pause."""
    if len(scale.pieces) == 1:
        low, high = scale.pieces[0].start, scale.pieces[0].end
        ticks = [(int(low + tick * 1e6), high - low) for tick in nice_ticks(0.0, (high - low) / 1e6, 4, time=True)]
        return "".join(f"<span{label_edge(scale.share(at))}>{_time_label(at, length)}</span>" for at, length in ticks)
    room = 1 / MOST_LABELS
    starts = [piece for piece in scale.pieces if piece.left == 0]
    for piece in scale.pieces:
        if piece.left >= starts[-1].left + room:
            starts.append(piece)
    return "".join(f"<span{label_edge(piece.left)}>{units.utc_time(piece.start)[:16]}</span>" for piece in starts)


def _time_label(at: int, length: int) -> str:
    if length > 2 * 86_400_000_000:
        return units.utc_day(at)
    return units.utc_time(at, date=False)[: 12 if length < 20_000_000 else 8]


def _lane(key: tuple[str, str, str], rows: Sequence[Row], ends: dict[str, Row], scale: TimeScale) -> str:
    app, name, role = key
    bars = []
    free: list[int] = []  # end time of the last bar on each level
    left_out = max(len(rows) - MOST_BARS, 0)
    for row in rows[:MOST_BARS]:
        level = next((at for at, end in enumerate(free) if end <= row["ts_start"]), len(free))
        if level == MOST_AT_ONCE:
            left_out += 1
            continue
        free[level : level + 1] = [row["ts_end"]]
        left = scale.share(row["ts_start"])
        width = max(scale.share(row["ts_end"]) - left, 0.0)
        words = f"attempt {row['attempt_no']}: {units.spaced(row['verdict'])}, {units.duration(_duration_ms(row))}"
        bars.append(
            f"<a class='bar {row['verdict']}' href='#{page_text.escape(row['uid'])}' "
            f"style='left:{left:.3%};width:{width:.3%};top:{3 + LEVEL_PX * level}px' "
            f"title='{page_text.escape(f'{words}, {_ended(row, ends)}')}'></a>"
        )
    bars += [
        f"<span class='break' style='left:{left:.3%};width:{right - left:.3%}' "
        f"title='{units.duration(length / 1000)} without a stream'></span>"
        for left, right, length in scale.breaks
    ]
    more = f" <span class='dim'>and {left_out:,} more</span>" if left_out else ""
    return (
        f"<div class='lane'><span class='who'>{role} <b>{page_text.untrusted(stream_path(app, name), 80)}</b>"
        f"{more}</span>"
        f"<div class='track' style='height:{3 + LEVEL_PX * len(free)}px'>{''.join(bars)}</div></div>"
    )


def stream_path(app: str, name: str) -> str:
    return f"{app or '?'}/{name or '(name not recorded)'}"


def _duration_ms(row: Row) -> float:
    return float(row["ts_end"] - row["ts_start"]) / 1000


def _ended(row: Row, ends: dict[str, Row]) -> str:
    connection = ends.get(row["uid"])
    return verdict.ending(connection) if connection is not None else "unknown end"


def _tried_again(rows: Sequence[Row]) -> bool:
    return any(row["attempt_no"] > 1 for row in rows)


def _attempts_table(key: tuple[str, str, str], rows: Sequence[Row], ends: dict[str, Row]) -> str:
    app, name, role = key
    lines = [
        [
            str(row["attempt_no"]), f"<a href='#{page_text.escape(row['uid'])}'>{units.utc_time(row['ts_start'])}</a>",
            units.duration(_duration_ms(row)), badge(row["verdict"]), page_text.escape(_ended(row, ends)),
            units.duration(row["down_ms"]),
        ]
        for row in rows[-MOST_ATTEMPTS:]
    ]  # fmt: skip
    head = ("#attempt", "start (UTC)", "#duration", "verdict", "end", "#gap before")
    last = f", the last {len(lines)}" if len(lines) < len(rows) else ""
    most = max(row["attempt_no"] for row in rows)
    count = f"{len(rows):,} attempts" if most == len(rows) else f"{len(rows):,} streams, up to {most:,} attempts"
    return f"<h3>{role} {page_text.untrusted(stream_path(app, name), 80)}: {count}{last}</h3>{table(head, lines)}"
