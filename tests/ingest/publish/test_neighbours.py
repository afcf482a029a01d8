"""The spans of time for which an ingest queries a lake."""

from __future__ import annotations

from rtmp_spark.ingest.publish.neighbours import MOST_SPANS, merged

DAY = 86_400_000_000


def test_a_late_file_does_not_query_the_time_in_between() -> None:
    times = [(30 * DAY, 30 * DAY + 5), (0, 5), (3, 9), (30 * DAY + 6, 30 * DAY + 7)]
    assert merged(times) == [(0, 9), (30 * DAY, 30 * DAY + 7)]


def test_too_many_are_joined_over_the_shortest_pauses() -> None:
    starts = [n * n * DAY for n in range(MOST_SPANS + 3)]  # pauses grow
    found = merged([(start, start + 1) for start in starts])
    assert found == [(0, starts[3] + 1), *((start, start + 1) for start in starts[4:])]
    assert len(found) == MOST_SPANS
