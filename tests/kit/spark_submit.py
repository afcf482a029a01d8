"""The scripts of jobs/ under spark-submit, where driver and executors get this package from its zip alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from kit.separate_ingest import QUICK_JAVA

import rtmp_spark

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent / "bin"
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("AWS_")}


def make_package(directory: Path) -> Path:
    """The zip for --py-files, with what is in the wheel."""
    source = Path(rtmp_spark.__file__).parent
    with zipfile.ZipFile(directory / "rtmp_spark.zip", "w") as archive:
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("rtmp_spark") / path.relative_to(source))
    return directory / "rtmp_spark.zip"


def make_python(directory: Path) -> Path:
    """A Python with everything that is installed except this package, which is installed by reference."""
    program = directory / "python"
    libraries = sysconfig.get_path("purelib")
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    command = [str(program), "-c", "import rtmp_spark"]
    if subprocess.run(command, env=ELSEWHERE, capture_output=True, cwd=directory).returncode == 0:
        pytest.skip("this package is installed as a copy")
    return program


@dataclass(frozen=True)
class Submitter:
    """Starts spark-submit in a directory of its own."""

    directory: Path
    package: Path
    python: Path

    def start(
        self,
        script: str | Path,
        *arguments: str,
        master: str,
        jars: Sequence[Path] = (),
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """`script` is one of jobs/, or a path."""
        settings = {
            "spark.master": master,
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            **(conf or {}),
        }
        options = [word for key, value in settings.items() if value for word in ("--conf", f"{key}={value}")]
        program = str(SPARK / "spark-submit")
        command = [program, *options, "--py-files", str(self.package), str(ROOT / "jobs" / script), *arguments]
        own = {"PYSPARK_PYTHON": str(self.python), "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})}
        pipe = subprocess.PIPE
        everything = ELSEWHERE | QUICK_JAVA | own
        return subprocess.Popen(command, env=everything, cwd=self.directory, text=True, stdout=pipe, stderr=pipe)

    def run(self, script: str | Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        started = self.start(script, *arguments, **options)  # type: ignore[arg-type]
        return finished(started)


def finished(started: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Its result. spark-submit prints both outputs of the script to `stdout`, and Spark's log to `stderr`."""
    out, err = started.communicate(timeout=900)
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)
