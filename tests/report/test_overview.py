"""The first page of several connections."""

from __future__ import annotations

import re
from typing import Any

from rtmp_spark.report.overview import attempts_panel

Row = dict[str, Any]


def stream(uid: str, start: int, end: int, attempt_no: int = 1, role: str = "play") -> Row:
    known: Row = {"uid": uid, "app": "live", "name": "cam", "role": role, "verdict": "ok", "attempt_no": attempt_no}
    return known | {"ts_start": start * 1_000_000, "ts_end": end * 1_000_000, "down_ms": None}


def bars(html: str) -> dict[str, tuple[float, float, float]]:
    """Where each bar begins, how wide it is (percent) and at which height it stands."""
    pattern = r"href='#(\w+)' style='left:([\d.]+)%;width:([\d.]+)%;top:(\d+)px'"
    found = [[match[1], *map(float, match.groups()[1:])] for match in re.finditer(pattern, html)]
    return {str(uid): (float(left), float(width), float(top)) for uid, left, width, top in found}


def test_players_at_once_stand_one_below_the_other() -> None:
    html = attempts_panel([], [stream("A", 0, 10), stream("B", 5, 20), stream("C", 12, 20)])
    drawn = bars(html)
    assert drawn["A"] == (0, 50, drawn["C"][2]) and drawn["B"][:2] == (25, 75)
    assert drawn["B"][2] > drawn["A"][2]
    assert html.count("class='lane'") == 1 and "attempts<" not in html  # none of them is a retry


def test_what_was_tried_again_is_told_in_words() -> None:
    again = [stream("A", 0, 10, 1, "publish"), stream("B", 12, 20, 2, "publish")]
    assert "live/cam</bdi>: 2 attempts</h4>" in attempts_panel([], again)
    assert "live/cam</bdi>: 3 streams, up to 2 attempts</h4>" in attempts_panel(
        [], [*again, stream("C", 3, 4, 1, "publish")]
    )


def test_more_at_once_than_can_be_drawn_are_counted() -> None:
    html = attempts_panel([], [stream(f"A{n}", 0, 10) for n in range(30)])
    assert len(bars(html)) == 12 and "and 18 more" in html
