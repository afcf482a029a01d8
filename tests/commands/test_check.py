"""`check` as people, CI jobs and programs use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from kit.fault_captures import record_fault
from kit.handmade_facts import SAMPLES

from rtmp_spark.cli import main
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.commands.output.check_output import junit
from rtmp_spark.forensics.catalogue.rules import CATALOGUE

CLEAN = str(SAMPLES / "ffmpeg_publish_h264_aac.pcap")
DENIED = str(SAMPLES / "denied_and_unknown_app.pcap")
REFUSED = CATALOGUE[ViolationCode.CMD_REFUSED].title


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["check", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_clean_traffic_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, CLEAN)
    assert code == 0
    assert out.splitlines()[-1] == "1 connection: 0 errors, 0 warnings, 1 info"


def test_a_refusal_fails_and_is_shown_with_its_clause_and_packet(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(capsys, DENIED)
    assert code == 1
    assert f"error   CMD_REFUSED: {REFUSED}. [RTMP 1.0 7.2] frame.number == 73" in out
    assert "4 connections: 2 errors" in out


def test_fail_on_sets_the_severity_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, CLEAN, "--fail-on", "info")[0] == 1
    killed = str(SAMPLES / "capture_gap_lost_packets.pcap")
    assert checked(capsys, killed)[0] == 0
    assert checked(capsys, killed, "--fail-on", "warning")[0] == 1


def test_rules_can_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, DENIED, "--ignore", "CMD_REFUSED")[0] == 0
    assert checked(capsys, DENIED, "--ignore", "CMD_REFUSED,SESSION_END", "--fail-on", "info")[0] == 1
    code, _, err = checked(capsys, DENIED, "--ignore", "NO_SUCH")
    assert code == 2 and "Unknown rule NO_SUCH." in err


@pytest.mark.parametrize(("fault", "side"), [("CHUNK_SIZE_ZERO", "client"), ("CTRL_VALUE", "server")])
def test_side_limits_findings_to_one_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str, side: str
) -> None:
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


def test_findings_of_a_baseline_are_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = tmp_path / "known.jsonl"
    _, out, _ = checked(capsys, DENIED, "--json")
    known = [row for row in rows(out) if row["rule_id"] == "CMD_REFUSED"]
    baseline.write_text("".join(json.dumps(row) + "\n" for row in known))
    code, out, _ = checked(capsys, DENIED, "--baseline", str(baseline), "--json")
    assert code == 0
    assert "CMD_REFUSED" not in {row["rule_id"] for row in rows(out)} and rows(out)


def test_an_invalid_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    others = [case.get("name") for case in suite if case.find("failure") is None]
    assert others == ["passed with 1 warning"] * 2  # SESSION_NO_MEDIA, CMD_NO_RESPONSE
    assert checked(capsys, CLEAN, "--junit", str(report))[0] == 0
    assert [case.get("name") for case in ElementTree.parse(report).iter("testcase")] == ["no problems found"]


def test_hostile_text_in_junit_is_escaped() -> None:
    nasty = {
        "uid": None,
        "frame": None,
        "capture_id": None,
        "rule_id": "AMF_UTF8",
        "severity": "error",
        "title": "<script>",
        "detail": "]]>\x00\x1b[31m\ud800&\"'",
    }
    root = ElementTree.fromstring(junit([nasty], [nasty], []))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None and (failure.get("message") or "").startswith("<script>: ]]>")


def test_exit_codes_of_inputs_that_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys)[0] == 2
    assert checked(capsys, str(tmp_path / "missing.pcap"))[0] == 2
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"")
    assert checked(capsys, str(empty))[0] == 4
    other = tmp_path / "none.pcap"
    other.write_bytes(Path(CLEAN).read_bytes()[:24])
    assert checked(capsys, str(other))[0] == 5


def test_with_several_captures_findings_name_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Packet 73 of the second file must not be mistaken for packet 73 of the first."""
    report = tmp_path / "report.xml"
    assert checked(capsys, CLEAN, DENIED, "--junit", str(report))[0] == 1
    _, out, _ = checked(capsys, CLEAN, DENIED)
    assert f"CMD_REFUSED: {REFUSED}. [RTMP 1.0 7.2] frame.number == 73 in denied_and_unknown_app.pcap\n" in out
    places = [line for line in out.splitlines() if "frame.number" in line]
    assert places and all(line.endswith(".pcap") for line in places)
    failures = [failure.get("message") or "" for failure in ElementTree.parse(report).getroot().iter("failure")]
    assert any("(frame.number == 73 in denied_and_unknown_app.pcap)" in message for message in failures)
    assert (
        out.splitlines()[-2] == "2 errors, 2 warnings in denied_and_unknown_app.pcap"
    )  # no findings in the other file
    other = tmp_path / "denied_and_unknown_app.pcap"
    other.write_bytes(Path(CLEAN).read_bytes())
    _, out, _ = checked(capsys, str(other), DENIED)
    assert f"frame.number == 73 in {DENIED}\n" in out


def test_a_cause_is_listed_before_its_consequence(capsys: pytest.CaptureFixture[str]) -> None:
    """The gap and the resynchronisation after it are found at the same packet."""
    assert main(["check", str(SAMPLES / "capture_gap_lost_packets.pcap"), "--fail-on", "error"]) == 0
    shown = capsys.readouterr().out
    assert 0 < shown.index("TCP_GAP") < shown.index("CHUNK_RESYNC")


def test_unknown_software_is_shown_per_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SAMPLES / "one_direction_server_to_client.pcap")]) == 0
    assert "(unknown client, nginx-rtmp)" in capsys.readouterr().out


def test_the_worst_connection_is_first(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(sample_pcaps / name) for name in ("slow_and_fast_publishers.pcap", "file_cut_mid_record.pcap")]
    assert main(["check", *paths]) == 1
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines[:-3] if not line.startswith(" ")]
    assert [head.rpartition(": ")[2] for head in heads] == ["failed", "degraded", "ok", "ok", "capture file"]
    assert lines[-1] == "4 connections: 1 error, 2 warnings, 5 info"
    assert main(["check", *paths, "--json"]) == 1
    times = [json.loads(line)["ts"] for line in capsys.readouterr().out.splitlines()]
    assert times[0] < times[-1], "JSON keeps the order of the table"
