"""`NAME=FILE`: captures of several sensors on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from rtmp_spark.cli import main
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.sensor_files import files_by_sensor

ANSWER = "The network between the sensors is the cause."


def chosen(*paths: object, sensor: str = "") -> dict[str, list[str]]:
    return files_by_sensor(argparse.Namespace(paths=[str(path) for path in paths], sensor=sensor))


def test_files_of_sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1.pcap", "2.pcap", "x=1.pcap"):
        Path(name).touch()
    assert chosen("a=1.pcap", "b=2.pcap", "a=2.pcap") == {"a": ["1.pcap", "2.pcap"], "b": ["2.pcap"]}
    assert chosen("1.pcap", "b=2.pcap", sensor="edge") == {"edge": ["1.pcap"], "b": ["2.pcap"]}
    assert chosen("x=1.pcap") == {"": ["x=1.pcap"]}  # a file that is called so
    assert chosen(tmp_path / "x=1.pcap") == {"": [str(tmp_path / "x=1.pcap")]}
    with pytest.raises(UserError, match=r"3\.pcap does not exist"):
        chosen("a=3.pcap")


def test_network_or_server(sample_pcaps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"{side}={sample_pcaps / f'lossy_mtu1500_{side}_side.pcap'}" for side in ("client", "server")]
    for command in ("inspect", "check"):
        assert main([command, *given]) == 0
        assert capsys.readouterr().out.count(ANSWER) == 2
    page = tmp_path / "page.html"
    assert main(["report", *given, "-o", str(page)]) == 0
    assert page.read_text().count(ANSWER) == 4  # in the sections of all four connections
    assert main(["inspect", given[0]]) == 0
    assert ANSWER not in capsys.readouterr().out
