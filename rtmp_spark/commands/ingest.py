"""`rtmp-spark ingest`: captures into the Delta tables of a lake.

Arguments, a session, one call, a summary. `--follow` is this in a loop over files that are closed.
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
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.commands.quantities import amount, size
from rtmp_spark.commands.recording_options import add_keylog_argument, load_keylog, parse_host, parse_port, parse_time

if TYPE_CHECKING:
    from rtmp_spark.spark.paths import CaptureFile
    from rtmp_spark.spark.stoppable import Stop
    from rtmp_spark.spark.summary import Summary

SMALL_BYTES = 8 << 30  # up to here Java's slow compiler takes more time than its better code gives back


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="captures: files, directories, globs or URIs")
    parser.add_argument("--lake", required=True, metavar="DIR", help="where the tables are; made when it is not there")
    parser.add_argument("--keep-payloads", action="store_true", help="keep the bytes of messages in their own table")
    parser.add_argument("--keep-secrets", action="store_true", help="keep stream keys, tokens and passwords readable")
    parser.add_argument(
        "--sensor", default="", metavar="NAME", help="where the captures were recorded; part of the uid"
    )
    parser.add_argument("--port", type=parse_port, metavar="N", help="only connections from or to this port")
    parser.add_argument("--host", type=parse_host, metavar="ADDRESS", help="only connections from or to this address")
    parser.add_argument("--since", type=parse_time, metavar="TIME", help="from this time on (2026-01-31T12:00:00, UTC)")
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="up to this time")
    add_keylog_argument(parser)
    parser.add_argument(
        "--split-size",
        type=size,
        default=64 << 20,
        metavar="SIZE",
        help="cut captures into byte ranges of this size (64MB)",
    )
    parser.add_argument("--master", metavar="URL", help="Spark master; by default all cores of this machine")
    parser.add_argument("--redo", action="store_true", help="decode captures of the lake again and replace their rows")
    parser.add_argument("--verify", action="store_true", help="read files that the ledger knows by path, size and time")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and do nothing")
    parser.add_argument(
        "--follow", metavar="DIR", help="ingest files of this directory as they are closed, until stopped"
    )
    parser.add_argument(
        "--settle",
        type=amount,
        default=10.0,
        metavar="S",
        help="with --follow: a file unchanged for so many seconds is closed (10)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    if not args.paths and not args.follow:
        raise UserError("No capture was named.", "Give files or directories, or --follow DIR.")
    load_keylog(args)  # what is wrong with it is told before Spark starts
    from rtmp_spark.spark.paths import list_captures
    from rtmp_spark.spark.stoppable import Stop, run_stoppable

    files = list_captures(args.paths)
    if args.paths and not files and not args.follow:
        remedy = "In a directory they are files named *.pcap, *.pcapng or *.cap, with .gz or .zst too."
        raise UserError(f"There are no captures in {', '.join(args.paths)}.", remedy)
    stop = Stop()
    return run_stoppable(stop, partial(_with_spark, args, files, stop))


def _with_spark(args: argparse.Namespace, files: Sequence[CaptureFile], stop: Stop) -> int:
    from rtmp_spark.spark.session import start_spark
    from rtmp_spark.spark.stoppable import Stopped

    if not args.quiet:
        print("rtmp-spark: Spark starts", file=sys.stderr)
    small = sum(f.size_bytes for f in files) < SMALL_BYTES and not args.follow
    try:
        spark = stop.spark = start_spark(args.master, small=small)
    except Exception:
        if stop.is_set():  # the programs that start Java got the signal too
            raise Stopped(landed=False) from None
        raise
    try:
        code = 0
        if args.paths:
            code = _once(args, [f.path for f in files], stop)
        if args.follow:
            code = max(code, follow(args, stop))
        return code
    finally:
        spark.stop()


def _once(args: argparse.Namespace, paths: Iterable[str], stop: Stop) -> int:
    from rtmp_spark.commands.ingest_progress import shown
    from rtmp_spark.spark.pipeline import ingest
    from rtmp_spark.spark.stoppable import Stopped

    assert stop.spark is not None
    with shown(args.quiet) as progress:
        summary = ingest(
            stop.spark,
            paths,
            args.lake,
            sensor=args.sensor,
            keep_payloads=args.keep_payloads,
            keep_secrets=args.keep_secrets,
            host=args.host,
            port=args.port,
            since=args.since,
            until=args.until,
            keylog=load_keylog(args),
            split_bytes=args.split_size,
            redo=args.redo,
            verify=args.verify,
            dry_run=args.dry_run,
            progress=progress,
            stop=stop,
        )
    if args.json:
        print(json.dumps(summary.as_dict()))
    else:
        show(summary, args.dry_run)
    if stop.is_set():
        raise Stopped(landed=True)
    return summary.exit_code


def show(summary: Summary, dry_run: bool) -> None:
    """What landed, what was skipped, what failed and why, how long it took."""
    if dry_run:
        print(f"{len(summary.ingested)} of {summary.files} files would be read, in {summary.splits} pieces:")
        for path in summary.ingested:
            print(harmless(f"  {path}"))
        return
    size = f"{summary.bytes / 1e6:.1f} MB"
    print(f"{len(summary.ingested)} of {summary.files} files ({size}) ingested into {summary.lake}")
    print(f"  connections {summary.connections}, of these {summary.resumed} went on from earlier captures")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(summary.rows.items()) if count)
    print(f"  rows: {counts or 'none'}")
    for word, paths in (
        ("known already (--redo decodes them again)", summary.known),
        ("same content as another capture", summary.duplicates),
        ("grown since they were ingested, and decoded again", summary.grown),
        ("of these not named, but decoded again as they hold parts of the same connections", summary.joined),
    ):
        if paths:
            print(f"  {word}: {len(paths)}")
    for path, reason in summary.partial:
        print(harmless(f"  damaged: {path}: {reason}"))
    for path, reason in summary.failed:
        print(harmless(f"  failed: {path}: {reason}"), file=sys.stderr)
    for text in summary.crashed:
        print(f"  left out: {text}", file=sys.stderr)
    for text in summary.late:
        print(harmless(f"  late: {text}"), file=sys.stderr)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in summary.seconds.items())
    print(f"  {times}")


def follow(args: argparse.Namespace, stop: Stop) -> int:
    """Ingest closed files until interrupted; every round subtracts what the ledger knows."""
    from rtmp_spark.spark.paths import QUIET_SECONDS, closed_files, list_captures

    done: set[CaptureFile] = set()  # as they were: a recorder may use a name again
    code = 0
    while not stop.is_set():
        closed = closed_files(list_captures([args.follow]), args.settle, time.time())
        fresh = [file.path for file in closed if file not in done]
        if fresh:
            code = max(code, _once(args, fresh, stop))
        done = set(closed)
        stop.wait(min(args.settle, QUIET_SECONDS))
    return code
