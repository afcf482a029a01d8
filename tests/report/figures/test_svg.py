"""Axes of the figures."""

from __future__ import annotations

import re

import pytest

from rtmp_spark.report.figures.figure import DOTS, Figure, Series
from rtmp_spark.report.figures.svg import draw, nice_ticks, time_text


@pytest.mark.parametrize("seconds", [0.05, 0.7, 3.3, 12.9, 14.0, 29.0, 61.0, 170.0])
def test_time_axis_labels_match_their_positions(seconds: float) -> None:
    for tick in nice_ticks(0.0, seconds, 6, time=True):
        assert float(time_text(tick, seconds).removesuffix(" s")) == pytest.approx(tick)


def test_an_axis_with_one_round_trip_starts_at_zero() -> None:
    figure = Figure("rtt", "Round trips", "ms", [Series("ping", "key", DOTS, [1.0], [0.5], 1)])
    assert ">0 ms<" in draw(figure) and "-" not in re.sub(r"<[^>]*>", "", draw(figure))
