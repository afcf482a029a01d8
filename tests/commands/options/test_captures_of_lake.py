"""`slice --lake` and `extract --lake` find the captures of a connection by its uid."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.cli import main

OTHER = "ffmpeg_publish_g711mu_audio_only.pcap"


@pytest.fixture
def captures(sample_pcaps: Path, tmp_path: Path) -> list[Path]:
    """One connection in three files, and another one in the fourth."""
    names = sorted(path.name for path in sample_pcaps.glob("rotated_*_0?.pcap"))
    assert len(names) == 3
    return [Path(shutil.copy(sample_pcaps / name, tmp_path / name)) for name in (*names, OTHER)]


@pytest.fixture
def lake(captures: list[Path], tmp_path: Path) -> Path:
    ingest_in_process(tmp_path / "lake", captures, sensor="edge-1")
    return tmp_path / "lake"


def uid_in_three_files(lake: Path) -> str:
    (uid,) = [row["uid"] for row in lake_rows(lake, "connections") if len(row["capture_ids"]) == 3]
    return str(uid)


@pytest.mark.parametrize(("command", "name"), [("slice", "one.pcapng"), ("extract", "one.flv")])
def test_the_result_is_that_of_the_named_captures(
    lake: Path, captures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    uid, by_lake, by_name = uid_in_three_files(lake), tmp_path / f"lake_{name}", tmp_path / f"named_{name}"
    assert main([command, "--lake", str(lake), "--uid", uid, "-o", str(by_lake)]) == 0
    printed = capsys.readouterr().out
    named = [str(path) for path in captures]
    assert main([command, *named, "--sensor", "edge-1", "--uid", uid, "-o", str(by_name)]) == 0
    assert by_lake.read_bytes() == by_name.read_bytes() and by_lake.stat().st_size > 10_000
    if command == "extract":
        (stream,) = [row["name"] for row in lake_rows(lake, "streams") if row["uid"] == uid]
        assert f" {stream}," in printed, "as the lake hashes it"


def test_a_key_in_the_environment_does_not_change_the_names_of_the_lake(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = uid_in_three_files(lake)
    (stream,) = [row["name"] for row in lake_rows(lake, "streams") if row["uid"] == uid]
    monkeypatch.setattr("rtmp_spark.commands.options.capture_options.load_key", lambda: b"of another lake")
    target = str(tmp_path / "one.flv")
    assert main(["extract", "--lake", str(lake), "--uid", uid, "--stream", stream, "-o", target]) == 0
    assert f" {stream}," in capsys.readouterr().out


@pytest.mark.parametrize("command", ["slice", "extract"])
def test_captures_that_moved_or_changed(
    lake: Path, captures: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    arguments = [command, "--lake", str(lake), "--uid", uid_in_three_files(lake), "-o", str(tmp_path / "out")]
    captures[1].rename(tmp_path / "elsewhere.pcap")
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert f"{captures[1]} holds packets of" in printed and "Move it back, or name the captures" in printed
    for path in captures[:3]:
        shutil.copy(captures[3], path)
    assert main(arguments) == 2
    assert "have changed since they were ingested" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Name captures or a lake."),
        (("--lake", "LAKE"), "--lake needs the uid of a connection."),
        (("--lake", "LAKE", "--uid", "C0"), "No connection C0 in "),
        (("--lake", "LAKE", "--uid", "C0", "FILE"), "--lake and captures cannot be combined."),
        (("--lake", "nowhere", "--uid", "C0"), "There is no lake at "),
    ],
)
@pytest.mark.parametrize("command", ["slice", "extract"])
def test_mistakes(
    lake: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    words = [str(lake) if word == "LAKE" else word for word in arguments]
    assert main([command, *words, "-o", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err
