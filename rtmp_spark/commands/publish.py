"""`rtmp-spark publish`: publish an FLV file or synthetic media, optionally with a fault."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.tls_options import add_client_arguments, client_context
from rtmp_spark.commands.output.progress.transfer_progress import transfer_progress, transfer_summary

if TYPE_CHECKING:
    from rtmp_relay.client.rtmp_client import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "an FLV file, or synthetic[:seconds=5,fps=25,...] for synthetic media"
    parser.add_argument("source", nargs="?", metavar="FILE.flv", help=what)
    parser.add_argument("url", nargs="?", metavar="URL", help="rtmp://host[:port]/app/name or rtmps://...")
    parser.add_argument(
        "--speed", default="1", metavar="X", help="1 for real time (default), max for as fast as possible"
    )
    parser.add_argument(
        "--chunk-size", type=int, default=4096, metavar="N", help="chunk size of sent messages (%(default)s)"
    )
    parser.add_argument("--window", type=int, metavar="N", help="announce this acknowledgement window")
    parser.add_argument(
        "--handshake",
        choices=("plain", "digest0", "digest1"),
        default="digest1",
        help="handshake scheme (default %(default)s)",
    )
    parser.add_argument("--amf3", action="store_true", help="send commands as AMF3")
    parser.add_argument("--fault", metavar="CODE", help="break this rule; `--fault help` lists the rules")
    add_client_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rtmp_relay.client import rtmp_client as client
    from rtmp_relay.client.client_options import ClientOptions
    from rtmp_relay.faults import fault_catalogue

    if args.fault == "help":
        print(fault_catalogue.listing("client"))
        return 0
    if args.source is None or args.url is None:
        raise UserError("Give a source and a URL.", "For example: rtmp-spark publish movie.flv rtmp://host/app/name")
    if args.source.partition(":")[0] != "synthetic":
        _check_file(Path(args.source))
    speed = _speed(args.speed)
    if not 1 <= args.chunk_size <= 0xFFFFFF:
        raise UserError(f"Invalid chunk size {args.chunk_size}.", "Use 1 to 16777215; 4096 is common.")
    options = ClientOptions(
        scheme=args.handshake, chunk_size=args.chunk_size, window=args.window, amf_version=3 if args.amf3 else 0
    )
    fault = fault_catalogue.factory(args.fault, "client")()
    tags = client.source_tags(args.source)
    work = client.publish(
        args.url,
        tags,
        speed=speed,
        options=options,
        fault=fault,
        tls=client_context(args) if args.url.startswith("rtmps:") else None,
        on_progress=transfer_progress(args.quiet),
    )
    try:
        progress = asyncio.run(
            _with_second_publisher(work, args.url) if isinstance(fault, fault_catalogue.SecondPublisher) else work
        )
    except client.Refused:
        if args.fault is None:
            raise
        print(f"{args.fault}: sent; the server closed the connection", file=sys.stderr)
        return 0
    if progress.ended is not None and args.fault is None:
        raise UserError(
            f"The server closed the stream after {progress.tags} tags: {progress.ended}.", "", client.REFUSED
        )
    if not args.quiet:
        print(transfer_summary("published", progress), file=sys.stderr)
    return 0


def _check_file(path: Path) -> None:
    from rtmp_relay.client.flv_file_check import check_flv_file

    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise UserError(f"{path} {what}.", "Give an FLV file, or `synthetic`.")
    warning = check_flv_file(path)
    if warning is not None:
        print(f"rtmp-spark: {warning}", file=sys.stderr)


async def _with_second_publisher(work: Coroutine[object, object, Progress], url: str) -> Progress:
    from rtmp_relay.client import rtmp_client as client

    progress, words = await asyncio.gather(work, client.try_second_publisher(url))
    print(f"second publisher: {words}", file=sys.stderr)
    return progress


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if speed <= 0:
        raise UserError(f"Invalid speed {text!r}.", "Use 1, 2.5 or max.")
    return speed
