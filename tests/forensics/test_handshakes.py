"""Incomplete and invalid handshakes: the findings, and who is at fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.capture_rewriting import Talk
from kit.decoded_tables import RtmpTalk
from kit.rtmp_talks import CLIENT, SERVER, findings, found_rules

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
    assert found_rules(path, said) == [("HS_INCOMPLETE", "error", at_fault)]


@pytest.mark.parametrize(("closer", "seconds"), [(CLIENT, 0.1), (SERVER, 10)])
def test_a_client_that_does_not_continue(path: Path, closer: int, seconds: float) -> None:
    said = RtmpTalk().say(CLIENT, b"\x03" + PART).say(SERVER, b"\x03" + PART + PART).wait(seconds).bye(closer)
    assert found_rules(path, said) == [("HS_INCOMPLETE", "error", "client")]


def test_one_direction_does_not_show_who_is_at_fault(path: Path) -> None:
    packets = RtmpTalk().say(CLIENT, b"\x03" + PART).wait(10).bye(CLIENT).talk.packets
    rows = findings(path, [packet for packet in packets if packet.dport == 1935])
    assert [(row["rule_id"], row["at_fault"]) for row in rows] == [("TCP_ONE_DIRECTION", None), ("HS_INCOMPLETE", None)]


@pytest.mark.parametrize("version", [0, 5, 40, 127])
def test_a_wrong_version_without_an_answer(path: Path, version: int) -> None:
    """The length of C0 and C1, to an RTMP port."""
    said = RtmpTalk().say(CLIENT, bytes((version,)) + PART).bye(SERVER)
    assert found_rules(path, said) == [("HS_VERSION", "error", "client")]
    (row,) = findings(path, said.talk.packets)
    assert (row["direction"], row["frame"]) == ("c2s", 4)


@pytest.mark.parametrize(("port", "size"), [(1935, 1535), (1935, 1537), (1935, 5000), (8080, 1536)])
def test_noise_is_not_reported_as_rtmp(path: Path, port: int, size: int) -> None:
    said = RtmpTalk(Talk(server=("10.0.0.2", port))).say(CLIENT, b"\x05" + bytes(size)).bye(SERVER)
    assert found_rules(path, said) == []
