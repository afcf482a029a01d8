"""A class-data archive that shortens the start of a local session (200 MB in the cache directory).

No caller waits for it: a session without an archive starts without it, and when its process ends, a background process
of the lowest priority creates the archive for later sessions. A file lock, which the kernel frees when its holder dies,
lets one process do so at a time, and an archive gets its final name only when it is complete. An archive belongs to one
Java and one class path; of archives that are no longer used the oldest are deleted. RTMP_SPARK_CLASS_ARCHIVE=0 turns
all of this off.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from .jars import cache_directory, check_java
from .java_process import spark_home

VARIABLE = "RTMP_SPARK_CLASS_ARCHIVE"
KEPT = 3  # archives, for other Java versions and other environments
SECONDS = 600
AGAIN_SECONDS = 86_400  # after a failure
_planned: set[Path] = set()


def java_options(jars: list[Path]) -> list[str]:
    """The options that use the archive; none if it does not exist yet, but then it is created after this process."""
    if os.environ.get(VARIABLE, "1") == "0":
        return []
    archive = archive_path(jars)
    if not _is_whole(archive):
        if archive not in _planned and not _failed_lately(archive):
            _planned.add(archive)
            atexit.register(_make_later, archive)
        return []
    with suppress(OSError):
        os.utime(archive)  # in use
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]


def forget(jars: list[Path]) -> None:
    """Delete an archive with which a session did not start."""
    with suppress(OSError):
        archive_path(jars).unlink()


def archive_path(jars: list[Path]) -> Path:
    home, spark = os.environ.get("JAVA_HOME"), spark_home()
    version = check_java(Path(home, "bin", "java") if home else Path("java"))
    release = (spark / "version.py").read_text()
    key = hashlib.sha256("\n".join([version, release, str(spark), *map(str, jars)]).encode())
    return cache_directory() / f"classes-{key.hexdigest()[:12]}.jsa"


def _failure(archive: Path) -> Path:
    """A file that says when the archive could not be created."""
    return archive.with_suffix(".none")


def _failed_lately(archive: Path) -> bool:
    """Whether this Java could not create an archive within the last day; the machine may only have been too busy."""
    try:
        return time.time() - _failure(archive).stat().st_mtime < AGAIN_SECONDS
    except OSError:
        return False


def _is_whole(file: Path) -> bool:
    return file.suffix == ".jsa" and file.exists() and file.stat().st_size > 0


def _make_later(archive: Path) -> None:
    run = f"import os; os.nice(19); from rtmp_spark.spark.session.class_archive import make; make({str(archive)!r})"
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-c", run],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def make(name: str) -> None:
    """Create the archive unless it exists or another process is creating it; delete leftovers of earlier ones."""
    archive = Path(name)
    with open(archive.with_name("classes.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _sweep(archive)
        if _is_whole(archive):
            return
        growing = archive.with_suffix(".growing")
        run = [
            sys.executable,
            "-c",
            f"from rtmp_spark.spark.session.class_archive_warm_up import warm_up; warm_up({str(growing)!r})",
        ]
        without = os.environ | {VARIABLE: "0"}
        try:
            # Java inherits the pipes of its output, so this returns when Java has ended too.
            subprocess.run(run, env=without, capture_output=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return  # a later session tries again
        if growing.exists() and growing.stat().st_size:
            growing.replace(archive)
        else:
            _failure(archive).touch()


def _sweep(archive: Path) -> None:
    """Under the lock: delete incomplete archives, whose creator died, and all but the last used archives."""
    files = list(archive.parent.glob("classes-*"))
    whole = [f for f in files if _is_whole(f)]
    old = sorted(whole, key=lambda f: f.stat().st_mtime, reverse=True)[KEPT:]
    for file in {*files} - {*whole} - {_failure(archive)} | {*old}:
        with suppress(OSError):
            file.unlink()
