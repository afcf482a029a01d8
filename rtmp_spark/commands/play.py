"""`rtmp-spark play`: play a stream into an FLV file or to standard output."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.argument_types import amount
from rtmp_spark.commands.options.tls_options import add_client_arguments, client_context
from rtmp_spark.commands.output.output_file import standard_output
from rtmp_spark.commands.output.progress.transfer_progress import transfer_progress, transfer_summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="rtmp://host[:port]/app/name or rtmps://...")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE.flv", help="FLV file to write, or - for standard output"
    )
    parser.add_argument("--duration", type=amount, metavar="S", help="stop after this many seconds")
    parser.add_argument(
        "--handshake",
        choices=("plain", "digest0", "digest1"),
        default="digest1",
        help="handshake scheme (default %(default)s)",
    )
    parser.add_argument("--amf3", action="store_true", help="send commands as AMF3")
    parser.add_argument("--fault", metavar="CODE", help="break this rule; `publish --fault help` lists the rules")
    add_client_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rtmp_relay.client import rtmp_client as client
    from rtmp_relay.client.client_options import ClientOptions
    from rtmp_relay.faults import fault_catalogue

    settings: dict[str, Any] = {
        "duration_s": args.duration,
        "options": ClientOptions(scheme=args.handshake, amf_version=3 if args.amf3 else 0),
        "fault": fault_catalogue.factory(args.fault, "client")(),
        "tls": client_context(args) if args.url.startswith("rtmps:") else None,
        "on_progress": transfer_progress(args.quiet),
    }
    if args.output == "-":
        work = client.play_to_pipe(args.url, standard_output(), **settings)
    else:
        work = client.play_to_file(args.url, Path(args.output), **settings)
    progress = asyncio.run(work)
    if not args.quiet:
        print(transfer_summary("received", progress), file=sys.stderr)
    if progress.ended is not None:
        raise UserError(f"The server closed the stream: {progress.ended}.", "", client.REFUSED)
    if progress.tags == 0:
        raise UserError("No media received.", "Check that the stream is being published.", client.REFUSED)
    return 0
