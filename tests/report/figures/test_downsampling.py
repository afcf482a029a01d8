"""Downsampling keeps spikes, drop-outs and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.report.figures.downsampling import kept, medians
from rtmp_spark.report.figures.figure import Figure, Lane, Mark, downsampled, median_line
from rtmp_spark.report.figures.wire_figures import Seconds


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=400), st.integers(1, 12))
def test_every_slice_keeps_its_extremes_and_ends(values: list[int], slices: int) -> None:
    x, y = np.arange(len(values)), np.array(values)
    stay = set(kept(x, y, slices).tolist())
    assert len(stay) <= max(4 * slices, len(values) if len(values) <= 4 * slices else 0)
    width = (len(values) - 1) / slices
    for number in range(slices):
        inside = [i for i in range(len(values)) if min(int(i / width) if width else 0, slices - 1) == number]
        if inside:
            assert max(values[i] for i in inside) == max(values[i] for i in inside if i in stay)
            assert min(values[i] for i in inside) == min(values[i] for i in inside if i in stay)
            assert {inside[0], inside[-1]} <= stay


def test_a_single_spike_in_an_hour_survives() -> None:
    y = np.ones(263_000)
    y[123_456] = 99
    series = downsampled("x", "video", "line", np.arange(len(y)), y)
    assert max(series.y) == 99
    assert len(series.x) <= 2000
    assert series.total == 263_000


def test_medians_per_slice() -> None:
    places, values = medians(np.arange(10.0), np.array([0, 0, 9, 0, 0, 5, 5, 5, -9, 5]), 2)
    assert values.tolist() == [0, 5]
    assert places.tolist() == [2.0, 7.0]


def test_a_dense_series_keeps_its_extremes_next_to_the_median_line() -> None:
    y = np.zeros(50_000)
    y[7] = -3
    around, line = median_line("x", "video", np.arange(len(y)), y)
    assert min(around.y) == -3
    assert set(line.y) == {0.0}


def test_a_figure_survives_json() -> None:
    figure = Figure(
        "k", "t", "ms", [downsampled("a", "video", "dots", np.array([1.0, 2.0]), np.array([3, 4]))],
        [Lane("l", "bad", [(0.0, 1.0, "w")])], [Mark(1.5, "wrap", "2²⁴")], "note", "", 99,
    )  # fmt: skip
    assert Figure.from_json(figure.as_json()) == figure


def test_rows_far_from_the_rest_are_not_drawn() -> None:
    rows = [{"ts_second": second * 1_000_000} for second in (3, *range(1_700_000_000, 1_700_000_005), 4_200_000_000)]
    seconds = Seconds(rows, 1_700_000_000 * 1_000_000)
    assert (seconds.length, seconds.places) == (5, [0, 1, 2, 3, 4])
