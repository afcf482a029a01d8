"""Handshakes that end early or begin wrongly: what is told, and whom it blames."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoded import RtmpTalk
from rewrite import Talk
from talks import CLIENT, SERVER, findings, told

PART = bytes(1536)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pcap"


@pytest.mark.parametrize(
    ("closer", "seconds", "at_fault"),
    [(SERVER, 0.1, "server"), (CLIENT, 10, "server"), (CLIENT, 3, None)],
)
def test_a_server_that_does_not_answer(path: Path, closer: int, seconds: float, at_fault: str | None) -> None:
    said = RtmpTalk().say(CLIENT, b"\x03" + PART).wait(seconds).bye(closer)
    assert told(path, said) == [("HS_INCOMPLETE", "error", at_fault)]


@pytest.mark.parametrize(("closer", "seconds"), [(CLIENT, 0.1), (SERVER, 10)])
def test_a_client_that_does_not_go_on(path: Path, closer: int, seconds: float) -> None:
    said = RtmpTalk().say(CLIENT, b"\x03" + PART).say(SERVER, b"\x03" + PART + PART).wait(seconds).bye(closer)
    assert told(path, said) == [("HS_INCOMPLETE", "error", "client")]


def test_who_did_not_answer_is_not_known_from_one_side(path: Path) -> None:
    packets = RtmpTalk().say(CLIENT, b"\x03" + PART).wait(10).bye(CLIENT).talk.packets
    rows = findings(path, [packet for packet in packets if packet.dport == 1935])
    assert [(row["rule_id"], row["at_fault"]) for row in rows] == [("TCP_ONE_DIRECTION", None), ("HS_INCOMPLETE", None)]


@pytest.mark.parametrize("version", [0, 5, 40, 127])
def test_a_wrong_version_that_nobody_answers(path: Path, version: int) -> None:
    """As many bytes as C0 and C1 have, to a port of RTMP."""
    said = RtmpTalk().say(CLIENT, bytes((version,)) + PART).bye(SERVER)
    assert told(path, said) == [("HS_VERSION", "error", "client")]
    (row,) = findings(path, said.talk.packets)
    assert (row["direction"], row["frame"]) == ("c2s", 4)


@pytest.mark.parametrize(("port", "size"), [(1935, 1535), (1935, 1537), (1935, 5000), (8080, 1536)])
def test_noise_is_no_rtmp(path: Path, port: int, size: int) -> None:
    said = RtmpTalk(Talk(server=("10.0.0.2", port))).say(CLIENT, b"\x05" + bytes(size)).bye(SERVER)
    assert told(path, said) == []
