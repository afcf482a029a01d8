"""The command line as a person meets it: help, exit codes, errors of one sentence, and the doctor."""

from __future__ import annotations

import ast
import errno
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark import __version__, cli
from rtmp_spark.codec.errors import CaptureError, EncodeError, UserError, ViolationCode
from rtmp_spark.commands import doctor
from rtmp_spark.commands.output_file import whole_file
from rtmp_spark.commands.quantities import size
from rtmp_spark.commands.recording_options import parse_host, parse_time

COMMANDS = Path(cli.__file__).parent / "commands"
SAMPLE = str(Path(__file__).parent.parent / "sample_pcaps" / "denied_and_unknown_app.pcap")


def rtmp_spark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rtmp_spark.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def test_help_names_every_command() -> None:
    result = rtmp_spark("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    for name in cli.installed_commands():
        assert cli.COMMANDS[name][0].split()[0] in result.stdout
        assert re.search(rf"^    {name}\s", result.stdout, re.MULTILINE)


def test_the_table_and_the_modules_agree() -> None:
    def functions(path: Path) -> set[str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

    commands = {path.stem for path in COMMANDS.glob("*.py") if {"add_arguments", "run"} <= functions(path)}
    assert commands == set(cli.installed_commands())


@pytest.mark.parametrize("name", cli.installed_commands())
def test_every_command_has_help_with_examples(name: str) -> None:
    result = rtmp_spark(name, "--help", COLUMNS="100")
    assert result.returncode == 0, result.stderr
    assert f"usage: rtmp-spark {name}" in result.stdout
    assert "--debug" in result.stdout
    for example in cli.COMMANDS[name][1]:
        assert f"  {example}\n" in result.stdout


@pytest.mark.parametrize("name", cli.installed_commands())
def test_examples_are_of_their_own_command(name: str) -> None:
    assert all(example.startswith(f"rtmp-spark {name}") for example in cli.COMMANDS[name][1])


def test_version() -> None:
    result = rtmp_spark("--version")
    assert (result.returncode, result.stdout) == (0, f"rtmp-spark {__version__}\n")
    assert importlib.metadata.version("rtmp-spark") == __version__


WRONG_USAGE = [
    ("", "usage: rtmp-spark"),
    ("no-such-command", "There is no command no-such-command. `rtmp-spark --help` lists them."),
    ("inspekt trace.pcap", "There is no command inspekt. Did you mean inspect?"),
    ("doctor --no-such-option", "doctor has no option --no-such-option. `rtmp-spark doctor --help` lists the options."),
    ("inspect trace.pcap --tabel=messages", "inspect has no option --tabel=messages. Did you mean --table?"),
    ("--verion", "rtmp-spark has no option --verion. Did you mean --version?"),
    ("--quiet inspect trace.pcap", "--quiet stands before the command. Write it behind: rtmp-spark COMMAND"),
    ("inspect a.pcap --json b.pcap", "inspect has no place for b.pcap. Name files one after the other"),
    ("check a.pcap --fail-on never", "--fail-on cannot be 'never'. Choose one of error, warning, info."),
    ("inspect", "rtmp-spark: inspect needs FILE. `rtmp-spark inspect --help` shows how."),
    ("report a.pcap", "rtmp-spark: report needs -o or --output. `rtmp-spark report --help` shows how."),
    ("inspect a.pcap --uid", "--uid stands without its value. `rtmp-spark inspect --help` shows how."),
    ("inspect a.pcap --since soon", "--since: 'soon' is no time. Write 2026-01-31T12:00:00."),
    ("check a --json --junit b", "--junit: not allowed with argument --json. `rtmp-spark check --help` shows how."),
]


@pytest.mark.parametrize(("line", "told"), WRONG_USAGE, ids=[line for line, _ in WRONG_USAGE])
def test_wrong_usage_is_exit_2_and_what_is_wrong(line: str, told: str) -> None:
    result = rtmp_spark(*line.split())
    assert result.returncode == 2
    assert told in result.stdout + result.stderr
    assert len(result.stderr.splitlines()) == bool(line), "one sentence and its remedy"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inspect", ""], "The name of a capture is empty. Is a variable of the shell not set?"),
        (["check", "."], ". is a directory. Name its files: ./*.pcap*"),
        (["report", SAMPLE, "-o", "-"], "- is no name for a file to write. Name one; /dev/stdout is standard output."),
    ],
)
def test_what_is_no_file(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr() == ("", f"rtmp-spark: {told}\n")


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("text", ["soon", "inf", "nan", "1e400", "2026-13-01", ""])
def test_what_is_no_time_is_wrong_usage(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", SAMPLE, option, text]) == 2
    assert f"{text!r} is no time" in capsys.readouterr().err


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_a_time_means_its_microsecond(when: datetime) -> None:
    """As tables show it: what `--until` of a row's own time leaves out is later than the row."""
    exact = (when - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    assert parse_time(when.isoformat(timespec="microseconds").replace("+00:00", "Z")) == exact
    if when.year >= 1970 and when.year < 2200:
        assert parse_time(f"{exact // 10**6}.{exact % 10**6:06}") == exact


@pytest.mark.parametrize(
    "words", [("--host", "localhost"), ("--host", "1.2.3"), ("--port", "65536"), ("--port", "-1"), ("--port", "1; 2")]
)
def test_what_no_connection_can_have_is_wrong_usage(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["inspect", SAMPLE], ["ingest", SAMPLE, "--lake", "none"]):
        assert cli.main([*command, *words]) == 2
        assert f"{words[1]!r} is no" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "play rtmp://127.0.0.1:1/live/x -o x.flv --duration -1",
        "play rtmp://127.0.0.1:1/live/x -o x.flv --duration nan",
        "tap --to 127.0.0.1:1 -o x.pcap --delay -1",
        "tap --to 127.0.0.1:1 -o x.pcap --piece -1",
        "tap --to 127.0.0.1:1 -o x.pcap --rate inf",
        "tap --to 127.0.0.1:1 -o x.pcap --rotate 0",
        "relay --max-connections -1",
        "relay --tap-rotate 5X",
        "ingest x.pcap --lake none --split-size 0",
        "ingest x.pcap --lake none --settle -1",
    ],
)
def test_a_quantity_that_cannot_be_is_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.split()) == 2
    assert f"{words.split()[-1]!r} is no" in capsys.readouterr().err


