"""`rtmp-spark slice` copies one complete connection, with findings as packet comments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit import capture_rewriting

from rtmp_spark.cli import main


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "test")


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["inspect", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_slice_cannot_read_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    for command, offered in (("inspect", True), ("extract", True), ("slice", False)):
        assert main([command, "--help"]) == 0
        assert ("standard input" in " ".join(capsys.readouterr().out.split())) == offered, command
    assert main(["slice", "-", "--uid", "C", "-o", "x.pcapng"]) == 2


def test_a_slice_holds_one_complete_connection(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = sample_pcaps / "republish_same_name.pcap", tmp_path / "one.pcapng"
    assert main(["slice", str(source), "-o", str(target)]) == 2, "two connections, none chosen"
    wanted = lines(capsys, source, "--table", "connections")[1]
    assert main(["slice", str(source), "--uid", wanted["uid"], "-o", str(target)]) == 0
    capsys.readouterr()
    (same,) = lines(capsys, target, "--table", "connections")
    files = ("capture_ids",)
    assert {k: v for k, v in same.items() if k not in files} == {k: v for k, v in wanted.items() if k not in files}


def test_a_slice_of_an_unsorted_file_is_complete(
    sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packets = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    backwards, target = tmp_path / "backwards.pcap", tmp_path / "one.pcapng"
    backwards.write_bytes(capture_rewriting.pcap(capture_rewriting.build(packets[::-1])))
    assert main(["slice", str(backwards), "-o", str(target)]) == 0
    assert f" {len(packets)} packets " in capsys.readouterr().out


@pytest.mark.parametrize("program", ["tshark"], indirect=True)
def test_wireshark_reads_a_slice_and_its_comments(sample_pcaps: Path, tmp_path: Path, program: str) -> None:
    target = tmp_path / "gap.pcapng"
    assert main(["slice", str(sample_pcaps / "capture_gap_lost_packets.pcap"), "-o", str(target)]) == 0
    command = [program, "-r", str(target), "-T", "fields", "-e", "frame.comment"]
    comments = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(comments) == 832, "number of packets in the capture"
    assert any("TCP_GAP" in comment for comment in comments)
