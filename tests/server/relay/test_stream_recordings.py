"""Recordings stay inside their directory; an unwritable directory does not stop the stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtmp_relay.relay.stream_names import BadName
from rtmp_relay.relay.stream_recordings import record_path, recorder_factory


def test_an_unwritable_directory_gives_no_recorder(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file where the directory should be")
    assert recorder_factory(tmp_path)("live/cam") is None


def test_names_become_files_inside_the_directory(tmp_path: Path) -> None:
    for key in ("live/cam", "live/a b", "live/ünï/x:y", "live/" + "x" * 250):
        path = record_path(tmp_path, key, "-1.flv")
        assert path.resolve().is_relative_to(tmp_path.resolve())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_symlink_to_another_directory_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "live").symlink_to(tmp_path)
    with pytest.raises(BadName):
        record_path(root, "live/cam", ".flv")
