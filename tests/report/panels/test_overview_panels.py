"""The first page of several connections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rtmp_spark.report.archive import reasons_by_day
from rtmp_spark.report.figure import DOTS, Figure, Series
from rtmp_spark.report.overview import Judged, attempts_panel, connections_panel
from rtmp_spark.report.page import render
from rtmp_spark.report.source import CaptureTables
from rtmp_spark.report.svg import draw, nice_ticks, time_text
from rtmp_spark.report.verdict import judge
from rtmp_spark.report.view import judged_settings

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


@pytest.mark.parametrize("seconds", [0.05, 0.7, 3.3, 12.9, 14.0, 29.0, 61.0, 170.0])
def test_the_labels_of_a_time_axis_are_where_they_say(seconds: float) -> None:
    for tick in nice_ticks(0.0, seconds, 6, time=True):
        assert float(time_text(tick, seconds).removesuffix(" s")) == pytest.approx(tick)


def test_one_round_trip_is_drawn_above_zero() -> None:
    figure = Figure("rtt", "Round trips", "ms", [Series("ping", "key", DOTS, [1.0], [0.5], 1)])
    assert ">0 ms<" in draw(figure) and "-" not in re.sub(r"<[^>]*>", "", draw(figure))


def test_a_session_that_failed_says_why_in_the_list(sample_pcaps: Path) -> None:
    tables = CaptureTables([sample_pcaps / "denied_and_unknown_app.pcap"], judged_settings())
    judged = Judged(tables.rows("connections"), tables.rows("streams"), tables.rows("findings"))
    html = connections_panel(judged, set())
    assert "Play was refused: NetStream.Play.StreamNotFound No such stream" in html
    assert "Nothing was published or played: connect got no answer; the server closed less than 1 ms later." in html
    assert "The server refused" not in html  # the title of what was told already


def test_a_stream_that_broke_off_is_counted_by_how_it_ended(sample_pcaps: Path) -> None:
    tables = CaptureTables([sample_pcaps / "publisher_killed_midstream.pcap"], judged_settings())
    judged = Judged(tables.rows("connections"), tables.rows("streams"), tables.rows("findings"))
    assert "degraded: peer vanished" in reasons_by_day(judged)


def test_the_page_of_one_connection_tells_of_its_own_files_only(sample_pcaps: Path) -> None:
    names = ("file_cut_mid_record.pcap", "snaplen96_ffmpeg_publish.pcap")
    tables = CaptureTables([sample_pcaps / name for name in names], judged_settings())
    whole = render(tables)
    assert "CAPTURE_TRUNCATED" in whole and "CAPTURE_SNAPLEN" in whole
    (cut,) = [row["uid"] for row in tables.rows("connections") if row["close_kind"] == "open"]
    page = render(tables, uid=cut).partition("<h2>Provenance</h2>")[2]
    assert "CAPTURE_TRUNCATED" in page and names[0] in page
    assert "CAPTURE_SNAPLEN" not in page and names[1] not in page


def test_what_keys_opened_was_read() -> None:
    row = {"service": "rtmps", "app": None, "close_cause": "refused"}
    assert judge(row, [], []).word == "unknown"
    assert judge(row | {"app": "live"}, [], []).word == "failed"


def test_the_page_says_in_which_file_the_trouble_is(sample_pcaps: Path) -> None:
    """What each file holds is told in its README: four attempts that were refused, and a stream that is fine."""
    names = ("denied_and_unknown_app.pcap", "ffmpeg_publish_h264_aac.pcap")
    paths = [sample_pcaps / name for name in names]
    page = render(CaptureTables(paths, judged_settings()))
    assert "<p class='dim'><bdi>2 captures</bdi></p>" in page
    provenance = page[page.index("<section class='provenance'>") :]
    rows = {cells[0]: cells[1] for cells in re.findall(r"<tr><td><bdi>([^<]*)</bdi></td><td>([^<]*)</td>", provenance)}
    assert rows == {str(paths[0]): "3 failed, 1 no media", str(paths[1]): "1 ok"}
    sections = re.findall(r"<article class='session'.*?</article>", page, re.DOTALL)
    of_file = [[path.name for path in paths if f"<dt>capture</dt><dd><bdi>{path}</bdi></dd>" in s] for s in sections]
    assert sorted(of_file) == [[names[0]]] * 4 + [[names[1]]]
