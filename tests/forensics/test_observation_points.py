"""Two sensors: which connections are the same one, and whose fault the trouble is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtmp_spark.forensics.observation_points import (
    Pair,
    Passed,
    SeenConnection,
    SeenMessages,
    path_row,
    possible_pairs,
)
from rtmp_spark.schema import DIRECTIONS, column_names

SECOND = 1_000_000
ENDS = ("10.0.0.1", 50_000, "10.0.0.2", 1935)
OTHER_ENDS = ("192.0.2.1", 61_000, "10.0.0.2", 1935)


def seen(uid: str, sensor: str, start: int = 0, **changes: Any) -> SeenConnection:
    passed = dict.fromkeys(DIRECTIONS, Passed(1000, 100_000, 90_000, 0))
    made = SeenConnection(uid, sensor, ENDS, start, start + 10 * SECOND, True, passed, frozenset())
    return made._replace(**changes)


def pairs(*connections: SeenConnection) -> list[tuple[str, str, bool]]:
    return [(pair.one.uid, pair.other.uid, pair.translated) for pair in possible_pairs(connections)]


def messages(up: int, down: int, count: int = 10, first: int = 0) -> dict[str, SeenMessages]:
    """The same messages for equal `first`, one every 100 ms, later by `up` and `down` (microseconds)."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    return {
        direction: SeenMessages.of(numbers, numbers + 100, numbers * 100, numbers * 100_000 + later)
        for direction, later in zip(DIRECTIONS, (up, down))
    }


def row(one: SeenConnection, other: SeenConnection, *both: dict[str, SeenMessages]) -> dict[str, Any] | None:
    found = path_row(Pair(one, other, one.ends != other.ends), *both)
    return None if found is None else dict(zip(column_names("paths"), found))


def test_same_addresses_at_the_same_time() -> None:
    assert pairs(seen("a", "x"), seen("b", "y", SECOND)) == [("a", "b", False)]
    assert pairs(seen("a", "x"), seen("b", "x", SECOND)) == []
    # TCP may use the ports again after a minute
    assert pairs(seen("a", "x"), seen("b", "y", 80 * SECOND)) == []


def test_changed_addresses_need_the_only_connection_of_that_length() -> None:
    behind = seen("b", "y", ends=OTHER_ENDS)
    assert pairs(seen("a", "x"), behind) == [("a", "b", True)]
    other = seen("c", "y", SECOND, ends=("192.0.2.1", 61_001, "10.0.0.2", 1935))
    assert pairs(seen("a", "x"), behind, other) == []
    assert pairs(seen("a", "x"), behind._replace(whole=False)) == []
    longer = dict.fromkeys(DIRECTIONS, Passed(1000, 100_000, 90_001, 0))
    assert pairs(seen("a", "x"), behind._replace(passed=longer)) == []
    # with the same addresses it is known already
    assert pairs(seen("a", "x"), behind, seen("d", "y")) == [("a", "d", False)]


def test_times_give_offset_and_delay() -> None:
    """The clock of y is 500 ms ahead. A message takes 20 ms from x to y, and from y to x."""
    found = row(seen("a", "x"), seen("b", "y"), messages(0, 20_000), messages(520_000, 500_000))
    assert found is not None
    assert (found["sensor_a"], found["sensor_b"]) == ("x", "y")
    assert (found["clock_offset_ms"], found["delay_ms_p50"], found["delay_ms_p95"]) == (500, 20, 20)
    turned = row(seen("b", "y"), seen("a", "x"), messages(520_000, 500_000), messages(0, 20_000))
    assert turned == found


def test_other_messages_are_another_connection() -> None:
    assert row(seen("a", "x"), seen("b", "y"), messages(0, 0), messages(0, 0, first=100)) is None
    some = messages(0, 0, count=20, first=4)  # 6 of 10 are common
    assert row(seen("a", "x"), seen("b", "y"), messages(0, 0), some) is not None
    assert row(seen("a", "x"), seen("b", "y", ends=OTHER_ENDS), messages(0, 0), some) is None


@pytest.mark.parametrize(
    ("blamed", "other_blamed", "lost", "verdict"),
    [
        ({"network"}, {"network"}, 0, "network"),  # both saw TCP retransmit during a stall
        ({"server"}, {"server"}, 0, "server"),
        ({"client", "network"}, {"client"}, 0, "client"),
        ({"server"}, {"client"}, 0, "unknown"),
        ({"server", "client"}, {"server", "client"}, 0, "unknown"),
        (set(), set(), 0, "unknown"),
        ({"server"}, {"server"}, 30, "network"),
        ({"server"}, {"server"}, 1, "server"),  # one packet of 1000 is no trouble
    ],
)
def test_verdict(blamed: set[str], other_blamed: set[str], lost: int, verdict: str) -> None:
    less = {"c2s": Passed(1000 - lost, 100_000 - 100 * lost, 90_000, 0), "s2c": Passed(1000, 100_000, 90_000, 0)}
    one = seen("a", "x", blamed=frozenset(blamed))
    other = seen("b", "y", blamed=frozenset(other_blamed), passed=less)
    found = row(one, other, messages(0, 20_000), messages(20_000, 0))
    assert found is not None
    assert (found["verdict"], found["packets_lost_c2s"], found["bytes_lost_c2s"]) == (verdict, lost, 100 * lost)


def test_bytes_that_a_capture_has_not_are_not_lost() -> None:
    """A receiver acknowledged them, so they passed."""
    missed = dict.fromkeys(DIRECTIONS, Passed(980, 98_000, 90_000, 2000))
    found = row(seen("a", "x"), seen("b", "y", passed=missed), messages(0, 20_000), messages(20_000, 0))
    assert found is not None
    assert (found["packets_lost_c2s"], found["bytes_lost_c2s"]) == (None, 0)
