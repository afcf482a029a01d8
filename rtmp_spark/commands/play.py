"""`rtmp-spark play`: a stream from a server into an FLV file."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.quantities import amount
from rtmp_spark.commands.tls_options import add_client_arguments, client_context


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="rtmp://host[:port]/app/name, or rtmps://")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.flv", help="where to write what is played"
    )
    parser.add_argument("--duration", type=amount, metavar="S", help="stop after this many seconds")
    parser.add_argument(
        "--handshake", choices=("plain", "digest0", "digest1"), default="digest1", help="default %(default)s"
    )
    parser.add_argument("--amf3", action="store_true", help="send commands as AMF3")
    parser.add_argument("--fault", metavar="CODE", help="break this rule on purpose; `publish --fault help` lists them")
    add_client_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rtmp_relay import client, faults
    from rtmp_relay.caller import CallerOptions
    from rtmp_spark.commands.publish import progress_line, summary

    options = CallerOptions(scheme=args.handshake, amf_version=3 if args.amf3 else 0)
    work = client.play_to_file(
        args.url,
        args.output,
        duration_s=args.duration,
        options=options,
        fault=faults.factory(args.fault, "client")(),
        tls=client_context(args) if args.url.startswith("rtmps:") else None,
        on_progress=progress_line(args.quiet),
    )
    progress = asyncio.run(work)
    if not args.quiet:
        print(summary("received", progress), file=sys.stderr)
    if progress.ended is not None:
        raise UserError(f"The server ended it: {progress.ended}.", "", client.REFUSED)
    if progress.tags == 0:
        raise UserError("No media came.", "Is the stream published?", client.REFUSED)
    return 0
