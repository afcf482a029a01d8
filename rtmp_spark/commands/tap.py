"""`rtmp-spark tap`: a proxy in front of any server that records what passes as a pcap, without root."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.quantities import amount, count, size
from rtmp_spark.commands.server_log import log_to_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", default="127.0.0.1:1936", metavar="HOST:PORT", help="default %(default)s")
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="the server to pass everything on to")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.pcap", help="where to record")
    parser.add_argument("--rotate", type=size, metavar="SIZE", help="begin another file after 100k, 50M, 2G")
    weather = parser.add_argument_group("a bad network, on purpose")
    weather.add_argument("--delay", type=amount, default=0.0, metavar="S", help="hold everything back this long")
    weather.add_argument("--piece", type=count, default=0, metavar="N", help="forward in writes of N bytes")
    weather.add_argument("--rate", type=amount, default=0.0, metavar="B", help="at most B bytes a second")
    weather.add_argument("--stall-after", type=count, default=0, metavar="N", help="pause once after N bytes")
    weather.add_argument("--stall", type=amount, default=2.0, metavar="S", help="for this long (%(default)s)")
    weather.add_argument("--cut-after", type=count, default=0, metavar="N", help="reset the connection after N bytes")


def run(args: argparse.Namespace) -> int:
    log_to_terminal("WARNING" if args.quiet else "INFO")
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    from rtmp_relay.proxy import Proxy, Weather
    from rtmp_relay.tap import Tap
    from rtmp_relay.url import endpoint, parse_endpoint, why

    weather = Weather(
        delay_s=args.delay,
        piece_bytes=args.piece,
        bytes_per_s=args.rate,
        stall_after=args.stall_after,
        stall_s=args.stall,
        cut_after=args.cut_after,
    )
    listen, target = parse_endpoint(args.listen), parse_endpoint(args.to)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    proxy = Proxy(listen, target, (), weather, weather)
    try:
        await proxy.start()
    except OSError as error:
        raise UserError(f"Cannot listen on {args.listen} ({why(error)}).", "Choose another --listen.", 3) from None
    tap = Tap(args.output, args.rotate)  # not before the port is ours: another tap may be writing this file
    proxy.observers = (tap,)
    if not args.quiet:
        print(f"tap ready: {endpoint(listen[0], proxy.port)} to {endpoint(*target)}", flush=True)
    await stop.wait()
    await proxy.stop()
    tap.close()
    return 0
