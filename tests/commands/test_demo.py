"""`demo` as a new user runs it: in a directory with spaces, twice at once, with the port taken, interrupted."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rtmp_spark import cli
from rtmp_spark.commands import demo, demo_traffic
from rtmp_spark.commands.output.demo_output import DemoResult, next_commands
from rtmp_spark.install_command import install_command

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "rtmp_spark.cli", "demo"]
SHORT = ("--no-spark", "--seconds", "3", "--json")


def start(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str], timeout: float = 120) -> dict[str, Any]:
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    assert err == ""
    result: dict[str, Any] = json.loads(out)
    return result


@pytest.fixture
def spaced(tmp_path: Path) -> Path:
    directory = tmp_path / "a directory with spaces"
    directory.mkdir()
    return directory


def is_flv(path: Path) -> bool:
    return path.read_bytes()[:3] == b"FLV"


def test_two_demos_at_once_with_the_rtmp_port_taken(spaced: Path) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", demo_traffic.RTMP_PORT))
            listener.listen()
        except OSError:
            pass  # another program uses the port, which is what this test needs
        results = [outcome(process) for process in [start(spaced, *SHORT), start(spaced, *SHORT)]]
    assert {result["directory"] for result in results} == {"rtmp-spark-demo", "rtmp-spark-demo-2"}
    assert len({result["url"] for result in results}) == 2
    for result in results:
        assert f":{demo_traffic.RTMP_PORT}/" not in result["url"]
        assert result["findings"][0]["rule_id"] == result["fault"] == demo.DEFAULT_FAULT
        assert result["findings"][0]["party"] == "publisher"
        assert is_flv(spaced / result["directory"] / "played.flv")
        page = (spaced / result["report"]).read_text(encoding="utf-8")
        assert page.endswith("</html>\n") and demo.DEFAULT_FAULT in page


def test_another_fault_and_the_suggested_commands(spaced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = outcome(start(spaced, *SHORT, "--fault", "media-declared"))
    assert result["found"] and result["findings"][0]["rule_id"] == "MEDIA_DECLARED"
    monkeypatch.chdir(spaced)
    for command in result["commands"]:
        name, *arguments = shlex.split(command)
        assert Path(name).name == "rtmp-spark"
        assert cli.main(arguments) in (0, 1), command
    assert (spaced / "rtmp-spark-demo" / "one.pcapng").stat().st_size > 0


def test_suggested_commands_use_a_working_path_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "env" / "bin" / "rtmp-spark"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    for directory, path, expected in (
        (tmp_path, "", "env/bin/rtmp-spark"),
        (program.parent, "", "./rtmp-spark"),
        (tmp_path, str(program.parent), "rtmp-spark"),
    ):
        monkeypatch.chdir(directory)
        monkeypatch.setenv("PATH", path)
        commands = next_commands(DemoResult(tmp_path / "demo", "MEDIA_ANNEXB"))
        assert {shlex.split(command)[0] for command in commands} == {expected}


def test_without_loopback_the_demo_does_not_begin(tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("unshare cannot create a network namespace here")
    command = [*alone, *COMMAND, "--no-spark"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.startswith("rtmp-spark: Cannot connect to 127.0.0.1: ")
    assert not list(tmp_path.iterdir())


def test_text_output(spaced: Path) -> None:
    process = start(spaced, "--no-spark", "--seconds", "2", "-o", "here", COLUMNS="80")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert [line[:5] for line in err.splitlines() if line.startswith("[")] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert f"Planted: {demo.DEFAULT_FAULT.value}" in out and "Found." in out
    first = out.index("error    ")
    assert out[first:].startswith(f"error    {demo.DEFAULT_FAULT.value}, publisher: ")
    assert (spaced / "here" / "report.html").as_uri() in out


def test_without_spark_the_error_suggests_no_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "rtmp_spark.spark.session", None)
    assert cli.main(["demo"]) == 3
    error = capsys.readouterr().err
    assert f"is not installed. {install_command('spark')}. Or run the demo without tables: " in error
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_lists_its_files(spaced: Path) -> None:
    process = start(spaced, "--no-spark", "--seconds", "60")
    pcap = spaced / "rtmp-spark-demo" / "session.pcap"
    deadline = time.monotonic() + 60
    while not (pcap.exists() and pcap.stat().st_size > 10_000) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "rtmp-spark: Interrupted. rtmp-spark-demo holds the files made so far: " in err and "session.pcap" in err
    assert "Traceback" not in err
    assert cli.main(["inspect", str(pcap)]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fault", "NO_SUCH_RULE"), "NO_SUCH_RULE"),
        (("--fault", "CMD_REFUSED"), "the other side"),
        (("--seconds", "0"), "Choose 2 to 600 seconds."),
        (("-o", "file/demo"), "Choose another directory with -o."),
    ],
)
def test_invalid_arguments_are_reported_before_the_demo_begins(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert cli.main(["demo", "--no-spark", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.spark
def test_with_spark_the_lake_holds_the_same_findings(spaced: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    process = start(spaced, "--seconds", "3", "--json")
    out, err = process.communicate(timeout=600)
    if process.returncode == 3:
        pytest.skip(f"no Spark here: {err.strip()}")
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["findings"][0]["rule_id"] == demo.DEFAULT_FAULT
    found = deltalake.DeltaTable(str(spaced / result["lake"] / "findings")).to_pyarrow_table()
    assert sorted(found["rule_id"].to_pylist()) == sorted(row["rule_id"] for row in result["findings"])
    assert demo.DEFAULT_FAULT in (spaced / result["report"]).read_text(encoding="utf-8")
