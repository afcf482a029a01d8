"""Exports of one connection: the ways of `rtmp-spark extract` and `rtmp-spark slice`, for a notebook."""

from __future__ import annotations

import contextlib
import io
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rtmp_spark.codec.errors import UserError

Row = dict[str, Any]


def export_flv(paths: Sequence[str], connection: Row, target: Path) -> list[str]:
    """The files written."""
    from rtmp_spark.commands import extract

    if target.suffix != ".flv":
        target.mkdir(parents=True, exist_ok=True)
    told = _run(extract, paths, connection, target)
    return [line.rpartition(".flv: ")[0] + ".flv" for line in told.splitlines() if ".flv: " in line]


def export_pcap(paths: Sequence[str], connection: Row, target: Path) -> str:
    from rtmp_spark.commands import slice as slicing

    _run(slicing, paths, connection, target)
    return str(target)


def _run(command: ModuleType, paths: Sequence[str], connection: Row, target: Path) -> str:
    parser = ArgumentParser()
    command.add_arguments(parser)
    wanted = [*paths, "--uid", connection["uid"], "-o", str(target)]
    if connection["sensor"]:
        wanted += ["--sensor", connection["sensor"]]
    args: Namespace = parser.parse_args(wanted)
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        code = command.run(args)
    if code:
        raise UserError(complained.getvalue().strip() or f"Nothing was written to {target}.", "")
    return said.getvalue()
