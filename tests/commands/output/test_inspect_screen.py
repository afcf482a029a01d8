"""The screen of `inspect`: verdicts first, worst first, at the width of the terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from kit.capture_rewriting import build, pcap
from kit.rtmp_talks import created, media, published

from rtmp_spark.cli import main
from rtmp_spark.commands.output import inspect_screen
from rtmp_spark.report.verdict import VERDICTS

SLOW = "slow_and_fast_publishers.pcap"
DENIED = "denied_and_unknown_app.pcap"
LOSSY = "lossy_mtu1500_server_side.pcap"
WORDS = [word.replace("_", " ") for word in VERDICTS]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(monkeypatch: pytest.MonkeyPatch, width: int, *arguments: object, code: int = 0) -> list[str]:
    """The lines that `inspect` prints on a terminal of this width, without colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert main(["inspect", *map(str, arguments)]) == code
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


def verdicts(lines: list[str]) -> list[str]:
    """The words in the column of verdicts, in the order of the lines."""
    assert lines[0].split()[:3] == ["UTC", "verdict", "stream"]
    table = lines[1 : lines.index("")]
    found = (re.match(r"(?:\d\d-\d\d )?\d\d:\d\d:\d\d  (\w+(?: \w+)?)  ", line) for line in table)
    return [match[1] for match in found if match is not None]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_verdicts_are_first_and_the_worst_is_on_top(
    monkeypatch: pytest.MonkeyPatch, sample_pcaps: Path, width: int
) -> None:
    lines = screen(monkeypatch, width, sample_pcaps / SLOW, sample_pcaps / DENIED)
    assert verdicts(lines) == ["failed"] * 4 + ["no media", "degraded", "ok"]
    assert max(map(len, lines)) <= width
    lines = screen(monkeypatch, width, sample_pcaps)
    assert len(lines) > 40 and max(map(len, lines)) <= width
    found = verdicts(lines)
    assert found == sorted(found, key=WORDS.index) and set(found) == set(WORDS)


