"""Commands and answers, in orders that are right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from decoded import RtmpTalk
from rewrite import ACK, FIN, RST
from rulekit import command, recorded

from rtmp_spark.capture.facts import CommandFact
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.exchange import ExchangeRules, offered

CODE = ViolationCode
CONNECT = command("connect", 1.0, {"app": "live"})
ANSWER = command("_result", 1.0, None, {"code": "NetConnection.Connect.Success"})


BOTH, NEITHER = {"c2s": True, "s2c": True}, {"c2s": False, "s2c": False}


def told(
    *exchange: tuple[str, CommandFact], from_start: dict[str, bool] = BOTH, gap: str | None = None
) -> list[ViolationCode]:
    rules = ExchangeRules()
    if gap is not None:
        rules.gap(gap, 0)
    found = []
    for direction, fact in exchange:
        found += rules.command(direction, fact, from_start)
        again = ExchangeRules()
        again.resume(json.loads(json.dumps(rules.state())))
        rules = again
    return [finding.code for finding in found + rules.end()]


def test_a_usual_exchange() -> None:
    assert told(
        ("c2s", CONNECT),
        ("s2c", command("onBWDone", 0.0, None)),
        ("s2c", ANSWER),
        ("c2s", command("releaseStream", 2.0, None, "s")),
        ("c2s", command("createStream", 3.0, None)),
        ("s2c", command("_result", 3.0, None, 1)),
        ("s2c", command("_result", 2.0, None)),
        ("c2s", command("publish", 4.0, None, "s", "live")),
        ("c2s", command("FCUnpublish", 4.0, None, "s")),
        ("s2c", command("_result", 4.0, None)),
    ) == []  # fmt: skip


def test_an_answer_whose_number_was_lost() -> None:
    assert told(("c2s", CONNECT), ("s2c", command("_result", None))) == []


def test_a_command_before_connect() -> None:
    early = command("createStream", 1.0, None)
    assert told(("c2s", early), ("c2s", CONNECT)) == [CODE.CMD_BEFORE_CONNECT, CODE.CMD_TRANSACTION_REUSED]
    assert told(("c2s", early), from_start=NEITHER) == []
    assert told(("c2s", early), gap="c2s") == []
    assert told(("c2s", early), ("c2s", CONNECT), from_start={"c2s": True, "s2c": False}) == [CODE.CMD_BEFORE_CONNECT]


def test_one_id_for_two() -> None:
    twice = ("c2s", command("createStream", 2.0, None))
    answer = ("s2c", command("_result", 2.0, None, 1))
    assert told(("c2s", CONNECT), twice, twice, answer, answer) == [CODE.CMD_TRANSACTION_REUSED]
    assert told(("c2s", CONNECT), twice, answer, twice, answer) == []
    assert told(("c2s", CONNECT), twice, twice, from_start={"c2s": True, "s2c": False}) == []
    assert told(("c2s", CONNECT), twice, twice, gap="s2c") == []
    zero = ("c2s", command("releaseStream", 0.0, None, "s"))
    assert told(("c2s", CONNECT), zero, zero) == []


def test_an_id_whose_answer_was_lost_is_free_again() -> None:
    """The gap that held the answer becomes known with the packet behind it."""
    rules = ExchangeRules()
    rules.command("c2s", command("createStream", 2.0, None), BOTH)
    assert rules.command("c2s", command("createStream", 2.0, None), BOTH) == []
    rules.gap("s2c", 1000)
    assert rules.end() == []


def test_an_answer_to_nothing() -> None:
    stray = ("s2c", command("_result", 777.0, None))
    assert told(("c2s", CONNECT), ("s2c", ANSWER), stray) == [CODE.CMD_RESPONSE_UNEXPECTED]
    assert told(("c2s", CONNECT), stray, from_start=NEITHER) == []
    assert told(("c2s", CONNECT), stray, gap="c2s") == []
    assert told(("c2s", CONNECT), ("s2c", ANSWER), ("s2c", ANSWER)) == []


def test_an_answer_to_what_was_lost_is_no_answer_to_nothing() -> None:
    """The gap becomes known with the packet behind it, after the answer to what was in it."""
    rules = ExchangeRules()
    rules.command("c2s", CONNECT, BOTH)
    rules.command("s2c", ANSWER, BOTH)
    assert rules.command("s2c", command("_result", 7.0, None, 1), BOTH) == []
    rules.gap("c2s", 1000)
    assert rules.command("c2s", command("publish", 0.0, None, "s", "live"), BOTH) == [] and rules.end() == []


def test_a_gap_long_after_an_answer_to_nothing_explains_nothing() -> None:
    rules = ExchangeRules()
    rules.command("c2s", CONNECT, BOTH)
    rules.command("s2c", ANSWER, BOTH)
    rules.command("s2c", command("_result", 7.0, None, 1), BOTH)
    rules.gap("c2s", 40_000_000)
    assert [finding.code for finding in rules.end()] == [CODE.CMD_RESPONSE_UNEXPECTED]


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({}, []),
        ({"fourCcList": ["hvc1", "av01"]}, ["hvc1", "av01"]),
        ({"videoFourCcInfoMap": {"*": 4}, "audioFourCcInfoMap": {"Opus": 1}}, ["*", "Opus"]),
        ({"fourCcList": {"$ecma": {"0": "vp09"}}}, ["vp09"]),
        ({"fourCcList": 5, "videoFourCcInfoMap": "x"}, []),
    ],
)
def test_what_connect_offers(fields: dict[str, object], codes: list[str]) -> None:
    assert offered([fields]) == codes
    assert offered([{"$ecma": fields}]) == codes


def test_connect_without_an_object_offers_nothing() -> None:
    assert offered([]) == [] and offered([None]) == []


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_goodbye_that_the_close_of_the_other_cuts_is_no_finding(tmp_path: Path, closed_first: bool) -> None:
    """FFmpeg writes header and payload of deleteStream apart; when its peer has closed, only the first goes out."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, None, {})
    if closed_first:
        talk.talk.add(1, FIN | ACK)
    talk.say(0, bytes.fromhex("03 000000 000022 14 00000000")).talk.add(1, RST if closed_first else FIN | ACK)
    found = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    assert ("MSG_TRUNCATED" in {row["rule_id"] for row in found}) != closed_first


@pytest.mark.parametrize("heard", [True, False])
def test_a_goodbye_that_the_other_had_not_heard_when_it_closed(tmp_path: Path, heard: bool) -> None:
    """By the clock of another tap the close comes after it."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, None, {})
    before = talk.talk.seq[0]
    talk.talk.say(0, bytes.fromhex("03 000000 000022 14 00000000"), ack=heard)
    talk.wait(0.05).talk.add(1, FIN | ACK, ack=None if heard else before)
    talk.talk.add(1, RST)
    found = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    assert ("MSG_TRUNCATED" in {row["rule_id"] for row in found}) == heard
