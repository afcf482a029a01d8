"""The remedy for a missing package works for the installation at hand."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from rtmp_spark.install_command import install_command


class Installed:
    """A distribution with what pip recorded about its origin."""

    def __init__(self, origin: str | None) -> None:
        self.recorded = None if origin is None else json.dumps({"url": origin})

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.recorded


def command_for(origin: str | None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(origin))
    return install_command("tls")


def test_an_installation_from_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    assert command_for(clone.as_uri(), monkeypatch) == "pip install 'rtmp-spark[tls]'"  # the project is gone
    (clone / "pyproject.toml").touch()
    assert command_for(clone.as_uri(), monkeypatch) == f"pip install '{clone}[tls]'"
    monkeypatch.chdir(clone)
    assert command_for(clone.as_uri(), monkeypatch) == "pip install '.[tls]'"


def test_other_installations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_for(None, monkeypatch) == "pip install 'rtmp-spark[tls]'"
    assert command_for("https://example.com/rtmp_spark.whl", monkeypatch) == "pip install 'rtmp-spark[tls]'"


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert install_command("tls") == "pip install '.[tls]'"
    assert install_command() == "pip install '.'"
