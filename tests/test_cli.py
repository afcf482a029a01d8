"""The command line as users see it: help, exit codes, errors of one sentence, and `doctor`."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rtmp_spark import __version__, cli
from rtmp_spark.codec.errors import CaptureError, EncodeError, UserError, ViolationCode
from rtmp_spark.commands import doctor
from rtmp_spark.install_command import install_command

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


def test_every_command_module_is_listed() -> None:
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
def test_examples_use_their_own_command(name: str) -> None:
    assert all(example.startswith(f"rtmp-spark {name}") for example in cli.COMMANDS[name][1])


def test_version() -> None:
    result = rtmp_spark("--version")
    assert (result.returncode, result.stdout) == (0, f"rtmp-spark {__version__}\n")
    assert importlib.metadata.version("rtmp-spark") == __version__


WRONG_USAGE = [
    ("", "usage: rtmp-spark"),
    ("no-such-command", "Unknown command no-such-command. `rtmp-spark --help` lists the commands."),
    ("inspekt trace.pcap", "Unknown command inspekt. Did you mean inspect?"),
    ("doctor --no-such-option", "doctor has no option --no-such-option. `rtmp-spark doctor --help` lists the options."),
    ("inspect trace.pcap --tabel=messages", "inspect has no option --tabel=messages. Did you mean --table?"),
    ("--verion", "Unknown option --verion. Did you mean --version?"),
    ("--quiet inspect trace.pcap", "--quiet precedes the command. Options must follow the command: rtmp-spark COMMAND"),
    ("inspect a.pcap --json b.pcap", "Unexpected argument b.pcap. See `rtmp-spark inspect --help`."),
    ("check a.pcap --fail-on never", "Invalid value 'never' for --fail-on. Choose one of error, warning, info."),
    ("inspect", "rtmp-spark: inspect needs FILE. See `rtmp-spark inspect --help`."),
    ("report a.pcap", "rtmp-spark: report needs -o or --output. See `rtmp-spark report --help`."),
    ("inspect a.pcap --uid", "--uid needs a value. See `rtmp-spark inspect --help`."),
    ("inspect a.pcap --since soon", "Invalid time 'soon' for --since. Use 2026-01-31T12:00:00."),
    ("check a --json --junit b", "--junit: not allowed with argument --json. See `rtmp-spark check --help`."),
]


@pytest.mark.parametrize(("line", "expected"), WRONG_USAGE, ids=[line for line, _ in WRONG_USAGE])
def test_wrong_usage_is_exit_code_2_with_a_remedy(line: str, expected: str) -> None:
    result = rtmp_spark(*line.split())
    assert result.returncode == 2
    assert expected in result.stdout + result.stderr
    assert len(result.stderr.splitlines()) == bool(line), "one sentence and its remedy"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["inspect", ""], "A capture name is empty. Check for an unset shell variable."),
        (["check", "missing/"], "missing/ does not exist. Check the path."),
        (["report", SAMPLE, "-o", "-"], "- is not a valid output file. Name a file; /dev/stdout is standard output."),
    ],
)
def test_an_invalid_file_name_is_a_usage_error(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr() == ("", f"rtmp-spark: {expected}\n")


@pytest.mark.parametrize("option", ["--uid", "--stream"])
@pytest.mark.parametrize("content", ["empty", "nothing", "rtmp"])
def test_a_missing_uid_or_stream_takes_precedence_over_other_problems(
    option: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(SAMPLE) if content == "rtmp" else tmp_path / "trace.pcap"
    if content != "rtmp":
        path.write_bytes(b"" if content == "empty" else Path(SAMPLE).read_bytes()[:24])
    commands = ["inspect", "check", "extract -o", "slice -o", "report -o"]
    for command, *output in map(str.split, commands):
        target = [str(tmp_path / "out")] if output else []
        assert cli.main([command, str(path), *output, *target, option, "CXXXXXXXXXXXXXXXXXXXX"]) == 2
        assert " CXXXXXXXXXXXXXXXXXXXX found." in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--host=::1", "--port=1", "--stream=x", "--since=0", "--until=0"])
@pytest.mark.parametrize("command", [["check"], ["report", "-o", "page.html"]])
def test_decoding_filters_are_refused_for_a_lake(
    command: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--lake", "lake", option]) == 2
    assert f"{option.partition('=')[0]} cannot be used with --lake." in capsys.readouterr().err


@pytest.mark.parametrize("words", [[SAMPLE], ["--lake", "lake"], ["--json"], ["--junit", "findings.xml"]])
def test_vectors_cannot_be_combined_with_captures(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *words, "--vectors"]) == 2
    assert "--vectors can only be combined with --decoder." in capsys.readouterr().err


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
        PermissionError(13, "Permission denied", "x.pcap"),
        2,
        "rtmp-spark: x.pcap: permission denied. Check the permissions of the file and of its directories.\n",
    ),
    (IsADirectoryError(21, "Is a directory", "x"), 2, "rtmp-spark: x: is a directory. Name a file.\n"),
    (
        ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
        3,
        f"rtmp-spark: The Python package pyspark is not installed. Install it: {install_command('spark')}\n",
    ),
    (EncodeError("A chunk size of 0 cannot be sent."), 4, "rtmp-spark: A chunk size of 0 cannot be sent.\n"),
    (KeyboardInterrupt(), 130, "rtmp-spark: Interrupted.\n"),
    (
        ValueError("odd"),
        3,
        "rtmp-spark: Unexpected error (ValueError: odd). Run the command again with --debug and report the output.\n",
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
def test_a_closed_pipe_prints_no_error(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "rtmp_spark.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141  # like other programs in a pipe; with 0 a CI gate would pass


def test_no_color_is_passed_to_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(doctor, "run", lambda args: int(os.environ["NO_COLOR"]) + 41)
    assert cli.main(["doctor", "--no-color"]) == 42


@pytest.mark.parametrize("arguments", [(), ("--table", "commands"), ("--json",)])
def test_an_ascii_terminal_gets_replacements(arguments: tuple[str, ...], sample_pcaps: Path) -> None:
    capture = sample_pcaps / "ffmpeg_publish_querystring_metadata.pcap"  # has names with non-ASCII letters
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "rtmp_spark.cli", "inspect", str(capture), *arguments]
    result = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, **plain})
    assert (result.returncode, result.stderr) == (0, b"")
    if arguments == ("--json",):
        assert any("\u00fc" in line for line in result.stdout.decode("utf-8").splitlines())
        assert all(json.loads(line) for line in result.stdout.decode("utf-8").splitlines())
    else:
        assert result.stdout.isascii()
