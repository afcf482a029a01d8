"""Every finding says where to look: a packet to open in Wireshark, and its time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rulekit import SAMPLES, recorded

from rtmp_spark.capture.packet import Dissector
from rtmp_spark.codec.errors import ViolationCode

# What no one packet shows.
NO_PACKET = {
    ViolationCode.CAPTURE_LIMIT: "a limit acts on all that was read",
    ViolationCode.SESSION_BAD_NAME: "of two publishers that were both let in, only the times are compared",
}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_a_finding_has_a_packet_and_a_time(path: Path) -> None:
    found = recorded(path, "findings")["findings"]
    nowhere = [f["rule_id"] for f in found if not (f["frame"] and f["ts"] and f["capture_id"])]
    assert set(nowhere) <= {code.value for code in NO_PACKET}


def test_an_unknown_link_type_is_told_with_what_is_true_of_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    dissector = Dissector()
    dissector.link_types_unknown[147] = 2
    dissector.first_unknown[147] = (3, 5_000)
    (told,) = dissector.take_problems()
    assert (told.frame, told.ts_ns, told.count) == (3, 5_000, 2)
    assert "install" not in told.hint and "scapy does not know it either" in told.hint
    dissector.link_types_unknown[147] = 2
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (told,) = dissector.take_problems()
    assert "pip install scapy" in told.hint


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_numbers_of_packets_and_messages_stand_in_columns_only(path: Path) -> None:
    """They are counted anew when the pieces of a file are joined; a text would go on telling the old ones."""
    for row in recorded(path, "findings")["findings"]:
        told = " ".join(str(row[column]) for column in ("detail", "expected", "actual", "fix_hint") if row[column])
        assert not re.search(r"\b(packet|frame|message|msg_no) #?\d", told), told