def test_sizes_are_written_in_many_ways() -> None:
    assert [size(text) for text in ("7", "64MB", "300k", "1.5KiB", "2G")] == [7, 64 << 20, 300 << 10, 1536, 2 << 30]


def test_an_address_may_be_written_in_every_way(sample_pcaps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_host("::ffff:192.0.2.1") == "192.0.2.1"
    path = str(sample_pcaps / "ipv6_ffmpeg_publish.pcap")
    assert cli.main(["inspect", path, "--host", "0:0:0:0:0:0:0:1", "--table", "connections", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["orig_h"] == "::1"


@pytest.mark.parametrize("option", ["--uid", "--stream"])
@pytest.mark.parametrize("content", ["empty", "nothing", "rtmp"])
def test_what_was_asked_for_and_is_not_there_counts_before_all_else(
    option: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(SAMPLE) if content == "rtmp" else tmp_path / "trace.pcap"
    if content != "rtmp":
        path.write_bytes(b"" if content == "empty" else Path(SAMPLE).read_bytes()[:24])
    commands = ["inspect", "check", "extract -o", "slice -o", "report -o"]
    for command, *output in map(str.split, commands):
        target = [str(tmp_path / "out")] if output else []
        assert cli.main([command, str(path), *output, *target, option, "CXXXXXXXXXXXXXXXXXXXX"]) == 2
        assert "There is no" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--host=::1", "--port=1", "--stream=x", "--since=0", "--until=0"])
@pytest.mark.parametrize("command", [["check"], ["report", "-o", "page.html"]])
def test_what_would_do_nothing_to_a_lake_is_refused(
    command: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--lake", "lake", option]) == 2
    assert f"{option.partition('=')[0]} is for captures." in capsys.readouterr().err


@pytest.mark.parametrize("words", [[SAMPLE], ["--lake", "lake"], ["--json"], ["--junit", "findings.xml"]])
def test_vectors_are_checked_alone(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *words, "--vectors"]) == 2
    assert "--vectors goes with nothing but --decoder." in capsys.readouterr().err


ERRORS = [
    (UserError("Java was not found.", "Install Java 17.", 3), 3, "rtmp-spark: Java was not found. Install Java 17.\n"),
    (UserError("Two streams match.", "Choose one."), 2, "rtmp-spark: Two streams match. Choose one.\n"),
    (
        UserError("The server refused: \x1b]0;mine\x07\u202e.", "Check caf\udce9.pcap."),
        2,
        "rtmp-spark: The server refused: .]0;mine... Check caf\\udce9.pcap.\n",
    ),
    (UserError("Two match:\n  a\n  b\n", "Choose one."), 2, "rtmp-spark: Two match:\n  a\n  b\nChoose one.\n"),
    (
        CaptureError(ViolationCode.CAPTURE_BAD_RECORD, "x.txt is not a capture.", "Give it a pcap."),
        4,
        "rtmp-spark: x.txt is not a capture. Give it a pcap.\n",
    ),
    (
        FileNotFoundError(2, "No such file or directory", "x.pcap"),
        2,
        "rtmp-spark: x.pcap: no such file or directory. Check the path.\n",
    ),
    (
        ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
        3,
        "rtmp-spark: The Python package pyspark is missing. `rtmp-spark doctor` says what to install.\n",
    ),
    (EncodeError("A chunk size of 0 cannot be sent."), 4, "rtmp-spark: A chunk size of 0 cannot be sent.\n"),
    (KeyboardInterrupt(), 130, "rtmp-spark: Stopped.\n"),
    (
        ValueError("odd"),
        3,
        "rtmp-spark: Something unforeseen went wrong (ValueError: odd). "
        "Run it again with --debug and report what it shows.\n",
    ),
]


@pytest.mark.parametrize(("error", "code", "text"), ERRORS, ids=[type(error).__name__ for error, _, _ in ERRORS])
def test_an_error_is_one_sentence_and_its_remedy(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr() == ("", text)
    assert cli.main(["doctor", "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["doctor", "--json"], ["inspect", SAMPLE], ["inspect", SAMPLE, "--json"]])
def test_a_closed_pipe_is_no_complaint(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "rtmp_spark.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141  # as every other program in a pipe; 0 would let a gate pass


def test_no_color_reaches_what_we_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(doctor, "run", lambda args: int(os.environ["NO_COLOR"]) + 41)
    assert cli.main(["doctor", "--no-color"]) == 42


def test_doctor_tells_every_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"Python", "numpy", "pyarrow", "pyspark", "current directory", "port 1935"} <= {row["name"] for row in rows}
    assert code == (3 if any(row["state"] == "missing" for row in rows) else 0)


def test_doctor_misses_what_is_not_installed_and_what_is_of_another_version() -> None:
    absent = doctor.package("no-such-package-at-all", "", "spark")
    assert (absent.state, absent.remedy) == ("missing", "pip install 'rtmp-spark[spark]'")
    other = doctor.package("pytest", "0.0.1")
    assert other.state == "missing" and "0.0.1 is needed" in other.found
    assert doctor.optional("no-such-package-at-all", "tls", "decrypting RTMPS").state == "note"


def test_doctor_fails_when_something_needed_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "required_packages", lambda: iter([("no-such-package-at-all", "", "")]))
    assert cli.main(["doctor"]) == 3
    assert capsys.readouterr().out.endswith("\nMissing: no-such-package-at-all.\n")


def test_doctor_knows_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setattr(doctor, "RELAY_PORT", listener.getsockname()[1])
        assert doctor.port().state == "note"


def test_doctor_finds_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    assert doctor.writable("here", tmp_path, "Go elsewhere.").state == "ok"
    assert doctor.writable("here", tmp_path / "absent", "Go elsewhere.").state == "missing"
    assert list(tmp_path.iterdir()) == []


def test_doctor_knows_the_pins_of_the_package() -> None:
    needed = {name: (pin, extra) for name, pin, extra in doctor.required_packages()}
    assert needed["numpy"] == ("", "")
    assert needed["pyspark"][1] == "spark"
    assert needed["pyspark"][0].startswith("4.")


@pytest.mark.parametrize("arguments", [(), ("--table", "commands"), ("--json",)])
def test_a_terminal_without_the_letters_gets_something_else(arguments: tuple[str, ...], sample_pcaps: Path) -> None:
    capture = sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap"  # names in letters beyond ASCII
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "rtmp_spark.cli", "inspect", str(capture), *arguments]
    result = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, **plain})
    assert (result.returncode, result.stderr) == (0, b"")
    if arguments == ("--json",):
        assert any("\u00fc" in line for line in result.stdout.decode("utf-8").splitlines())
        assert all(json.loads(line) for line in result.stdout.decode("utf-8").splitlines())
    else:
        assert result.stdout.isascii()


@pytest.mark.parametrize("words", [("extract", "-o"), ("slice", "-o"), ("report", "-o"), ("check", "--junit")])
def test_no_command_writes_over_what_it_reads(words: tuple[str, str], sample_pcaps: Path, tmp_path: Path) -> None:
    capture = tmp_path / "trace.pcap"
    shutil.copy(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap", capture)
    before = capture.read_bytes()
    done = rtmp_spark(words[0], str(capture), words[1], str(capture))
    assert done.returncode == 2
    assert done.stderr.startswith(f"rtmp-spark: {capture} is one of the captures to read.")
    assert capture.read_bytes() == before and list(tmp_path.iterdir()) == [capture]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("extract", "-o"), ("slice", "-o"), ("report", "-o"), ("check", "--junit")])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_sentence(words: tuple[str, str], sample_pcaps: Path) -> None:
    capture = sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"
    done = rtmp_spark(words[0], str(capture), words[1], "/dev/full")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "rtmp-spark: /dev/full: no space left on device. Make room, or write to another place."
    )


def test_half_a_file_is_none(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("the page of yesterday")
    with pytest.raises(OSError), whole_file(target) as file:
        file.write(b"the page of to")
        raise OSError(errno.ENOSPC, "no space")
    assert target.read_text() == "the page of yesterday" and list(tmp_path.iterdir()) == [target]
