"""Generate, capture, decode: each fault gives its finding, of the right side, and no other error.

The capture comes from the laboratory, the findings from `rtmp-spark inspect`: the whole way a person would go.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rtmp_relay.faults import CATALOGUE
from rtmp_relay.laboratory import record_clean, record_fault
from rtmp_spark.cli import main

# Rules that the analyzer does not have yet; each leaves this list when it comes.
PENDING = {
    "CTRL_PING_UNANSWERED", "FLOW_ACK_STARVED", "FLOW_ACK_EARLY", "FLOW_ACK_BACKWARDS", "CMD_BEFORE_CONNECT",
    "CMD_TRANSACTION_REUSED", "CMD_RESPONSE_UNEXPECTED", "MEDIA_START_NOT_KEY", "MEDIA_DECLARED", "MEDIA_GOP_LONG",
    "MEDIA_NOT_NEGOTIATED", "MEDIA_TRACK_ABSENT", "TIME_BACKWARDS", "TIME_JUMP", "TIME_WRAP", "TIME_SKEW",
    "TIME_STALL", "TIME_PTS_BEFORE_DTS", "SESSION_NO_MEDIA", "TIME_EXT_BREAK",
}  # fmt: skip

CASES = [(code.value, side) for code, recipe in CATALOGUE.items() for side in recipe.sides]


def findings(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["inspect", str(path), "--table", "findings", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_clean_traffic_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_clean(tmp_path / "clean.pcap", players=2)
    assert {row["rule_id"] for row in findings(tmp_path / "clean.pcap", capsys)} == {"SESSION_END"}


@pytest.mark.parametrize(("code", "side"), CASES, ids=[f"{code}-{side}" for code, side in CASES])
def test_a_fault_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, side: str) -> None:
    if code in PENDING:
        pytest.skip("the analyzer has no rule for it yet")
    path = tmp_path / "fault.pcap"
    record_fault(code, path, side)
    rows = findings(path, capsys)
    found = [row for row in rows if row["rule_id"] == code]
    assert found
    assert all(row["at_fault"] in (side, None) for row in found)
    others = {row["rule_id"] for row in rows if row["severity"] == "error"} - {code}
    assert others == set()
