"""Every finding has a packet, to open in Wireshark, and a time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.handmade_facts import SAMPLES, recorded

from rtmp_spark.capture.files.file_facts import Occurrences
from rtmp_spark.capture.packets.dissector import Dissector
from rtmp_spark.codec.errors import ViolationCode

# Findings that no single packet shows.
NO_PACKET = {
    ViolationCode.CAPTURE_LIMIT: "a limit applies to the whole input",
    ViolationCode.SESSION_BAD_NAME: "if both publishers were accepted, only their times are compared",
}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_a_finding_has_a_packet_and_a_time(path: Path) -> None:
    found = recorded(path, "findings")["findings"]
    nowhere = [f["rule_id"] for f in found if not (f["frame"] and f["ts"] and f["capture_id"])]
    assert set(nowhere) <= {code.value for code in NO_PACKET}


def test_the_hint_for_an_unknown_link_type_mentions_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    dissector = Dissector()
    dissector.undecoded.link_types[147] = Occurrences(2, 3, 5_000)
    (problem,) = dissector.take_problems()
    assert (problem.frame, problem.ts_ns, problem.count) == (3, 5_000, 2)
    assert "install" not in problem.hint and "scapy does not know it either" in problem.hint
    dissector.undecoded.link_types[147] = Occurrences(2, 3, 5_000)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (problem,) = dissector.take_problems()
    assert "pip install scapy" in problem.hint


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_texts_contain_no_packet_or_message_numbers(path: Path) -> None:
    """They are renumbered when parts of a file are joined; a text would keep the old numbers."""
    for row in recorded(path, "findings")["findings"]:
        text = " ".join(str(row[column]) for column in ("detail", "expected", "actual", "fix_hint") if row[column])
        assert not re.search(r"\b(packet|frame|message|msg_no) #?\d", text), text
