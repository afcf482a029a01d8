"""`rtmp-spark publish`: an FLV file, or media made on the spot, to a server; keeping or breaking the rules."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.tls_options import add_client_arguments, client_context

if TYPE_CHECKING:
    from rtmp_relay.client import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "an FLV file, or synthetic[:seconds=5,fps=25,...] for media made on the spot"
    parser.add_argument("source", nargs="?", metavar="FILE.flv", help=what)
    parser.add_argument("url", nargs="?", metavar="URL", help="rtmp://host[:port]/app/name, or rtmps://")
    parser.add_argument("--speed", default="1", metavar="X", help="1 is real time (default), max as fast as it goes")
    parser.add_argument("--chunk-size", type=int, default=4096, metavar="N", help="default %(default)s")
    parser.add_argument("--window", type=int, metavar="N", help="announce this acknowledgement window")
    parser.add_argument(
        "--handshake", choices=("plain", "digest0", "digest1"), default="digest1", help="default %(default)s"
    )
    parser.add_argument("--amf3", action="store_true", help="send commands as AMF3")
    parser.add_argument("--fault", metavar="CODE", help="break this rule on purpose; `--fault help` lists them")
    add_client_arguments(parser)


def progress_line(quiet: bool) -> Callable[[Progress], None]:
    """Once a second to a terminal, never to a file."""
    last = [0.0]

    def show(progress: Progress) -> None:
        now = time.monotonic()
        if not quiet and sys.stderr.isatty() and now - last[0] >= 1:
            last[0] = now
            late = f", {progress.behind_ms} ms late" if progress.behind_ms > 100 else ""
            text = f"{progress.media_ms / 1000:8.1f} s  {progress.tags} tags  {progress.bytes / 1e6:.1f} MB{late}"
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    return show


def summary(verb: str, progress: Progress) -> str:
    return f"{verb} {progress.tags} tags, {progress.bytes} bytes, {progress.media_ms / 1000:.1f} s of media"


def run(args: argparse.Namespace) -> int:
    from rtmp_relay import client, faults
    from rtmp_relay.caller import CallerOptions

    if args.fault == "help":
        print(faults.listing("client"))
        return 0
    if args.source is None or args.url is None:
        raise UserError("A source and an address are needed.", "rtmp-spark publish movie.flv rtmp://host/app/name")
    if not args.source.startswith("synthetic") and not Path(args.source).is_file():
        raise UserError(f"{args.source}: no such file.", "Give an FLV file, or `synthetic`.")
    speed = _speed(args.speed)
    if not 1 <= args.chunk_size <= 0xFFFFFF:
        raise UserError(f"A chunk size of {args.chunk_size} cannot be used.", "It is 1 to 16777215; 4096 is common.")
    options = CallerOptions(
        scheme=args.handshake, chunk_size=args.chunk_size, window=args.window, amf_version=3 if args.amf3 else 0
    )
    fault = faults.factory(args.fault, "client")()
    tags = client.source_tags(args.source)
    work = client.publish(
        args.url,
        tags,
        speed=speed,
        options=options,
        fault=fault,
        tls=client_context(args) if args.url.startswith("rtmps:") else None,
        on_progress=progress_line(args.quiet),
    )
    try:
        progress = asyncio.run(_contested(work, args.url) if isinstance(fault, faults.SecondPublisher) else work)
    except client.Refused:
        if args.fault is None:
            raise
        print(f"{args.fault}: sent; the server ended the connection", file=sys.stderr)
        return 0
    if progress.ended is not None and args.fault is None:
        raise UserError(f"The server ended it after {progress.tags} tags: {progress.ended}.", "", client.REFUSED)
    if not args.quiet:
        print(summary("published", progress), file=sys.stderr)
    return 0


async def _contested(work: Coroutine[object, object, Progress], url: str) -> Progress:
    from rtmp_relay import client

    progress, words = await asyncio.gather(work, client.contest(url))
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
        raise UserError(f"{text!r} is no speed.", "Use 1, 2.5 or max.")
    return speed
