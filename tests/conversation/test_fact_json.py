"""Facts as JSON and back."""

from __future__ import annotations

import json
from typing import get_args

import numpy as np
import pytest

from rtmp_spark.capture.tcp.stream_items import Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.fact_json import (
    FACT_KINDS,
    facts_from_json,
    facts_to_json,
    from_json,
    item_from_json,
    item_to_json,
    to_json,
)
from rtmp_spark.conversation.facts import Facts, FaultFact, HandshakeFact, MediaSecond, Notable, Place


def test_every_kind_of_fact_can_be_saved() -> None:
    assert set(FACT_KINDS) == set(get_args(Notable))


@pytest.mark.parametrize(
    "value",
    [
        FaultFact(1, 2, 3, 4, ViolationCode.TCP_GAP, Severity.ERROR, "x", None, 7),
        HandshakeFact(1, 2, 3, 0, b"\x03"),
        Place(1, 2, 3, 4, 5, 6, 7, 8, 9),
        [(1, None, 2.5), {"a": (True, b"")}],
    ],
)
def test_a_value_survives(value: object) -> None:
    found = from_json(json.loads(json.dumps(to_json(value))))
    assert found == value and type(found) is type(value)


def test_facts_survive() -> None:
    facts = Facts()
    facts.passed = [Place(1, 2, 3, 4, 5, 6, 7, 8, 9)]
    facts.seconds = {7: MediaSecond.resume([1, 2, 3, 4, None, 6, None])}
    found = facts_from_json(json.loads(json.dumps(facts_to_json(facts))))
    assert found.passed == facts.passed and found.messages == []
    assert found.seconds[7].values() == (1, 2, 3, 4, None, 6, None)


def test_an_item_survives() -> None:
    connection = Connection(bytes(36), 0)
    run = Run(connection, 1, 5, b"abc", np.array([5]), np.array([9]), np.array([1_000]))
    found = item_from_json(json.loads(json.dumps(item_to_json(run))), connection)
    assert isinstance(found, Run) and found.connection is connection
    assert (found.direction, found.offset, found.data, found.seg_frames.tolist()) == (1, 5, b"abc", [9])
