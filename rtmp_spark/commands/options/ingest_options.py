"""The arguments of `rtmp-spark ingest`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rtmp_spark.commands.options.argument_types import amount, count, size
from rtmp_spark.commands.options.capture_options import add_connection_filters, add_keylog_argument, load_keylog

if TYPE_CHECKING:
    from rtmp_spark.ingest.options import IngestOptions


def add_ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="captures: files, directories, globs or URIs")
    parser.add_argument("--lake", required=True, metavar="DIR", help="directory of the tables; created if missing")
    parser.add_argument("--keep-payloads", action="store_true", help="store message payloads in the table payloads")
    parser.add_argument("--keep-secrets", action="store_true", help="do not redact stream keys, tokens and passwords")
    parser.add_argument(
        "--sensor", default="", metavar="NAME", help="where the captures were taken; it is part of each uid"
    )
    add_connection_filters(parser)
    add_keylog_argument(parser)
    parser.add_argument(
        "--split-size",
        type=size,
        default=64 << 20,
        metavar="SIZE",
        help="split captures into byte ranges of this size (64MB)",
    )
    parser.add_argument(
        "--round-size",
        type=size,
        metavar="SIZE",
        help="publish after about this many bytes of captures (2GB for each core)",
    )
    parser.add_argument("--master", metavar="URL", help="Spark master (default: all cores of this machine)")
    parser.add_argument(
        "--cores", type=count, metavar="N", help="plan for this many cores (default: as many as the cluster offers)"
    )
    parser.add_argument("--redo", action="store_true", help="decode captures of the lake again and replace their rows")
    parser.add_argument(
        "--verify", action="store_true", help="re-read files even if path, size and modification time match"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")
    parser.add_argument(
        "--follow", metavar="DIR", help="ingest the files of this directory as they are completed, until interrupted"
    )
    parser.add_argument(
        "--settle",
        type=amount,
        default=10.0,
        metavar="S",
        help="with --follow: a file is complete after this many seconds without a change (10)",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def ingest_options(args: argparse.Namespace) -> IngestOptions:
    """The options that reach the pipeline and its executors."""
    from rtmp_spark.ingest.options import IngestOptions

    return IngestOptions(
        sensor=args.sensor,
        keep_payloads=args.keep_payloads,
        keep_secrets=args.keep_secrets,
        host=args.host,
        port=args.port,
        since=args.since,
        until=args.until,
        keylog=load_keylog(args).dump(),
        split_bytes=args.split_size,
        round_bytes=args.round_size,
        cores=args.cores,
        redo=args.redo,
        verify=args.verify,
        dry_run=args.dry_run,
    )
