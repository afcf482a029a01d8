"""Attempts: which stream is the retry of which; simultaneous streams are not retries."""

from __future__ import annotations

from typing import Any

from rtmp_spark.forensics.attempts import number_attempts
from rtmp_spark.schema import column_names

_COLUMNS = column_names("streams")[:-1]
Numbered = tuple[int, str | None, float | None]


def stream(uid: str, start: float, end: float, role: str = "publish", **other: Any) -> tuple[Any, ...]:
    known = {"uid": uid, "stream_id": 1, "app": "live", "name": "cam", "role": role, "attempt_no": 1}
    known |= {"ts_start": int(start * 1e6), "ts_end": int(end * 1e6), **other}
    return tuple(known.get(column) for column in _COLUMNS)


def attempts(*rows: tuple[Any, ...], hosts: dict[str, str] | None = None) -> dict[str, Numbered]:
    """attempt_no, prev_uid and down_ms by uid."""
    known = (dict(zip(_COLUMNS, row)) for row in number_attempts(rows, hosts or {}))
    return {row["uid"]: (row["attempt_no"], row["prev_uid"], row["down_ms"]) for row in known}


def test_one_after_another() -> None:
    numbered = attempts(stream("C", 25, 30), stream("A", 0, 10), stream("B", 12, 20))
    assert numbered == {"A": (1, None, None), "B": (2, "A", 2000), "C": (3, "B", 5000)}


def test_simultaneous_plays_are_not_retries() -> None:
    numbered = attempts(stream("A", 0, 10, "play"), stream("B", 1, 9, "play"))
    assert numbered == {"A": (1, None, None), "B": (1, None, None)}


def test_each_retry_follows_the_last_ended_stream_that_has_no_retry_yet() -> None:
    numbered = attempts(stream("A", 0, 10), stream("B", 1, 11), stream("C", 12, 20), stream("D", 13, 20))
    assert numbered["C"] == (2, "B", 1000) and numbered["D"] == (2, "A", 3000)


def test_refused_attempts_during_another_publish_are_numbered_separately() -> None:
    numbered = attempts(stream("A", 0, 100), stream("B", 10, 10), stream("C", 15, 15), stream("D", 20, 20))
    assert numbered["A"] == (1, None, None)
    assert [numbered[uid] for uid in "BCD"] == [(1, None, None), (2, "B", 5000), (3, "C", 5000)]


def test_a_publish_from_another_address_is_a_retry_but_a_play_is_not() -> None:
    hosts = {"A": "10.0.0.1", "B": "10.0.0.2", "C": "10.0.0.1"}
    rows = [(uid, 10 * i, 10 * i + 5) for i, uid in enumerate("ABC")]
    assert attempts(*(stream(*row, "play") for row in rows), hosts=hosts)["C"] == (2, "A", 15_000)
    assert attempts(*(stream(*row) for row in rows), hosts=hosts)["C"] == (3, "B", 5000)


def test_existing_numbers_are_replaced() -> None:
    """Rows of a lake were numbered before an earlier capture was ingested."""
    numbered = attempts(
        stream("A", 0, 10, attempt_no=7, prev_uid="gone", down_ms=1.0), stream("B", 12, 20, attempt_no=1)
    )
    assert numbered == {"A": (1, None, None), "B": (2, "A", 2000)}


def test_streams_with_other_names_or_without_a_name() -> None:
    numbered = attempts(stream("A", 0, 1), stream("B", 2, 3, name="other"), stream("C", 4, 5, name=None))
    assert {one[0] for one in numbered.values()} == {1}
