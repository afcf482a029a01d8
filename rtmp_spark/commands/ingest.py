"""`rtmp-spark ingest`: decode captures into the Delta tables of a lake. options/ingest_options.py has its options.

`--follow` repeats this for every file of a directory that is complete.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.capture_options import load_keylog
from rtmp_spark.commands.options.ingest_options import add_ingest_arguments, ingest_options
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal

if TYPE_CHECKING:
    from rtmp_spark.ingest.captures.capture_paths import CaptureFile
    from rtmp_spark.ingest.ingest_summary import Summary
    from rtmp_spark.spark.cancellable import Stop

CORE_SECONDS_PER_GB = 8  # docs/scale.md
SMALL_BYTES = 8 << 30  # below this, Java's optimising compiler costs more time than its code saves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_ingest_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not args.paths and not args.follow:
        raise UserError("No captures given.", "Name files or directories, or use --follow DIR.")
    load_keylog(args)  # reports an invalid key log before Spark starts
    from rtmp_spark.ingest.captures.capture_paths import list_captures
    from rtmp_spark.spark.cancellable import Stop, run_stoppable

    files = list_captures(args.paths)
    if args.paths and not files and not args.follow:
        remedy = "In a directory, captures are named *.pcap, *.pcapng or *.cap, optionally with .gz or .zst."
        raise UserError(f"No captures found in {', '.join(args.paths)}.", remedy)
    stop = Stop()
    return run_stoppable(stop, partial(_with_spark, args, files, stop))


def _with_spark(args: argparse.Namespace, files: Sequence[CaptureFile], stop: Stop) -> int:
    from rtmp_spark.spark.cancellable import Stopped
    from rtmp_spark.spark.session.early_imports import import_early
    from rtmp_spark.spark.session.spark_session import is_own_session, start_spark

    if not args.quiet:
        print("rtmp-spark: Starting Spark ...", file=sys.stderr)
    small = sum(f.size_bytes for f in files) < SMALL_BYTES and not args.follow
    import_early()
    try:
        spark = stop.spark = start_spark(args.master, small=small, delta=False)
    except Exception:
        if stop.is_set():  # the signal also reached the scripts that start Java
            raise Stopped(landed=False) from None
        raise
    ends_with_this_process = is_own_session(spark)
    try:
        code = 0
        if args.paths:
            code = _once(args, files, stop)
        if args.follow:
            code = max(code, follow(args, stop))
        return code
    finally:
        if not ends_with_this_process:  # for our own Java `stop` would only wait a second for a thread of pyspark
            spark.stop()


def _once(args: argparse.Namespace, paths: Iterable[str | CaptureFile], stop: Stop) -> int:
    from rtmp_spark.commands.output.progress.progress_display import progress_display
    from rtmp_spark.spark.cancellable import Stopped
    from rtmp_spark.spark.pipeline import ingest

    assert stop.spark is not None
    with progress_display(args.quiet) as progress:
        summary = ingest(
            stop.spark,
            paths,
            args.lake,
            ingest_options(args),
            progress=progress,
            stop=stop,
        )
    if args.json:
        print(json.dumps({"exit_code": summary.exit_code, **summary.as_dict()}))
    else:
        print_summary(summary, args.dry_run)
    if stop.is_set():
        raise Stopped(landed=True)
    return summary.exit_code


def print_summary(summary: Summary, dry_run: bool) -> None:
    """Ingested files, row counts, skipped and failed files with reasons, and the time of each phase."""
    if dry_run:
        print(f"{len(summary.ingested)} of {summary.files} files would be ingested, in {summary.splits} splits:")
        for number, planned in enumerate(summary.planned, 1):
            size, seconds = f"{planned.bytes / 1e6:.1f} MB", round(planned.bytes / 1e9 * CORE_SECONDS_PER_GB)
            estimate = f", about {seconds} core seconds" if seconds else ""
            print(f"  round {number}: {planned.files} files, {size}, {planned.splits} splits{estimate}")
        for path in summary.ingested:
            print(escape_for_terminal(f"  {path}"))
        return
    size = f"{summary.bytes / 1e6:.1f} MB"
    print(f"{len(summary.ingested)} of {summary.files} files ({size}) ingested into {summary.lake}")
    print(f"  connections: {summary.connections} ({summary.resumed} continued from earlier captures)")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(summary.rows.items()) if count)
    print(f"  rows: {counts or 'none'}")
    for number, part in enumerate(summary.rounds if len(summary.rounds) > 1 else (), 1):
        print(f"  round {number}: {part.files} files, {part.connections} connections, {part.seconds:.1f} s")
    for label, paths in (
        ("already ingested (--redo decodes them again)", summary.known),
        ("duplicates of another capture", summary.duplicates),
        ("grown since the last ingest, decoded again", summary.grown),
        ("not named, but decoded again because they hold parts of the same connections", summary.joined),
    ):
        if paths:
            print(f"  {label}: {len(paths)}")
    for path, reason in summary.partial:
        print(escape_for_terminal(f"  damaged: {path}: {reason}"))
    for path, reason in summary.failed:
        print(escape_for_terminal(f"  failed: {path}: {reason}"), file=sys.stderr)
    for text in summary.crashed:
        print(f"  skipped: {text}", file=sys.stderr)
    for text in summary.incomplete:
        print(escape_for_terminal(f"  incomplete: {text}"), file=sys.stderr)
    for text in summary.late:
        print(escape_for_terminal(f"  late: {text}"), file=sys.stderr)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in summary.seconds.items())
    print(f"  {times}")


def follow(args: argparse.Namespace, stop: Stop) -> int:
    """Ingest completed files until interrupted. The ledger skips files that were ingested before."""
    from rtmp_spark.ingest.captures.capture_paths import QUIET_SECONDS, closed_files, list_captures

    done: set[CaptureFile] = set()  # with size and time: a capture tool may reuse a name
    code = 0
    while not stop.is_set():
        closed = closed_files(list_captures([args.follow]), args.settle, time.time())
        fresh = [file.path for file in closed if file not in done]
        if fresh:
            code = max(code, _once(args, fresh, stop))
        done = set(closed)
        stop.wait(min(args.settle, QUIET_SECONDS))
    return code
