"""A directory on the command line stands for the captures below it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rtmp_spark.cli import main

NAMES = ("rotated_publish_00.pcap", "rotated_publish_01.pcap", "rotated_publish_02.pcap")
TO_FILE = {"report": "page.html", "extract": "stream.flv", "slice": "one.pcapng"}


@pytest.fixture
def directory(sample_pcaps: Path, tmp_path: Path) -> Path:
    """A recording in three files, one of them deeper, next to a file that is not a capture."""
    (tmp_path / "captures" / "deep").mkdir(parents=True)
    for name, place in zip(NAMES, ("", "", "deep")):
        shutil.copy(sample_pcaps / name, tmp_path / "captures" / place / name)
    (tmp_path / "captures" / "notes.txt").write_text("not a capture")
    return tmp_path / "captures"


def files(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.rglob("*.pcap"))]


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"], ["check"], ["check", "--json"]])
def test_the_result_is_that_of_the_files(directory: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for paths in ([f"{directory}/"], files(directory)):
        assert main([*words, *paths]) == 0
        results.append(capsys.readouterr().out)
    assert results[0] == results[1]


@pytest.mark.parametrize("command", TO_FILE)
def test_commands_that_write_a_file(directory: Path, tmp_path: Path, command: str) -> None:
    results = []
    for paths in ([str(directory)], files(directory)):
        target = tmp_path / TO_FILE[command]
        assert main([command, *paths, "-o", str(target)]) == 0
        results.append(target.read_bytes())
    if command == "report":  # the command is on the page
        results = [text.replace(str(directory).encode(), b"")[:2000] for text in results]
    assert results[0] == results[1]


def test_sql(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert main(["sql", "SELECT count(*) AS files FROM captures", str(directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": 3}


def test_a_directory_of_a_sensor(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"edge={directory}", "--table", "captures", "--json"]) == 0
    assert [json.loads(line)["sensor"] for line in capsys.readouterr().out.splitlines()] == ["edge"] * 3


def test_a_file_that_is_also_below_the_directory_is_read_once(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(directory), files(directory)[0], "--table", "captures", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("command", ["inspect", "check", "report", "extract", "slice", "sql"])
def test_a_directory_without_captures_is_a_usage_error(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").touch()
    words = [command, *(["SELECT 1"] if command == "sql" else []), str(empty)]
    if command in TO_FILE:
        words += ["-o", str(tmp_path / "out")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rtmp-spark: {empty} contains no captures. ") and len(error.splitlines()) == 1


@pytest.mark.parametrize("words", [["report", "-o"], ["extract", "-o"], ["check", "--junit"]])
def test_a_capture_below_the_directory_is_not_overwritten(
    directory: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    target = files(directory)[0]
    before = Path(target).read_bytes()
    command, option = words
    assert main([command, str(directory), option, target]) == 2
    assert "is one of the input captures" in capsys.readouterr().err
    assert Path(target).read_bytes() == before
