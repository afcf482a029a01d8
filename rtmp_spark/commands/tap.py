"""`rtmp-spark tap`: a proxy in front of any server that writes the traffic to a pcap, without root."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.live_traffic import add_live_arguments, observers
from rtmp_spark.commands.options.argument_types import amount, count, size
from rtmp_spark.commands.output.server_log import log_to_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:1936", metavar="HOST:PORT", help="address to listen on (%(default)s)"
    )
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="server to forward to")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.pcap", help="capture file to write")
    parser.add_argument("--rotate", type=size, metavar="SIZE", help="start a new file after this size (100k, 50M, 2G)")
    add_live_arguments(parser)
    network = parser.add_argument_group("simulated network problems")
    network.add_argument("--delay", type=amount, default=0.0, metavar="S", help="delay everything by this many seconds")
    network.add_argument("--piece", type=count, default=0, metavar="N", help="forward in writes of N bytes")
    network.add_argument("--rate", type=amount, default=0.0, metavar="B", help="forward at most B bytes per second")
    network.add_argument("--stall-after", type=count, default=0, metavar="N", help="pause once after N bytes")
    network.add_argument(
        "--stall", type=amount, default=2.0, metavar="S", help="length of that pause in seconds (%(default)s)"
    )
    network.add_argument("--cut-after", type=count, default=0, metavar="N", help="reset the connection after N bytes")


def run(args: argparse.Namespace) -> int:
    log_to_terminal("WARNING" if args.quiet else "INFO")
    return asyncio.run(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    from rtmp_relay.rtmp_url import endpoint, parse_endpoint, why
    from rtmp_relay.tap.pcap_tap import Tap
    from rtmp_relay.tap.proxy import NetworkConditions, Proxy

    weather = NetworkConditions(
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
    async with observers(args.live, args.validate) as observing:
        try:
            await proxy.start()
        except OSError as error:
            raise UserError(f"Cannot listen on {args.listen} ({why(error)}).", "Choose another --listen.", 3) from None
        tap = Tap(args.output, args.rotate)  # only after the port is bound: another tap may be writing this file
        proxy.observers = (tap, *observing)
        if not args.quiet:
            print(f"tap ready: {endpoint(listen[0], proxy.port)} to {endpoint(*target)}", flush=True)
        await stop.wait()
        await proxy.stop()
        tap.close()
    return 0