def test_a_line_has_the_reason_the_packet_and_the_rates(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe nothing is cut or moved below a line."""
    assert main(["inspect", str(sample_pcaps / LOSSY), "--table", "findings", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    packets = {row["uid"]: row["frame"] for row in found if row["rule_id"] == "TCP_LOSS"}
    assert main(["inspect", str(sample_pcaps / LOSSY), "--table", "streams", "--json"]) == 0
    streams = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["inspect", str(sample_pcaps / LOSSY)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["UTC", "verdict", "stream", "fps", "encoded", "received", "loss", "uid"]
    assert len(streams) == 2
    for stream in streams:
        (line,) = (line for line in lines[1:3] if stream["uid"] in line)
        encoded = stream["video_bitrate"] + stream["audio_bitrate"]
        assert line.split() == [
            stream["ts_start"][11:19], "degraded", stream["role"], stream["name"], "25",
            f"{encoded / 1000:.0f}", "kb/s", f"{stream['received_bitrate'] / 1000:.0f}", "kb/s",
            f"{stream['loss_pct']:.1f}", "%", stream["uid"],
            *stream["verdict_text"].split(), "(packet", f"{packets[stream['uid']]})",
        ]  # fmt: skip


def test_a_wider_terminal_has_longer_lines_and_more_columns(
    monkeypatch: pytest.MonkeyPatch, sample_pcaps: Path
) -> None:
    narrow, wide, widest = (screen(monkeypatch, width, sample_pcaps / SLOW) for width in (80, 120, 320))
    slow = "media arrives at 0.30 x real time; 13.5 s behind at the end; no TCP"
    assert slow in [line.strip() for line in narrow], "below the line"
    assert any(slow in line and "degraded" in line and "(packet 659)" in line for line in widest)
    assert narrow[0].split()[-1] == wide[0].split()[-1] == "received" and widest[0].split()[-1] == "uid"
    assert len(narrow) > len(wide) > len(widest)


def test_places_name_their_file_if_there_are_several(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / SLOW), str(sample_pcaps / DENIED)]) == 0
    screen = capsys.readouterr().out
    assert f"(packet 659 of {SLOW})" in screen and f"(packet 73 of {DENIED})" in screen


def test_times_have_a_date_if_there_are_several_days(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / SLOW), str(sample_pcaps / DENIED)]) == 0
    assert "\n06-15 15:06:40  degraded" in capsys.readouterr().out
    assert main(["inspect", str(sample_pcaps / SLOW)]) == 0
    assert "\n15:06:40  degraded" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_details_of_several_connections_need_verbose(
    sample_pcaps: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(sample_pcaps / SLOW)
    assert main(["inspect", path]) == 0
    brief = capsys.readouterr().out
    worst = brief.splitlines()[1]
    assert "-> connect" not in brief and "For details: -v" in brief
    assert brief.partition(" for the first\n")[0].rpartition(" ")[2] in worst
    assert main(["inspect", path, option]) == 0
    whole = capsys.readouterr().out
    assert whole.count("-> connect") == 3 and "For details" not in whole
    assert whole.splitlines()[:4] == brief.splitlines()[:4] and whole.splitlines()[-1] == brief.splitlines()[-1]
    uids = re.findall(r"^(C\w{20})  \S+ -> ", whole, re.MULTILINE)
    assert uids == re.findall(r"C\w{20}", "\n".join(brief.splitlines()[:4])), "details are in the order of the verdicts"
    assert main(["inspect", path, "--uid", uids[1]]) == 0
    alone = capsys.readouterr().out
    assert alone.count("-> connect") == 1 and "degraded" in alone.splitlines()[1]


def test_a_single_connection_is_shown_in_detail(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / "publisher_killed_midstream.pcap")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "degraded" in lines[1] and "FCUnpublish or deleteStream (packet 306)" in lines[1]
    assert any("-> connect" in line for line in lines)


def test_a_connection_with_several_streams_has_a_line_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = media(published(name="good"))
    said = published(created(said, tid=3, stream_id=2), name="empty", stream_id=2)
    path = tmp_path / "two.pcap"
    path.write_bytes(pcap(build(said.talk.packets)))
    assert main(["inspect", str(path), "--keep-secrets"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:5] for line in lines[:2]] == [
        ["no", "media", "publish", "empty"],
        ["ok", "publish", "good", "25"],
    ]
    assert lines[2] == ""


def test_many_verdicts_are_counted(
    monkeypatch: pytest.MonkeyPatch, sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspect_screen, "_LISTED_VERDICTS", 1)
    assert main(["inspect", str(sample_pcaps / SLOW)]) == 0
    assert "... and 2 more: 1 degraded, 1 ok. -v lists all of them." in capsys.readouterr().out.splitlines()
    assert main(["inspect", str(sample_pcaps / SLOW), "-v"]) == 0
    assert "-v lists all" not in capsys.readouterr().out


def test_a_long_name_does_not_push_the_reason_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap(build(published(name="x" * 3000).talk.packets)))
    assert main(["inspect", str(path), "--keep-secrets"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "xxx…" in line and "no media was sent" in line and len(line) < 250


def test_many_captures_are_counted_and_the_damaged_ones_named(
    sample_pcaps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(sample_pcaps)]) == 0
    captures = [line for line in capsys.readouterr().out.splitlines() if re.search(r"\d packets, ", line)]
    assert len(captures) == 2
    assert captures[0].startswith(f"{len(list(sample_pcaps.glob('*.pcap*')))} captures, ")
    assert captures[1].startswith(f"{sample_pcaps}/file_cut_mid_record.pcap, ")


def test_a_damaged_file_is_reported_once(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(sample_pcaps / "file_cut_mid_record.pcap")
    assert main(["inspect", path]) == 0
    out, err = capsys.readouterr()
    assert (out + err).count("the file ends inside a record") == 1 and out.count("CAPTURE_TRUNCATED") == 1
    assert "Wait until the capture tool has closed the file" in out
    assert main(["inspect", path, "--table", "connections"]) == 0
    assert capsys.readouterr().err.count("the file ends inside a record") == 1, "a table does not show it"


def test_a_file_that_failed_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.pcap"
    path.touch()
    assert main(["inspect", str(path)]) == 4
    out, err = capsys.readouterr()
    assert (out + err).count("empty") == 3, "the name twice, and the reason once"


def test_bitrates_have_the_units_of_the_report(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(sample_pcaps / SLOW), "-v"]) == 0
    out = capsys.readouterr().out
    assert "received 3.3 Mb/s" in out and not re.search(r"\d{4} kb/s", out)
