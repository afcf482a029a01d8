"""`rtmp-spark report`: one self-contained HTML page about captures, without Spark, or about a lake."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.output_file import output_path, whole_file
from rtmp_spark.commands.recording_options import (
    NO_RTMP,
    add_filter_arguments,
    check_paths,
    exit_code,
    make_settings,
    refuse_for_lake,
    tell_problems,
)

if TYPE_CHECKING:
    from rtmp_spark.spark.stoppable import Stop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FILE", help="pcap or pcapng, plain, gzip or zstd")
    parser.add_argument("--lake", metavar="DIR", help="a lake instead of captures")
    parser.add_argument("--master", metavar="URL", help="Spark master, for a lake")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="where to write the page")
    add_filter_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.paths) == (args.lake is not None):
        raise UserError("A report is about captures or about a lake.", "Give files, or --lake DIR.")
    target = output_path(args.output, args.paths)
    return _from_lake(args, target) if args.lake is not None else _from_captures(args, target)


def _from_captures(args: argparse.Namespace, target: Path) -> int:
    from rtmp_spark.commands.progress import BytesRead
    from rtmp_spark.report.page import pieces
    from rtmp_spark.report.source import DRAWN_COLUMNS, CaptureTables

    paths = check_paths(args.paths)
    progress = BytesRead(paths, args.quiet)
    tables = CaptureTables(paths, make_settings(args), columns=DRAWN_COLUMNS, progress=progress)
    progress.done()
    tell_problems(tables.recording.files)
    code = exit_code(tables.recording, args)
    if not tables.recording.connections:
        return code
    _write(target, pieces(tables, command=_command(args)))
    _tell(args, target, tables.recording.connections)
    return code


def _from_lake(args: argparse.Namespace, target: Path) -> int:
    from rtmp_spark.spark.stoppable import Stop, run_stoppable

    refuse_for_lake(args)
    stop = Stop()
    return run_stoppable(stop, partial(_with_spark, args, target, stop))


def _with_spark(args: argparse.Namespace, target: Path, stop: Stop) -> int:
    from rtmp_spark.report.page import pieces
    from rtmp_spark.spark import Lake
    from rtmp_spark.spark.connection import LakeTables
    from rtmp_spark.spark.session import start_spark_for

    def tell(what: str) -> None:
        if sys.stderr.isatty() and not args.quiet:
            print(f"rtmp-spark: {what}", file=sys.stderr)

    tell("Spark starts")
    stop.spark = start_spark_for(args.lake, args.master)
    tables = LakeTables(Lake(stop.spark, args.lake), args.uid, tell)
    connections = tables.rows("connections")
    if not connections and args.uid is not None:
        raise UserError(f"There is no connection {args.uid} in this lake.", "Without --uid the page lists them.")
    if not connections:
        print(f"rtmp-spark: no RTMP in {args.lake}.", file=sys.stderr)
        return NO_RTMP
    _write(target, pieces(tables, uid=args.uid, command=_command(args)))
    _tell(args, target, len(connections))
    return 0


def _write(target: Path, parts: Iterator[str]) -> None:
    with whole_file(target) as file:
        file.writelines(part.encode("utf-8", "replace") for part in parts)


def _command(args: argparse.Namespace) -> str:
    """What makes this page again; the name of a stream may be a secret."""
    from rtmp_spark.commands.inspect_output import time_text

    words = ["rtmp-spark", "report", *args.paths]
    for name in ("lake", "uid", "host", "port", "stream", "since", "until", "sensor"):
        value = getattr(args, name)
        if value is None or value == "":
            continue
        if name in ("since", "until"):
            value = time_text(value)
        words += [f"--{name}", "…" if name == "stream" else str(value)]
    return shlex.join([*words, "-o", args.output])


def _tell(args: argparse.Namespace, target: Path, connections: int) -> None:
    if not args.quiet:
        counted = f"{connections:,} connection{'' if connections == 1 else 's'}"
        print(f"{args.output}: {counted}, {target.stat().st_size / 1000:,.0f} kB")
