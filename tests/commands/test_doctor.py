"""`rtmp-spark doctor` finds what is installed, missing, in use or not writable."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rtmp_spark import cli
from rtmp_spark.commands import doctor
from rtmp_spark.install_command import install_command


def test_doctor_prints_every_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"Python", "numpy", "pyarrow", "pyspark", "current directory", "port 1935"} <= {row["name"] for row in rows}
    assert code == (3 if any(row["state"] == "missing" for row in rows) else 0)


def test_doctor_reports_missing_packages_and_wrong_versions() -> None:
    absent = doctor.package("no-such-package-at-all", "", "spark")
    assert (absent.state, absent.remedy) == ("missing", install_command("spark"))
    other = doctor.package("pytest", "0.0.1")
    assert other.state == "missing" and "0.0.1 is required" in other.found
    assert doctor.optional("no-such-package-at-all", "tls", "decrypting RTMPS").state == "note"


def test_doctor_fails_if_a_requirement_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "required_packages", lambda: iter([("no-such-package-at-all", "", "")]))
    assert cli.main(["doctor"]) == 3
    assert capsys.readouterr().out.endswith("\nMissing: no-such-package-at-all.\n")


def test_doctor_notes_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setattr(doctor, "RELAY_PORT", listener.getsockname()[1])
        assert doctor.port().state == "note"


def test_doctor_finds_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    assert doctor.writable("here", tmp_path, "Go elsewhere.").state == "ok"
    assert doctor.writable("here", tmp_path / "absent", "Go elsewhere.").state == "missing"
    assert list(tmp_path.iterdir()) == []


def test_doctor_reads_the_pinned_versions() -> None:
    needed = {name: (pin, extra) for name, pin, extra in doctor.required_packages()}
    assert needed["numpy"] == ("", "")
    assert needed["pyspark"][1] == "spark"
    assert needed["pyspark"][0].startswith("4.")


def test_doctor_lists_a_package_of_two_extras_once(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "--json"])
    names = [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()]
    assert [name for name in names if names.count(name) > 1] == []
