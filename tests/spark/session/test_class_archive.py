"""The class archive: no session waits for it, an incomplete one is never used, a broken one does not stop a session."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtmp_spark.spark.session import class_archive
from rtmp_spark.spark.session.jars import delta_jars


@pytest.fixture
def cache(tmp_path: Path, java: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTMP_SPARK_CACHE", str(tmp_path))
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.setattr(class_archive, "_planned", set())
    return tmp_path


def runs(monkeypatch: pytest.MonkeyPatch, does: Callable[[Path], None]) -> list[str]:
    """`does` replaces the session that writes the archive; the list has an entry for each run."""
    asked: list[str] = []

    def run(command: list[str], **_: Any) -> None:
        asked.append(command[-1])
        does(Path(command[-1].split("'")[1]))

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_first_session_starts_without_and_plans_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Path] = []
    monkeypatch.setattr(class_archive.atexit, "register", lambda _, archive: planned.append(archive))
    jars = [Path("delta.jar")]
    assert class_archive.java_options(jars) == class_archive.java_options(jars) == []
    (archive,) = planned
    archive.touch()
    assert class_archive.java_options(jars) == []
    archive.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_options(jars)
    class_archive.forget(jars)
    assert not archive.exists()


def test_it_appears_complete_and_leftovers_are_deleted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = cache / "classes-new.jsa"
    for name in ("classes-dead.3129", "classes-dead.growing", "classes-dead.none"):
        (cache / name).write_bytes(b"half")
    (cache / "classes-empty.jsa").touch()
    for age in range(5):
        other = cache / f"classes-{age}.jsa"
        other.write_bytes(b"classes")
        os.utime(other, (1e9 - age, 1e9 - age))
    seen: list[bool] = []

    def write(growing: Path) -> None:
        growing.write_bytes(b"classes")
        seen.append(archive.exists())

    asked = runs(monkeypatch, write)
    class_archive.make(str(archive))
    class_archive.make(str(archive))
    assert len(asked) == 1 and seen == [False]
    left = sorted(p.name for p in cache.glob("classes-*"))
    assert left == ["classes-0.jsa", "classes-1.jsa", "classes-new.jsa"]


def test_one_at_a_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = runs(monkeypatch, lambda growing: None)
    with open(cache / "classes.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        class_archive.make(str(cache / "classes-new.jsa"))
    assert asked == []


def test_a_java_that_cannot_create_one_is_asked_again_after_a_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Path] = []
    monkeypatch.setattr(class_archive.atexit, "register", lambda _, archive: planned.append(archive))
    jars = [Path("delta.jar")]
    class_archive.java_options(jars)
    with monkeypatch.context() as patch:
        assert runs(patch, lambda growing: None) == []
        class_archive.make(str(planned[0]))
    monkeypatch.setattr(class_archive, "_planned", set())
    assert class_archive.java_options(jars) == [] and len(planned) == 1
    failures = list(cache.glob("classes-*"))
    assert [p.suffix for p in failures] == [".none"]
    yesterday = time.time() - class_archive.AGAIN_SECONDS - 1
    os.utime(failures[0], (yesterday, yesterday))
    assert class_archive.java_options(jars) == [] and len(planned) == 2


@pytest.mark.slow
@pytest.mark.spark
def test_a_java_that_dies_of_its_archive_is_started_without(java: str, tmp_path: Path) -> None:
    """Java 17 dies if the file is truncated."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(
        f'#!/bin/sh\ncase "$*" in *SharedArchiveFile*) echo died >> {tmp_path}/died; exit 134;; esac\n'
        f'exec {shutil.which("java")} "$@"\n'
    )
    (home / "bin" / "java").chmod(0o755)
    code = (
        "from pathlib import Path\n"
        "from rtmp_spark.spark import start_spark\nfrom rtmp_spark.spark.session import class_archive\n"
        "class_archive._make_later = lambda archive: None\n"
        "from rtmp_spark.spark.session.jars import delta_jars\n"
        "archive = class_archive.archive_path(delta_jars()); archive.write_bytes(b'cut short')\n"
        "print(start_spark('local[1]', small=True).range(3).count(), archive.exists())"
    )
    environment = os.environ | {
        "JAVA_HOME": str(home),
        "RTMP_SPARK_CACHE": str(tmp_path / "cache"),
        "RTMP_SPARK_JARS": str(delta_jars()[0].parent),
        class_archive.VARIABLE: "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True)
    assert done.stdout.split() == ["3", "False"], done.stderr
    assert (tmp_path / "died").read_text().split() == ["died"]
