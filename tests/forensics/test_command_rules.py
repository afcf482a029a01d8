"""Commands and responses in valid and invalid order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.capture_rewriting import ACK, FIN, RST
from kit.decoded_tables import RtmpTalk
from kit.handmade_facts import command, recorded

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.facts import CommandFact
from rtmp_spark.forensics.command_rules import ExchangeRules, offered

CODE = ViolationCode
CONNECT = command("connect", 1.0, {"app": "live"})
ANSWER = command("_result", 1.0, None, {"code": "NetConnection.Connect.Success"})


BOTH, NEITHER = {"c2s": True, "s2c": True}, {"c2s": False, "s2c": False}


def codes(
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


def test_a_valid_exchange() -> None:
    assert codes(
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


def test_a_response_whose_transaction_id_is_missing() -> None:
    assert codes(("c2s", CONNECT), ("s2c", command("_result", None))) == []


def test_a_command_before_connect() -> None:
    early = command("createStream", 1.0, None)
    assert codes(("c2s", early), ("c2s", CONNECT)) == [CODE.CMD_BEFORE_CONNECT, CODE.CMD_TRANSACTION_REUSED]
    assert codes(("c2s", early), from_start=NEITHER) == []
    assert codes(("c2s", early), gap="c2s") == []
    assert codes(("c2s", early), ("c2s", CONNECT), from_start={"c2s": True, "s2c": False}) == [CODE.CMD_BEFORE_CONNECT]


def test_one_transaction_id_for_two_commands() -> None:
    twice = ("c2s", command("createStream", 2.0, None))
    answer = ("s2c", command("_result", 2.0, None, 1))
    assert codes(("c2s", CONNECT), twice, twice, answer, answer) == [CODE.CMD_TRANSACTION_REUSED]
    assert codes(("c2s", CONNECT), twice, answer, twice, answer) == []
    assert codes(("c2s", CONNECT), twice, twice, from_start={"c2s": True, "s2c": False}) == []
    assert codes(("c2s", CONNECT), twice, twice, gap="s2c") == []
    zero = ("c2s", command("releaseStream", 0.0, None, "s"))
    assert codes(("c2s", CONNECT), zero, zero) == []


def test_the_response_to_a_reused_id_may_be_in_a_gap() -> None:
    """The gap with the response becomes known with the packet after it."""
    rules = ExchangeRules()
    rules.command("c2s", command("createStream", 2.0, None), BOTH)
    assert rules.command("c2s", command("createStream", 2.0, None), BOTH) == []
    rules.gap("s2c", 1000)
    assert rules.end() == []


def test_a_response_without_a_request() -> None:
    stray = ("s2c", command("_result", 777.0, None))
    assert codes(("c2s", CONNECT), ("s2c", ANSWER), stray) == [CODE.CMD_RESPONSE_UNEXPECTED]
    assert codes(("c2s", CONNECT), stray, from_start=NEITHER) == []
    assert codes(("c2s", CONNECT), stray, gap="c2s") == []
    assert codes(("c2s", CONNECT), ("s2c", ANSWER), ("s2c", ANSWER)) == []


def test_the_request_of_a_response_may_be_in_a_gap() -> None:
    """The gap with the request becomes known with the packet after it, later than the response."""
    rules = ExchangeRules()
    rules.command("c2s", CONNECT, BOTH)
    rules.command("s2c", ANSWER, BOTH)
    assert rules.command("s2c", command("_result", 7.0, None, 1), BOTH) == []
    rules.gap("c2s", 1000)
    assert rules.command("c2s", command("publish", 0.0, None, "s", "live"), BOTH) == [] and rules.end() == []


def test_a_gap_long_after_a_response_does_not_contain_its_request() -> None:
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
def test_codecs_offered_in_connect(fields: dict[str, object], codes: list[str]) -> None:
    assert offered([fields]) == codes
    assert offered([{"$ecma": fields}]) == codes


def test_connect_without_an_object_offers_nothing() -> None:
    assert offered([]) == [] and offered([None]) == []


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_teardown_cut_off_by_the_close_of_the_peer_is_not_reported(tmp_path: Path, closed_first: bool) -> None:
    """FFmpeg writes header and payload of deleteStream separately; if its peer has closed, only the header is sent."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, None, {})
    if closed_first:
        talk.talk.add(1, FIN | ACK)
    talk.say(0, bytes.fromhex("03 000000 000022 14 00000000")).talk.add(1, RST if closed_first else FIN | ACK)
    found = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    assert ("MSG_TRUNCATED" in {row["rule_id"] for row in found}) != closed_first


@pytest.mark.parametrize("received", [True, False])
def test_a_teardown_that_the_peer_had_not_received_when_it_closed(tmp_path: Path, received: bool) -> None:
    """By the clock of another tap the close is later."""
    talk = RtmpTalk().handshake().command(0, "connect", 1, {"app": "live"}).command(1, "_result", 1, None, {})
    before = talk.talk.seq[0]
    talk.talk.say(0, bytes.fromhex("03 000000 000022 14 00000000"), ack=received)
    talk.wait(0.05).talk.add(1, FIN | ACK, ack=None if received else before)
    talk.talk.add(1, RST)
    found = recorded(talk.write(tmp_path / "a.pcap"), "findings")["findings"]
    assert ("MSG_TRUNCATED" in {row["rule_id"] for row in found}) == received
