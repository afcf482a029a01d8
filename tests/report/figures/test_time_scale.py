"""A time axis that leaves out long pauses."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rtmp_spark.report.figures.time_scale import BREAK_SHARE, BREAKS_SHARE, TimeScale

SECOND, DAY = 1_000_000, 86_400_000_000


def test_without_long_pauses_the_axis_is_linear() -> None:
    scale = TimeScale.of([(0, 10 * SECOND), (20 * SECOND, 40 * SECOND)])
    assert [scale.share(at * SECOND) for at in (0, 10, 20, 40)] == [0, 0.25, 0.5, 1]
    assert scale.breaks == []


def test_months_between_two_streams_take_little_room() -> None:
    later = 90 * DAY
    scale = TimeScale.of([(0, 10 * SECOND), (later, later + 10 * SECOND)])
    ((left, right, length),) = scale.breaks
    assert (length, right - left) == (later - 10 * SECOND, pytest.approx(BREAK_SHARE))
    assert scale.share(10 * SECOND) == pytest.approx((1 - BREAK_SHARE) / 2)
    assert scale.share(later) == pytest.approx((1 + BREAK_SHARE) / 2)
    assert scale.share(later + 10 * SECOND) == pytest.approx(1)


def test_times_keep_their_order() -> None:
    spans = [(day * DAY * (day + 1), day * DAY * (day + 1) + day * SECOND) for day in range(30)]
    scale = TimeScale.of(spans)
    shares = [scale.share(at) for span in spans for at in span]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1


def test_a_stream_without_length() -> None:
    assert TimeScale.of([(5, 5)]).share(5) == 0


def test_every_pause_of_hours_between_short_streams_is_cut_out() -> None:
    """No single pause is much longer than all the others together."""
    starts = [hours * 3600 * SECOND for hours in (0, 3, 7, 22, 50)]
    scale = TimeScale.of([(start, start + 4 * SECOND) for start in starts])
    assert [length for _, _, length in scale.breaks] == [b - a - 4 * SECOND for a, b in pairwise(starts)]
    assert all(scale.share(start + 4 * SECOND) - scale.share(start) > 0.15 for start in starts)


def test_many_pauses_leave_room_for_the_streams() -> None:
    starts = [day * DAY for day in range(20)]
    scale = TimeScale.of([(start, start + SECOND) for start in starts])
    assert len(scale.breaks) == 19
    assert sum(scale.share(start + SECOND) - scale.share(start) for start in starts) == pytest.approx(1 - BREAKS_SHARE)
