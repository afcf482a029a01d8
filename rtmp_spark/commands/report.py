"""`rtmp-spark report`: one self-contained HTML page about captures (without Spark) or about a lake."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import NO_RTMP
from rtmp_spark.commands.options.capture_options import (
    add_filter_arguments,
    add_jobs_argument,
    add_path_argument,
    make_settings,
    refuse_for_lake,
)
from rtmp_spark.commands.options.sensor_files import all_files, files_by_sensor
from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
from rtmp_spark.commands.output.output_file import output_path, whole_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_argument(parser, or_lake=True, with_sensor=True)
    parser.add_argument("--lake", metavar="DIR", help="report about a lake instead of captures")
    parser.add_argument("--master", metavar="URL", help=argparse.SUPPRESS)  # older versions needed Spark
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="where to write the page")
    add_filter_arguments(parser)
    add_jobs_argument(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.paths) == (args.lake is not None):
        raise UserError("Give capture files or a lake.", "For example: rtmp-spark report trace.pcap -o report.html")
    return _from_lake(args) if args.lake is not None else _from_captures(args)


def _from_captures(args: argparse.Namespace) -> int:
    from rtmp_spark.commands.output.progress.progress_line import BytesRead
    from rtmp_spark.report.page import pieces
    from rtmp_spark.report.table_source import DRAWN_COLUMNS, CaptureTables

    captures = files_by_sensor(args)
    target = output_path(args.output, all_files(captures))
    progress = BytesRead(all_files(captures), args.quiet)
    tables = CaptureTables(captures, make_settings(args), columns=DRAWN_COLUMNS, progress=progress)
    progress.done()
    print_file_problems(tables.recording.files)
    code = exit_code(tables.recording, args)
    if not tables.recording.connections:
        return code
    _write(target, pieces(tables, command=_command(args)))
    _print_result(args, target, tables.recording.connections)
    return code


def _from_lake(args: argparse.Namespace) -> int:
    from rtmp_spark.lake.reader import open_lake
    from rtmp_spark.report.lake_tables import LakeTables
    from rtmp_spark.report.page import pieces

    refuse_for_lake(args)
    target = output_path(args.output, [])
    tables = LakeTables(open_lake(args.lake), args.uid)
    connections = tables.rows("connections")
    if not connections and args.uid is not None:
        raise UserError(f"No connection {args.uid} in {args.lake}.", "Without --uid, the page lists all connections.")
    if not connections:
        print(f"rtmp-spark: {args.lake} has no RTMP connections.", file=sys.stderr)
        return NO_RTMP
    _write(target, pieces(tables, uid=args.uid, command=_command(args)))
    _print_result(args, target, len(connections))
    return 0


def _write(target: Path, parts: Iterator[str]) -> None:
    with whole_file(target) as file:
        file.writelines(part.encode("utf-8", "replace") for part in parts)


def _command(args: argparse.Namespace) -> str:
    """The command that makes this page; the value of --stream is left out because it may be a secret."""
    from rtmp_spark.commands.output.tables.json_lines import time_text

    words = ["rtmp-spark", "report", *args.paths]
    for name in ("lake", "uid", "host", "port", "stream", "since", "until", "sensor"):
        value = getattr(args, name)
        if value is None or value == "":
            continue
        if name in ("since", "until"):
            value = time_text(value)
        words += [f"--{name}", "…" if name == "stream" else str(value)]
    for keylog in args.keylog or ():
        words += ["--keylog", str(keylog)]
    if args.keep_secrets:
        words.append("--keep-secrets")
    return shlex.join([*words, "-o", args.output])


def _print_result(args: argparse.Namespace, target: Path, connections: int) -> None:
    if not args.quiet:
        counted = f"{connections:,} connection{'' if connections == 1 else 's'}"
        print(f"{args.output}: {counted}, {target.stat().st_size / 1000:,.0f} kB")
