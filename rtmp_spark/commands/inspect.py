"""`rtmp-spark inspect`: connections, messages and findings of captures, in the terminal, without Spark.

One screen for a person; `--table` one table; `--json` JSON Lines with exactly the columns of the tables.
"""

from __future__ import annotations

import argparse
import sys

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.recording_options import (
    add_filter_arguments,
    add_path_argument,
    check_paths,
    exit_code,
    make_settings,
    tell_problems,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_argument(parser)
    parser.add_argument("--table", metavar="NAME", help="print this table: messages, commands, findings, ...")
    parser.add_argument("--json", action="store_true", help="JSON Lines, one row a line")
    parser.add_argument("--keep-payloads", action="store_true", help="fill the table payloads")
    add_filter_arguments(parser)


def table_names() -> tuple[str, ...]:
    from rtmp_spark.capture.recording import ALL_TABLES

    return (*ALL_TABLES, "deliveries", "payloads")


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.capture.recording import Recording
    from rtmp_spark.commands import inspect_output
    from rtmp_spark.commands.progress import BytesRead

    settings = make_settings(args)
    settings.keep_payloads = args.keep_payloads or args.table == "payloads"
    known = table_names()
    tables = known if settings.keep_payloads else known[:-1]
    if args.table is not None:
        if args.table not in known:
            raise UserError(f"There is no table {args.table}.", f"Choose one of {', '.join(known)}.")
        tables = (args.table,)
    elif not args.json:
        tables = inspect_output.SCREEN_TABLES
    paths = check_paths(args.paths)
    progress = BytesRead(paths, args.quiet)
    screen = None
    if args.table is None and not args.json:
        screen = inspect_output.Screen()
        settings.shown, settings.closed = screen.shows, screen.closed
    recording = Recording(paths, settings, tables, progress=progress, identify=screen is None)
    batches = recording.batches()
    if args.json:
        inspect_output.print_json(batches, sys.stdout, with_table=args.table is None)
    elif screen is None:
        inspect_output.print_table(batches, sys.stdout)
    else:
        for table, batch in batches:
            screen.add(table, batch)
        progress.done()
        screen.show(recording)
    progress.done()
    tell_problems(recording.files)
    return exit_code(recording, args)
