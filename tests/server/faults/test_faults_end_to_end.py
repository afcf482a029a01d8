"""Generate, capture, decode: each fault gives its finding, of the right side, at the right place, and no other.

The capture comes from the laboratory, the findings from `rtmp-spark inspect`: the whole way a person would go. Where
the finding has to be is worked out from what the senders wrote, beside a laboratory in which nobody does wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from senders import CLIENT, SERVER, Accounts, Packets, first_difference

from rtmp_relay import laboratory
from rtmp_relay.fault import NO_FAULT
from rtmp_relay.faults import CATALOGUE
from rtmp_relay.laboratory import record_clean, record_fault
from rtmp_spark.cli import main

# What goes with a fault because it is the same fault seen from elsewhere, and is no error.
WITH = {
    "CHUNK_EXT_TS_MISSING": {"TIME_EXT_BREAK"},  # the omitted field is what will break
    "TIME_EXT_BREAK": {"CHUNK_EXT_TS_MISSING"},
}

CASES = [(code.value, side) for code, recipe in CATALOGUE.items() for side in recipe.sides]
AUDIO, VIDEO, DATA, COMMAND, PING, WINDOW = 8, 9, 18, 20, b"\0\6", 5


class Spot(NamedTuple):
    """Bytes of one side of a connection, and the number of the message they are."""

    side: str
    start: int
    end: int
    msg_no: int | None = None
    connection: int = 1


# -- the place by what is sent there ------------------------------------------------------------------------------


def message(side: str, wanted: Callable[[Any], bool], connection: int = 1) -> Callable[[Accounts, Packets], Spot]:
    """The first message of an undamaged direction that is so."""

    def find(_: Accounts, packets: Packets) -> Spot:
        read = packets.read(connection, side)
        number = next(i for i, one in enumerate(read) if wanted(one))
        return Spot(side, read[number].start, read[number].end, number, connection)

    return find


def written(wanted: Callable[[Any, bytes], bool], slipped_in: int = 0) -> Callable[[Accounts, Packets], Spot]:
    """The first message that the client wrote so, whatever a reader makes of it. Messages `slipped_in` before it went
    out in one write with another."""

    def find(accounts: Accounts, _: Packets) -> Spot:
        account = accounts.of(CLIENT)
        index = next(i for i, said in enumerate(account.said) if said.data and wanted(said.message, said.data))
        return Spot(CLIENT, account.said[index].start, account.said[index].end, account.number(index) + slipped_in)

    return find


def handshake(part: int) -> Callable[[str], Callable[[Accounts, Packets], Spot]]:
    return lambda side: lambda accounts, _: Spot(side, *accounts.of(side).parts[part])


def coded(kind: int) -> Callable[[Any], bool]:
    return lambda one: one.type_id == kind and one.payload[1] == 1


def second_keyframe(_: Accounts, packets: Packets) -> Spot:
    read = packets.read(1, CLIENT)
    keys = [i for i, one in enumerate(read) if coded(VIDEO)(one) and one.payload[0] >> 4 == 1]
    return Spot(CLIENT, read[keys[1]].start, read[keys[1]].end, keys[1])


def after_the_silence(_: Accounts, packets: Packets) -> Spot:
    """The first message whose packet comes a second or more after the one before it."""
    read = packets.read(1, CLIENT)
    times = [packets.times[packets.holding(1, CLIENT, one.start, one.end)[-1]] for one in read]
    media = [i for i, one in enumerate(read) if one.type_id in (AUDIO, VIDEO)]
    number = next(later for earlier, later in pairwise(media) if times[later] - times[earlier] >= 1_000_000)
    return Spot(CLIENT, read[number].start, read[number].end, number)


def two_windows_on(side: str, connection: int) -> Callable[[Accounts, Packets], Spot]:
    """The first message that begins more than two windows behind where the sender first announced one."""

    def find(_: Accounts, packets: Packets) -> Spot:
        read = packets.read(connection, side)
        announced = [one for one in read if one.type_id == WINDOW]
        far = announced[0].start + 2 * int.from_bytes(announced[-1].payload, "big")
        number = next(i for i, one in enumerate(read) if one.start > far)
        return Spot(side, read[number].start, read[number].end, number, connection)

    return find


publish = message(CLIENT, lambda one: one.type_id == COMMAND and one.payload.startswith(b"\2\0\7publish"))
first_sound = message(CLIENT, lambda one: one.type_id == AUDIO)
long_picture = written(lambda said, data: said.type_id == VIDEO and len(said.payload) > 4096)
ELSEWHERE: dict[str, Callable[[Accounts, Packets], Spot]] = {
    "CHUNK_EXT_TS_MISSING": long_picture,  # every time is late, the first continuation shows it
    "TIME_EXT_BREAK": long_picture,
    "CHUNK_EXT_DELTA_ABSOLUTE": written(lambda said, data: said.type_id == AUDIO and data[0] >> 6 == 1),
    "CHUNK_SIZE_NOT_APPLIED": written(
        lambda said, data: said.type_id == VIDEO and len(said.payload) > 4096 and said.timestamp > 200, slipped_in=1
    ),  # the first that is cut after the announcement, which goes out with the picture at 200 ms
    "CTRL_PING_UNANSWERED": message(SERVER, lambda one: one.type_id == 4 and one.payload[:2] == PING, 2),
    "CMD_NO_RESPONSE": publish,
    "CMD_AUTH_ROUND": message(SERVER, lambda one: b"AccessManager.Reject" in one.payload),
    "MEDIA_CONFIG_MISSING": message(CLIENT, coded(VIDEO)),
    "MEDIA_START_NOT_KEY": message(CLIENT, coded(VIDEO)),
    "MEDIA_HEVC_ID12": message(CLIENT, lambda one: one.type_id == VIDEO),
    "MEDIA_NOT_NEGOTIATED": message(CLIENT, lambda one: one.type_id in (AUDIO, VIDEO)),
    "MEDIA_TRACK_ABSENT": first_sound,  # its configuration: all that came of it
    "MEDIA_GOP_LONG": second_keyframe,
    "TIME_WRAP": message(CLIENT, lambda one: one.type_id in (AUDIO, VIDEO) and one.timestamp >= 1 << 24),
    "TIME_SKEW": first_sound,
    "TIME_STALL": after_the_silence,
    "SESSION_NO_MEDIA": publish,
    "SESSION_BAD_NAME": message(SERVER, lambda one: b"NetStream.Publish.BadName" in one.payload, 2),
}
HANDSHAKE = {"HS_VERSION": 0, "HS_INCOMPLETE": 1, "HS_ECHO": 2, "HS_DIGEST": 2}  # 1: the last that was whole
# What is wrong is the second of what goes out together.
SECOND = {"CHUNK_DELTA_NEGATIVE", "FLOW_ACK_BACKWARDS", "CMD_TRANSACTION_REUSED"}
NO_MESSAGE = {"CHUNK_LIMIT"}  # it never becomes whole, and messages are numbered as they do


def place(code: str, side: str, tmp_path: Path, accounts: Accounts, packets: Packets) -> Spot:
    if code in HANDSHAKE:
        return handshake(HANDSHAKE[code])(side)(accounts, packets)
    if code == "FLOW_ACK_STARVED":  # of the one who gets no answer
        return two_windows_on(CLIENT if side == SERVER else SERVER, 1 if side == SERVER else 2)(accounts, packets)
    if code in ELSEWHERE:
        return ELSEWHERE[code](accounts, packets)
    with pytest.MonkeyPatch.context() as patch:
        clean = Accounts(patch)
        patch.setattr(laboratory.faults, "factory", lambda code, side: lambda: NO_FAULT)
        record_fault(code, tmp_path / "clean.pcap", side)
    spoilt = accounts.of(side)
    index = first_difference(spoilt, clean.of(side))
    said = spoilt.said[index]
    return Spot(side, said.start, said.end, spoilt.number(index) + (code in SECOND))


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["inspect", str(path), "--table", "findings", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_clean_traffic_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_clean(tmp_path / "clean.pcap", players=2)
    assert {row["rule_id"] for row in findings(tmp_path / "clean.pcap", capsys)} == {"SESSION_END"}


@pytest.mark.parametrize(("code", "side"), CASES, ids=[f"{code}-{side}" for code, side in CASES])
def test_a_fault_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str, side: str
) -> None:
    path = tmp_path / "fault.pcap"
    with monkeypatch.context() as patch:
        accounts = Accounts(patch)
        record_fault(code, path, side)
    rows = findings(path, capsys)
    found = [row for row in rows if row["rule_id"] == code]
    assert found
    assert all(row["at_fault"] in (side, None) for row in found)
    others = {row["rule_id"] for row in rows} - {code, "SESSION_END"}
    assert others == WITH.get(code, set())
    assert not [row for row in rows if row["severity"] == "error" and row["rule_id"] != code]
    packets = Packets(path)
    spot = place(code, side, tmp_path, accounts, packets)
    first = found[0]
    assert first["direction"] == ("c2s" if spot.side == CLIENT else "s2c")
    assert first["msg_no"] == (None if code in NO_MESSAGE else spot.msg_no)
    assert first["frame"] in packets.holding(spot.connection, spot.side, spot.start, spot.end)
