"""`check` and `explain` as a person, a CI job and a program use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rulekit import SAMPLES

from rtmp_relay.laboratory import record_fault
from rtmp_spark.cli import main
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.commands.check_output import junit
from rtmp_spark.schema import TABLES

CLEAN = str(SAMPLES / "ffmpeg_publish_h264_aac.pcap")
DENIED = str(SAMPLES / "denied_and_unknown_app.pcap")


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["check", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_clean_traffic_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, CLEAN)
    assert code == 0
    assert out.splitlines()[-1] == "1 connection: 0 errors, 0 warnings, 1 info"


def test_a_refusal_fails_and_is_told_with_its_clause_and_packet(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, DENIED)
    assert code == 1
    assert "error   CMD_REFUSED: The server refused. [RTMP 1.0 7.2] frame.number == 73" in out
    assert "4 connections: 2 errors" in out


def test_what_fails_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, CLEAN, "--fail-on", "info")[0] == 1
    killed = str(SAMPLES / "capture_gap_lost_packets.pcap")
    assert checked(capsys, killed)[0] == 0
    assert checked(capsys, killed, "--fail-on", "warning")[0] == 1


def test_codes_can_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, DENIED, "--ignore", "CMD_REFUSED")[0] == 0
    assert checked(capsys, DENIED, "--ignore", "CMD_REFUSED,SESSION_END", "--fail-on", "info")[0] == 1
    code, _, err = checked(capsys, DENIED, "--ignore", "NO_SUCH")
    assert code == 2 and "NO_SUCH is no finding." in err


@pytest.mark.parametrize(("fault", "side"), [("CHUNK_SIZE_ZERO", "client"), ("CTRL_VALUE", "server")])
def test_a_side_answers_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str, side: str) -> None:
    path = tmp_path / "fault.pcap"
    record_fault(fault, path, side)
    other = "server" if side == "client" else "client"
    assert checked(capsys, str(path), "--side", side)[0] == 1
    assert checked(capsys, str(path), "--side", other)[0] == 0


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_json_has_the_columns_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, DENIED, "--json")
    assert code == 1
    assert main(["inspect", DENIED, "--table", "findings", "--json"]) == 0
    assert rows(out) == rows(capsys.readouterr().out)


def test_a_baseline_holds_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = tmp_path / "known.jsonl"
    _, out, _ = checked(capsys, DENIED, "--json")
    known = [row for row in rows(out) if row["rule_id"] == "CMD_REFUSED"]
    baseline.write_text("".join(json.dumps(row) + "\n" for row in known))
    code, out, _ = checked(capsys, DENIED, "--baseline", str(baseline), "--json")
    assert code == 0
    assert "CMD_REFUSED" not in {row["rule_id"] for row in rows(out)} and rows(out)


def test_a_baseline_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert checked(capsys, CLEAN, "--baseline", str(missing))[0] == 2
    missing.write_text("not json")
    assert checked(capsys, CLEAN, "--baseline", str(missing))[0] == 2


def test_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.xml"
    assert checked(capsys, DENIED, "--junit", str(report))[0] == 1
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None and (suite.get("tests"), suite.get("failures")) == ("4", "2")
    failures = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failures == ["CMD_REFUSED", "CMD_REFUSED"]


def test_junit_of_hostile_words() -> None:
    nasty = {
        "uid": None,
        "frame": None,
        "capture_id": None,
        "rule_id": "AMF_UTF8",
        "severity": "error",
        "title": "<script>",
        "detail": "]]>\x00\x1b[31m\ud800&\"'",
    }
    root = ElementTree.fromstring(junit([nasty], []))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None and (failure.get("message") or "").startswith("<script>: ]]>")


def test_what_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys)[0] == 2
    assert checked(capsys, str(tmp_path / "missing.pcap"))[0] == 2
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"")
    assert checked(capsys, str(empty))[0] == 4
    other = tmp_path / "none.pcap"
    other.write_bytes(Path(CLEAN).read_bytes()[:24])
    assert checked(capsys, str(other))[0] == 5


def test_of_several_captures_the_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Packet 73 of the second file is no packet of the first."""
    report = tmp_path / "report.xml"
    assert checked(capsys, CLEAN, DENIED, "--junit", str(report))[0] == 1
    _, out, _ = checked(capsys, CLEAN, DENIED)
    assert "CMD_REFUSED: The server refused. [RTMP 1.0 7.2] frame.number == 73 in denied_and_unknown_app.pcap\n" in out
    places = [line for line in out.splitlines() if "frame.number" in line]
    assert places and all(line.endswith(".pcap") for line in places)
    failures = [failure.get("message") or "" for failure in ElementTree.parse(report).getroot().iter("failure")]
    assert any("(frame.number == 73 in denied_and_unknown_app.pcap)" in message for message in failures)
    assert out.splitlines()[-2] == "2 errors, 2 warnings in denied_and_unknown_app.pcap"  # and nothing in the other
    other = tmp_path / "denied_and_unknown_app.pcap"
    other.write_bytes(Path(CLEAN).read_bytes())
    _, out, _ = checked(capsys, str(other), DENIED)
    assert f"frame.number == 73 in {DENIED}\n" in out


# -- explain ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(ViolationCode), ids=lambda code: code.value)
def test_every_code_is_explained(capsys: pytest.CaptureFixture[str], code: ViolationCode) -> None:
    assert main(["explain", code.value]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{code.value}: ") and "Why it matters: " in out


def test_explain_helps_with_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chunk-size-zero"]) == 0
    assert "--fault CHUNK_SIZE_ZERO" in capsys.readouterr().out
    assert main(["explain", "CHUNK_SIZE_NULL"]) == 2
    assert "CHUNK_SIZE_" in capsys.readouterr().err
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ViolationCode)
    assert main(["explain", "TCP_GAP", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["severities"] == ["warning"]


def test_explain_leads_from_every_close_cause_to_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    column = next(column for column in TABLES["connections"].columns if column.name == "close_cause")
    causes = re.findall(r"[a-z_]{5,}", column.comment)
    assert len(causes) == 8
    for cause in causes:
        assert main(["explain", cause]) == 0
        out = capsys.readouterr().out
        assert out.startswith("SESSION_END: ")
        assert re.search(rf"^Cause {cause}: \w.*?What to do: \w", out, re.MULTILINE | re.DOTALL), cause
        assert re.findall(r"^Cause (\w+): ", out, re.MULTILINE) == [cause]  # who asks for one does not get them all
    assert main(["explain", "SESSION_END", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["causes"]] == causes


def test_the_cause_stands_before_what_follows_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A hole in the stream, and at the same packet the search for the next message."""
    assert main(["check", str(SAMPLES / "capture_gap_lost_packets.pcap"), "--fail-on", "error"]) == 0
    shown = capsys.readouterr().out
    assert 0 < shown.index("TCP_GAP") < shown.index("CHUNK_RESYNC")


def test_a_name_says_which_end_it_is_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SAMPLES / "one_direction_server_to_client.pcap")]) == 0
    assert "(unknown client, nginx-rtmp)" in capsys.readouterr().out
