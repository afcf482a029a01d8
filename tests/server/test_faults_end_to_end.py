"""Generate, capture, decode: each fault gives its finding, of the right side, and no other.

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

# What goes with a fault because it is the same fault seen from elsewhere, and is no error.
WITH = {
    "CHUNK_EXT_TS_MISSING": {"TIME_EXT_BREAK"},  # the omitted field is what will break
    "TIME_EXT_BREAK": {"CHUNK_EXT_TS_MISSING"},
    "CHUNK_EXT_DELTA_ABSOLUTE": {"TIME_JUMP", "TIME_BACKWARDS"},  # read as a delta, as every reader does
    "CHUNK_LIMIT": {"MSG_TRUNCATED"},  # it hangs up with all of them unfinished
}

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
    path = tmp_path / "fault.pcap"
    record_fault(code, path, side)
    rows = findings(path, capsys)
    found = [row for row in rows if row["rule_id"] == code]
    assert found
    assert all(row["at_fault"] in (side, None) for row in found)
    others = {row["rule_id"] for row in rows} - {code, "SESSION_END"}
    assert others <= WITH.get(code, set())
    assert not [row for row in rows if row["severity"] == "error" and row["rule_id"] != code]
