"""`rtmp-spark inspect`: connections, messages and findings of captures, in the terminal, without Spark.

By default it prints a screen for people, with `--table` one table, with `--json` the tables as JSON Lines.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.argument_types import count, parse_names
from rtmp_spark.commands.options.capture_options import (
    add_filter_arguments,
    add_jobs_argument,
    add_path_argument,
    make_settings,
)
from rtmp_spark.commands.options.sensor_files import all_files, files_by_sensor

if TYPE_CHECKING:
    from rtmp_spark.analysis.recording import LiveFiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path_argument(parser, with_sensor=True)
    parser.add_argument("-v", "--verbose", action="store_true", help="details of every connection, and all verdicts")
    parser.add_argument("--table", metavar="NAME", help="print only this table: connections, messages, findings, ...")
    parser.add_argument(
        "--columns", type=parse_names, metavar="A,B", help="with --table: only these columns, in this order"
    )
    parser.add_argument("--where", metavar="SQL", help="with --table: only rows for which this condition is true")
    parser.add_argument("--limit", type=count, metavar="N", help="with --table: at most this many rows")
    parser.add_argument("--follow", action="store_true", help="wait for more packets at the end of FILE, until Ctrl-C")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON Lines, one row per line")
    form.add_argument("--csv", action="store_true", help="with --table: print CSV with a header line")
    parser.add_argument("--keep-payloads", action="store_true", help="include the table payloads")
    add_filter_arguments(parser)
    add_jobs_argument(parser)


def table_names() -> tuple[str, ...]:
    from rtmp_spark.analysis.recording import ALL_TABLES

    return (*ALL_TABLES, "deliveries", "paths", "payloads")


def run(args: argparse.Namespace) -> int:
    from rtmp_spark.analysis.recording import LiveFiles
    from rtmp_spark.analysis.sensor_recordings import SensorRecordings
    from rtmp_spark.commands.output.capture_outcome import exit_code, print_file_problems
    from rtmp_spark.commands.output.inspect_screen import SCREEN_TABLES, InspectScreen
    from rtmp_spark.commands.output.progress.progress_line import BytesRead
    from rtmp_spark.commands.output.tables.json_lines import print_json
    from rtmp_spark.commands.output.tables.table_output import check_columns, print_chosen
    from rtmp_spark.views import VIEWS

    settings = make_settings(args)
    settings.keep_payloads = args.keep_payloads or args.table == "payloads"
    settings.in_order = args.json or args.table is not None
    known = table_names()
    tables = known if settings.keep_payloads else known[:-1]
    if args.table is not None:
        if args.table not in known:
            if args.table in VIEWS:
                remedy = f"Use: rtmp-spark sql 'SELECT * FROM {args.table}' FILE"
                raise UserError(f"{args.table} is a view, not a table.", remedy)
            raise UserError(f"Unknown table {args.table}.", f"Choose one of {', '.join(known)}.")
        check_columns(args.table, args.columns or ())
        tables = (args.table,)
    elif args.columns or args.where is not None or args.limit is not None or args.csv:
        raise UserError("--columns, --where, --limit and --csv need --table.", "For example: --table findings --csv")
    elif not args.json:
        tables = SCREEN_TABLES
    captures = files_by_sensor(args)
    paths = all_files(captures)
    if args.follow and len(paths) > 1:
        raise UserError("--follow reads a single file.", "Name one file.")
    source = LiveFiles(follow=args.follow)
    progress = BytesRead(paths, args.quiet or args.follow)
    screen = None
    if args.table is None and not args.json:
        screen = InspectScreen(verbose=args.verbose, before_printing=progress.done)
    recording = SensorRecordings(
        captures, settings, tables, progress=progress, observer=screen, identify=screen is None, source=source
    )
    if args.follow or paths == ["-"]:
        _stop_at_interrupt(source)
    batches = recording.batches()
    if args.table is not None:
        print_chosen(batches, args.table, args)
    elif screen is None:
        print_json(batches, sys.stdout, with_table=True)
    else:
        for table, batch in batches:
            screen.add(table, batch)
        progress.done()
        screen.show(recording)
    progress.done()
    print_file_problems(recording.files, damage=screen is None)  # the screen has the finding
    return exit_code(recording, args)


def _stop_at_interrupt(source: LiveFiles) -> None:
    """Let Ctrl-C end the capture instead of the command, so that the results are printed; a second one ends the
    command."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        if not source.stop():
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before == signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
