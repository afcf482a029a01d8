"""Each fault gives its finding, at fault the right side, at the right place, and no other finding.

The capture comes from a simulation, the findings from `rtmp-spark inspect`. The expected place of a finding comes from
what the senders wrote, compared with a simulation without the fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kit import fault_captures
from kit.fault_captures import record_clean, record_fault
from kit.sent_messages import CLIENT, SERVER, Packets, Senders, first_difference

from rtmp_relay.faults.fault import NO_FAULT
from rtmp_relay.faults.fault_catalogue import CATALOGUE
from rtmp_spark.cli import main

# Findings that accompany a fault because they describe the same cause; they are not errors.
ACCOMPANYING = {
    "CHUNK_EXT_TS_MISSING": {"TIME_EXT_BREAK"},  # the omitted field breaks the stream later
    "TIME_EXT_BREAK": {"CHUNK_EXT_TS_MISSING"},
}

CASES = [(code.value, side) for code, recipe in CATALOGUE.items() for side in recipe.sides]
AUDIO, VIDEO, DATA, COMMAND, PING, WINDOW = 8, 9, 18, 20, b"\0\6", 5


class Place(NamedTuple):
    """A byte range that one side of a connection sent, and the number of its message."""

    side: str
    start: int
    end: int
    msg_no: int | None = None
    connection: int = 1


# -- places by content --------------------------------------------------------------------------------------------


def message(side: str, wanted: Callable[[Any], bool], connection: int = 1) -> Callable[[Senders, Packets], Place]:
    """Find the first message of an undamaged direction for which `wanted` is true."""

    def find(_: Senders, packets: Packets) -> Place:
        read = packets.read(connection, side)
        number = next(i for i, one in enumerate(read) if wanted(one))
        return Place(side, read[number].start, read[number].end, number, connection)

    return find


def written(wanted: Callable[[Any, bytes], bool], inserted: int = 0) -> Callable[[Senders, Packets], Place]:
    """Find the first message that the client sent for which `wanted` is true, even if a reader cannot parse it.

    `inserted` messages before it were sent in one write with another.
    """

    def find(senders: Senders, _: Packets) -> Place:
        sender = senders.of(CLIENT)
        index = next(i for i, sent in enumerate(sender.messages) if sent.data and wanted(sent.message, sent.data))
        return Place(CLIENT, sender.messages[index].start, sender.messages[index].end, sender.number(index) + inserted)

    return find


def handshake(part: int) -> Callable[[str], Callable[[Senders, Packets], Place]]:
    return lambda side: lambda senders, _: Place(side, *senders.of(side).parts[part])


def coded(kind: int) -> Callable[[Any], bool]:
    return lambda one: one.type_id == kind and one.payload[1] == 1


def second_keyframe(_: Senders, packets: Packets) -> Place:
    read = packets.read(1, CLIENT)
    keys = [i for i, one in enumerate(read) if coded(VIDEO)(one) and one.payload[0] >> 4 == 1]
    return Place(CLIENT, read[keys[1]].start, read[keys[1]].end, keys[1])


def after_the_stall(_: Senders, packets: Packets) -> Place:
    """Find the first media message whose packet follows the previous one after a second or more."""
    read = packets.read(1, CLIENT)
    times = [packets.times[packets.holding(1, CLIENT, one.start, one.end)[-1]] for one in read]
    media = [i for i, one in enumerate(read) if one.type_id in (AUDIO, VIDEO)]
    number = next(later for earlier, later in pairwise(media) if times[later] - times[earlier] >= 1_000_000)
    return Place(CLIENT, read[number].start, read[number].end, number)


def last_video(_: Senders, packets: Packets) -> Place:
    read = packets.read(1, CLIENT)
    number = max(i for i, one in enumerate(read) if coded(VIDEO)(one))
    return Place(CLIENT, read[number].start, read[number].end, number)


def after_two_windows(side: str, connection: int) -> Callable[[Senders, Packets], Place]:
    """Find the first message that begins more than two windows after the sender first announced one."""

    def find(_: Senders, packets: Packets) -> Place:
        read = packets.read(connection, side)
        announced = [one for one in read if one.type_id == WINDOW]
        far = announced[0].start + 2 * int.from_bytes(announced[-1].payload, "big")
        number = next(i for i, one in enumerate(read) if one.start > far)
        return Place(side, read[number].start, read[number].end, number, connection)

    return find


publish = message(CLIENT, lambda one: one.type_id == COMMAND and one.payload.startswith(b"\2\0\7publish"))
first_audio = message(CLIENT, lambda one: one.type_id == AUDIO)
long_video_frame = written(lambda sent, data: sent.type_id == VIDEO and len(sent.payload) > 4096)
ELSEWHERE: dict[str, Callable[[Senders, Packets], Place]] = {
    "CHUNK_EXT_TS_MISSING": long_video_frame,  # all timestamps are extended; the first continuation lacks the field
    "TIME_EXT_BREAK": long_video_frame,
    "CHUNK_EXT_DELTA_ABSOLUTE": written(lambda sent, data: sent.type_id == AUDIO and data[0] >> 6 == 1),
    "CHUNK_SIZE_NOT_APPLIED": written(
        lambda sent, data: sent.type_id == VIDEO and len(sent.payload) > 4096 and sent.timestamp > 200, inserted=1
    ),  # the first frame of several chunks after the announcement, which is sent with the frame at 200 ms
    "CTRL_PING_UNANSWERED": message(SERVER, lambda one: one.type_id == 4 and one.payload[:2] == PING, 2),
    "CMD_NO_RESPONSE": publish,
    "CMD_AUTH_ROUND": message(SERVER, lambda one: b"AccessManager.Reject" in one.payload),
    "MEDIA_RESERVED": message(CLIENT, lambda one: one.type_id == VIDEO),
    "MEDIA_CONFIG_MISSING": message(CLIENT, coded(VIDEO)),
    "MEDIA_START_NOT_KEY": message(CLIENT, coded(VIDEO)),
    "MEDIA_HEVC_ID12": message(CLIENT, lambda one: one.type_id == VIDEO),
    "MEDIA_NOT_NEGOTIATED": message(CLIENT, lambda one: one.type_id in (AUDIO, VIDEO)),
    "MEDIA_TRACK_ABSENT": first_audio,  # the configuration is all that arrives
    "MEDIA_GOP_LONG": second_keyframe,
    "TIME_WRAP": message(CLIENT, lambda one: one.type_id in (AUDIO, VIDEO) and one.timestamp >= 1 << 24),
    "TIME_SKEW": first_audio,
    "TIME_STALL": after_the_stall,
    "TIME_SLOW": last_video,
    "TIME_FAST": last_video,
    "SESSION_NO_MEDIA": publish,
    "SESSION_BAD_NAME": message(SERVER, lambda one: b"NetStream.Publish.BadName" in one.payload, 2),
}
HANDSHAKE = {"HS_VERSION": 0, "HS_INCOMPLETE": 1, "HS_ECHO": 2, "HS_DIGEST": 2}  # 1: the last complete part
# The wrong message is the second of two that are sent together.
SECOND = {"CHUNK_DELTA_NEGATIVE", "FLOW_ACK_BACKWARDS", "CMD_TRANSACTION_REUSED"}
NO_MESSAGE = {"CHUNK_LIMIT"}  # the message never completes, and messages are numbered on completion


def place(code: str, side: str, tmp_path: Path, senders: Senders, packets: Packets) -> Place:
    if code in HANDSHAKE:
        return handshake(HANDSHAKE[code])(side)(senders, packets)
    if code == "FLOW_ACK_STARVED":  # found in the direction that is not acknowledged
        return after_two_windows(CLIENT if side == SERVER else SERVER, 1 if side == SERVER else 2)(senders, packets)
    if code in ELSEWHERE:
        return ELSEWHERE[code](senders, packets)
    with pytest.MonkeyPatch.context() as patch:
        clean = Senders(patch)
        patch.setattr(fault_captures.fault_catalogue, "factory", lambda code, side: lambda: NO_FAULT)
        record_fault(code, tmp_path / "clean.pcap", side)
    faulty = senders.of(side)
    index = first_difference(faulty, clean.of(side))
    sent = faulty.messages[index]
    return Place(side, sent.start, sent.end, faulty.number(index) + (code in SECOND))


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["inspect", str(path), "--table", "findings", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_traffic_without_faults_has_only_session_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_clean(tmp_path / "clean.pcap", players=2)
    assert {row["rule_id"] for row in findings(tmp_path / "clean.pcap", capsys)} == {"SESSION_END"}


@pytest.mark.parametrize(("code", "side"), CASES, ids=[f"{code}-{side}" for code, side in CASES])
def test_a_fault_gives_its_finding_at_its_place_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: str, side: str
) -> None:
    path = tmp_path / "fault.pcap"
    with monkeypatch.context() as patch:
        senders = Senders(patch)
        record_fault(code, path, side)
    rows = findings(path, capsys)
    found = [row for row in rows if row["rule_id"] == code]
    assert found
    assert all(row["at_fault"] in (side, None) for row in found)
    others = {row["rule_id"] for row in rows} - {code, "SESSION_END"}
    assert others == ACCOMPANYING.get(code, set())
    assert not [row for row in rows if row["severity"] == "error" and row["rule_id"] != code]
    packets = Packets(path)
    expected = place(code, side, tmp_path, senders, packets)
    first = found[0]
    assert first["direction"] == ("c2s" if expected.side == CLIENT else "s2c")
    assert first["msg_no"] == (None if code in NO_MESSAGE else expected.msg_no)
    assert first["frame"] in packets.holding(expected.connection, expected.side, expected.start, expected.end)
