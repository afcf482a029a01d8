"""Figures over time. The sample is a publisher that sends two windows of 50,000 bytes, then nothing for ten seconds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.view import read_captures

WINDOW = 50_000


def connections(path: Path) -> list[ConnectionData]:
    return [view._data for view in read_captures(path).connections]


def test_the_wait_for_acknowledgements_is_drawn_and_counted(sample_pcaps: Path) -> None:
    waiting, acknowledged = connections(sample_pcaps / "encoder_waits_for_acknowledgements.pcap")
    lanes = {lane.name: lane.spans for lane in waiting.bitrate.lanes}
    ((begin, end, words),) = lanes["no media"]
    assert 9 <= end - begin <= 10 and end == pytest.approx(waiting.duration_ms / 1000, abs=0.001)
    assert words == "no media for about 10 s"
    lowest = re.search(r"lowest (\S+ \S+),", waiting.bitrate.note)
    assert lowest is not None and lowest[1] == "0 kb/s"
    assert "no media" not in {lane.name for lane in acknowledged.bitrate.lanes}


def test_the_window_line_needs_no_acknowledgement(sample_pcaps: Path) -> None:
    waiting, acknowledged = connections(sample_pcaps / "encoder_waits_for_acknowledgements.pcap")
    series = {one.name: one for one in waiting.flow_control[0].series}
    limit, sent = series["limit: acknowledged + window"], series["sent"]
    assert set(limit.y) == {WINDOW} and limit.x[-1] == sent.x[-1] == pytest.approx(
        waiting.duration_ms / 1000, abs=0.001
    )
    assert 2 * WINDOW < sent.y[-1] < 2.5 * WINDOW
    moving = next(one for one in acknowledged.flow_control[0].series if one.role == "window")
    assert moving.y == sorted(moving.y) and moving.y[0] == WINDOW and moving.y[-1] > WINDOW
