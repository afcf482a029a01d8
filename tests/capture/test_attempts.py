"""Which try follows which: what goes on at once is no retry."""

from __future__ import annotations

from typing import Any

from rtmp_spark.capture.attempts import number_attempts
from rtmp_spark.schema import column_names

_COLUMNS = column_names("streams")[:-1]
Told = tuple[int, str | None, float | None]


def stream(uid: str, start: float, end: float, role: str = "publish", **other: Any) -> tuple[Any, ...]:
    known = {"uid": uid, "stream_id": 1, "app": "live", "name": "cam", "role": role, "attempt_no": 1}
    known |= {"ts_start": int(start * 1e6), "ts_end": int(end * 1e6), **other}
    return tuple(known.get(column) for column in _COLUMNS)


def tries(*rows: tuple[Any, ...], hosts: dict[str, str] | None = None) -> dict[str, Told]:
    """attempt_no, prev_uid and down_ms by uid."""
    known = (dict(zip(_COLUMNS, row)) for row in number_attempts(rows, hosts or {}))
    return {row["uid"]: (row["attempt_no"], row["prev_uid"], row["down_ms"]) for row in known}


def test_one_after_another() -> None:
    told = tries(stream("C", 25, 30), stream("A", 0, 10), stream("B", 12, 20))
    assert told == {"A": (1, None, None), "B": (2, "A", 2000), "C": (3, "B", 5000)}


def test_at_once_is_no_retry() -> None:
    told = tries(stream("A", 0, 10, "play"), stream("B", 1, 9, "play"))
    assert told == {"A": (1, None, None), "B": (1, None, None)}


def test_each_of_two_goes_on_with_the_one_that_ended_last_and_nobody_follows() -> None:
    told = tries(stream("A", 0, 10), stream("B", 1, 11), stream("C", 12, 20), stream("D", 13, 20))
    assert told["C"] == (2, "B", 1000) and told["D"] == (2, "A", 3000)


def test_who_is_refused_while_another_publishes_tries_again_on_its_own() -> None:
    told = tries(stream("A", 0, 100), stream("B", 10, 10), stream("C", 15, 15), stream("D", 20, 20))
    assert told["A"] == (1, None, None)
    assert [told[uid] for uid in "BCD"] == [(1, None, None), (2, "B", 5000), (3, "C", 5000)]


def test_another_player_is_no_retry_but_another_publisher_is() -> None:
    hosts = {"A": "10.0.0.1", "B": "10.0.0.2", "C": "10.0.0.1"}
    rows = [(uid, 10 * i, 10 * i + 5) for i, uid in enumerate("ABC")]
    assert tries(*(stream(*row, "play") for row in rows), hosts=hosts)["C"] == (2, "A", 15_000)
    assert tries(*(stream(*row) for row in rows), hosts=hosts)["C"] == (3, "B", 5000)


def test_what_was_counted_before_is_counted_anew() -> None:
    """A lake gives rows that were numbered without those of an earlier capture that came later."""
    told = tries(stream("A", 0, 10, attempt_no=7, prev_uid="gone", down_ms=1.0), stream("B", 12, 20, attempt_no=1))
    assert told == {"A": (1, None, None), "B": (2, "A", 2000)}


def test_other_names_and_nameless_ones() -> None:
    told = tries(stream("A", 0, 1), stream("B", 2, 3, name="other"), stream("C", 4, 5, name=None))
    assert {one[0] for one in told.values()} == {1}
