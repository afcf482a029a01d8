"""Exports of one connection from a notebook. They run the command line, so both write identical files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtmp_spark.codec.errors import UserError

Row = dict[str, Any]


def export_flv(paths: Sequence[str], connection: Row, target: Path) -> list[str]:
    """Run `rtmp-spark extract` and return the paths of the files it wrote."""
    if target.suffix != ".flv":
        target.mkdir(parents=True, exist_ok=True)
    printed = _run("extract", paths, connection, target)
    return [line.rpartition(".flv: ")[0] + ".flv" for line in printed.splitlines() if ".flv: " in line]


def export_pcap(paths: Sequence[str], connection: Row, target: Path) -> str:
    """Run `rtmp-spark slice` and return the path of the file it wrote."""
    _run("slice", paths, connection, target)
    return str(target)


def _run(command: str, paths: Sequence[str], connection: Row, target: Path) -> str:
    wanted = [*paths, "--uid", connection["uid"], "-o", str(target)]
    if connection["sensor"]:
        wanted += ["--sensor", connection["sensor"]]
    call = [sys.executable, "-m", "rtmp_spark.cli", command, *wanted]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(done.stderr.strip().removeprefix("rtmp-spark: ") or f"Nothing was written to {target}.", "")
    return done.stdout
