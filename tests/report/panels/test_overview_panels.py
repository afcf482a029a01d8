"""Panels of a page about several connections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rtmp_spark.report import page_text, units
from rtmp_spark.report.judged_connections import JudgedConnections
from rtmp_spark.report.page import render
from rtmp_spark.report.panels.archive_panels import reasons_by_day
from rtmp_spark.report.panels.attempts_panel import attempts_panel
from rtmp_spark.report.panels.connections_panel import connections_panel
from rtmp_spark.report.table_source import CaptureTables
from rtmp_spark.report.view import judged_settings

Row = dict[str, Any]


def stream(uid: str, start: int, end: int, attempt_no: int = 1, role: str = "play") -> Row:
    known: Row = {"uid": uid, "app": "live", "name": "cam", "role": role, "verdict": "ok", "attempt_no": attempt_no}
    return known | {"ts_start": start * 1_000_000, "ts_end": end * 1_000_000, "down_ms": None}


def bars(html: str) -> dict[str, tuple[float, float, float]]:
    """Per uid: where the bar begins, its width (both in percent) and its vertical position in pixels."""
    pattern = r"href='#(\w+)' style='left:([\d.]+)%;width:([\d.]+)%;top:(\d+)px'"
    found = [[match[1], *map(float, match.groups()[1:])] for match in re.finditer(pattern, html)]
    return {str(uid): (float(left), float(width), float(top)) for uid, left, width, top in found}


def test_simultaneous_players_are_drawn_below_each_other() -> None:
    html = attempts_panel([], [stream("A", 0, 10), stream("B", 5, 20), stream("C", 12, 20)])
    drawn = bars(html)
    assert drawn["A"] == (0, 50, drawn["C"][2]) and drawn["B"][:2] == (25, 75)
    assert drawn["B"][2] > drawn["A"][2]
    assert html.count("class='lane'") == 1 and "attempts<" not in html  # none of them is a retry


def test_repeated_attempts_are_listed() -> None:
    again = [stream("A", 0, 10, 1, "publish"), stream("B", 12, 20, 2, "publish")]
    assert "live/cam</bdi>: 2 attempts</h3>" in attempts_panel([], again)
    assert "live/cam</bdi>: 3 streams, up to 2 attempts</h3>" in attempts_panel(
        [], [*again, stream("C", 3, 4, 1, "publish")]
    )


def test_simultaneous_streams_that_are_not_drawn_are_counted() -> None:
    html = attempts_panel([], [stream(f"A{n}", 0, 10) for n in range(30)])
    assert len(bars(html)) == 12 and "and 18 more" in html


def test_the_list_says_why_a_session_failed(sample_pcaps: Path) -> None:
    tables = CaptureTables([sample_pcaps / "denied_and_unknown_app.pcap"], judged_settings())
    judged = JudgedConnections(tables.rows("connections"), tables.rows("streams"), tables.rows("findings"))
    html = connections_panel(judged, set())
    refused = [row["verdict_text"] for row in tables.rows("streams") if row["verdict_rule_id"] == "CMD_REFUSED"]
    played = {row["uid"] for row in tables.rows("streams")}
    (unanswered,) = [
        row["detail"]
        for row in tables.rows("findings")
        if row["rule_id"] == "CMD_NO_RESPONSE" and row["uid"] not in played
    ]
    assert refused and all("NetStream.Play.StreamNotFound" in text for text in refused)
    assert all(page_text.prose(text, 160) in html for text in refused)
    assert f"Nothing was published or played: {page_text.escape(unanswered)}." in html
    (title,) = {row["title"] for row in tables.rows("findings") if row["rule_id"] == "CMD_REFUSED"}
    assert f">{title}<" not in html  # the verdict says it already


def test_the_list_shows_both_rates(sample_pcaps: Path) -> None:
    """At 0.3 x real time the received bitrate is 0.3 of the encoded one."""
    tables = CaptureTables([sample_pcaps / "slow_and_fast_publishers.pcap"], judged_settings())
    judged = JudgedConnections(tables.rows("connections"), tables.rows("streams"), tables.rows("findings"))
    slow = tables.rows("streams")[0]
    encoded = slow["video_bitrate"] + slow["audio_bitrate"]
    assert slow["received_bitrate"] == pytest.approx(0.3 * encoded, rel=0.02)
    html = connections_panel(judged, set())
    assert units.bitrate(encoded) in html
    assert f"<span title='0.30 x real time'>{units.bitrate(slow['received_bitrate'])}</span>" in html


def test_a_degraded_stream_without_a_rule_is_counted_by_its_close_cause(sample_pcaps: Path) -> None:
    tables = CaptureTables([sample_pcaps / "publisher_killed_midstream.pcap"], judged_settings())
    judged = JudgedConnections(tables.rows("connections"), tables.rows("streams"), tables.rows("findings"))
    assert "degraded: peer vanished" in reasons_by_day(judged)


def test_the_page_of_one_connection_names_only_its_own_files(sample_pcaps: Path) -> None:
    names = ("file_cut_mid_record.pcap", "snaplen96_ffmpeg_publish.pcap")
    tables = CaptureTables([sample_pcaps / name for name in names], judged_settings())
    whole = render(tables)
    assert "CAPTURE_TRUNCATED" in whole and "CAPTURE_SNAPLEN" in whole
    (cut,) = [row["uid"] for row in tables.rows("connections") if row["close_kind"] == "open"]
    page = render(tables, uid=cut).partition("<h2>Provenance</h2>")[2]
    assert "CAPTURE_TRUNCATED" in page and names[0] in page
    assert "CAPTURE_SNAPLEN" not in page and names[1] not in page


def test_the_page_counts_verdicts_per_file(sample_pcaps: Path) -> None:
    """By the README of the samples, one file has four refused attempts and the other a stream without problems."""
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


def test_the_worst_connection_is_first_in_the_list_and_in_the_sections(sample_pcaps: Path) -> None:
    tables = CaptureTables([sample_pcaps / "slow_and_fast_publishers.pcap"], judged_settings())
    streams = {row["verdict"]: row["uid"] for row in tables.rows("streams")}
    worst_first = [streams[word] for word in ("failed", "degraded", "ok")]
    page = render(tables)
    listed = page.partition("<h2>Connections</h2>")[2].partition("</section>")[0]
    assert re.findall(r"<a href='#(C\w+)'>", listed) == worst_first
    assert re.findall(r"<article class='session' id='(C\w+)'", page) == worst_first
    assert re.findall(r"<option value='(C\w+)'", page) == worst_first
