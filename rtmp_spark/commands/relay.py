"""`rtmp-spark relay`: run the bundled relay until a signal stops it."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.live_traffic import add_live_arguments, observers
from rtmp_spark.commands.options.argument_types import count, size
from rtmp_spark.commands.options.tls_options import add_keylog_output, log_secrets
from rtmp_spark.commands.output.server_log import log_to_terminal

if TYPE_CHECKING:
    from rtmp_relay.relay.relay_server import RelayOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:1935", metavar="HOST:PORT", help="address to listen on (%(default)s)"
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="record every stream as FLV in this directory")
    parser.add_argument("--tap", type=Path, metavar="FILE.pcap", help="capture all connections in a pcap")
    parser.add_argument(
        "--tap-rotate", type=size, metavar="SIZE", help="start a new tap file after this size (100k, 50M, 2G)"
    )
    parser.add_argument(
        "--chunk-size", type=int, default=4096, metavar="N", help="chunk size of sent messages (%(default)s)"
    )
    parser.add_argument(
        "--window", type=int, default=2_500_000, metavar="N", help="acknowledgement window (%(default)s)"
    )
    parser.add_argument("--bandwidth", type=int, default=2_500_000, metavar="N", help="peer bandwidth (%(default)s)")
    parser.add_argument("--gop-cache", action="store_true", help="players that join late start with the last keyframe")
    parser.add_argument(
        "--publish-key", action="append", default=[], metavar="KEY", help="publishers must use name?key=KEY"
    )
    parser.add_argument("--play-key", action="append", default=[], metavar="KEY", help="players must use name?key=KEY")
    parser.add_argument(
        "--max-connections", type=count, default=1000, metavar="N", help="reject more connections (%(default)s)"
    )
    parser.add_argument(
        "--max-players",
        type=count,
        default=0,
        metavar="N",
        help="reject more players per stream; 0 for no limit (default)",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve RTMPS with this certificate")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate")
    add_keylog_output(parser)
    add_live_arguments(parser)
    parser.add_argument("--fault", metavar="CODE", help="break this rule; `--fault help` lists the rules")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from rtmp_relay.faults import fault_catalogue
    from rtmp_relay.relay.hub import HubOptions
    from rtmp_relay.relay.relay_server import RelayOptions
    from rtmp_relay.relay.server_connection import ConnectionOptions
    from rtmp_relay.relay.server_streams import SessionOptions
    from rtmp_relay.rtmp_url import parse_endpoint

    if args.fault == "help":
        print(fault_catalogue.listing("server"))
        return 0
    log_to_terminal("WARNING" if args.quiet else args.log_level.upper())
    if not 1 <= args.chunk_size <= 0xFFFFFF:
        raise UserError(f"Invalid chunk size {args.chunk_size}.", "Use 1 to 16777215; 4096 is common.")
    if args.window < 1 or args.bandwidth < 1:
        raise UserError("The window and the bandwidth must be at least 1.", "2500000 is common.")
    host, port = parse_endpoint(args.listen)
    options = RelayOptions(
        host=host,
        port=port,
        record=args.record,
        tap=args.tap,
        tap_rotate_bytes=args.tap_rotate,
        max_connections=args.max_connections,
        hub=HubOptions(gop_cache=args.gop_cache, max_players=args.max_players),
        connection=ConnectionOptions(
            chunk_size=args.chunk_size,
            window=args.window,
            bandwidth=args.bandwidth,
            session=SessionOptions(tuple(args.publish_key), tuple(args.play_key)),
        ),
        new_fault=fault_catalogue.factory(args.fault, "server"),
        tls=_tls(args),
    )
    return asyncio.run(_serve(options, args))


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if args.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key)
    except OSError as error:  # SSLError, for an invalid file, is an OSError too
        reason = getattr(error, "reason", None) or error.strerror or error
        text = f"{args.tls_cert} cannot be used as a certificate ({reason})."
        raise UserError(text, "Give PEM files with --tls-cert and --tls-key.") from None
    log_secrets(context, args.keylog)
    return context


async def _serve(options: RelayOptions, args: argparse.Namespace) -> int:
    from rtmp_relay.relay.relay_server import Relay
    from rtmp_relay.rtmp_url import endpoint, why

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with observers(args.live, args.validate) as observing:
        relay = Relay(options, observing)
        try:
            await relay.start()
        except OSError as error:
            if error.filename is not None:
                raise
            where = endpoint(options.host, options.port)
            raise UserError(f"Cannot listen on {where} ({why(error)}).", "Choose another --listen.", 3) from None
        scheme = "rtmps" if options.tls is not None else "rtmp"
        if not args.quiet:
            print(f"relay ready: {scheme}://{endpoint(options.host, relay.port)}/APP/NAME", flush=True)
        await stop.wait()
        await relay.stop()
    return 0
