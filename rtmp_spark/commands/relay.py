"""`rtmp-spark relay`: the bundled relay, until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.commands.quantities import count, size
from rtmp_spark.commands.server_log import log_to_terminal
from rtmp_spark.commands.tls_options import add_keylog_output, log_secrets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", default="127.0.0.1:1935", metavar="HOST:PORT", help="default %(default)s")
    parser.add_argument("--record", type=Path, metavar="DIR", help="record every stream as FLV in this directory")
    parser.add_argument("--tap", type=Path, metavar="FILE.pcap", help="write every byte of every connection as a pcap")
    parser.add_argument("--tap-rotate", type=size, metavar="SIZE", help="begin another tap file after 100k, 50M, 2G")
    parser.add_argument("--chunk-size", type=int, default=4096, metavar="N", help="that we send with (%(default)s)")
    parser.add_argument(
        "--window", type=int, default=2_500_000, metavar="N", help="acknowledgement window (%(default)s)"
    )
    parser.add_argument("--bandwidth", type=int, default=2_500_000, metavar="N", help="peer bandwidth (%(default)s)")
    parser.add_argument(
        "--gop-cache", action="store_true", help="late joiners start with the last keyframe, not the next"
    )
    parser.add_argument(
        "--publish-key", action="append", default=[], metavar="KEY", help="publishers need name?key=KEY"
    )
    parser.add_argument("--play-key", action="append", default=[], metavar="KEY", help="players need name?key=KEY")
    parser.add_argument("--max-connections", type=count, default=1000, metavar="N", help="default %(default)s")
    parser.add_argument("--max-players", type=count, default=0, metavar="N", help="per stream; 0 is no limit (default)")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="speak RTMPS with this certificate")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="and this private key")
    add_keylog_output(parser)
    parser.add_argument("--validate", action="store_true", help="print findings about what is relayed as it happens")
    parser.add_argument("--fault", metavar="CODE", help="break this rule on purpose; `--fault help` lists them")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="default %(default)s"
    )


def run(args: argparse.Namespace) -> int:
    from rtmp_relay import faults
    from rtmp_relay.connection import ConnectionOptions
    from rtmp_relay.hub import HubOptions
    from rtmp_relay.relay import RelayOptions
    from rtmp_relay.session import SessionOptions
    from rtmp_relay.url import parse_endpoint

    if args.fault == "help":
        print(faults.listing("server"))
        return 0
    log_to_terminal("WARNING" if args.quiet else args.log_level.upper())
    if not 1 <= args.chunk_size <= 0xFFFFFF:
        raise UserError(f"A chunk size of {args.chunk_size} cannot be used.", "It is 1 to 16777215; 4096 is common.")
    if args.window < 1 or args.bandwidth < 1:
        raise UserError("A window or bandwidth below 1 lets nobody send.", "2500000 is common.")
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
        new_fault=faults.factory(args.fault, "server"),
        tls=_tls(args),
    )
    return asyncio.run(_serve(options, args.validate, args.quiet))


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if args.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key)
    except OSError as error:  # of these, what is wrong inside the files is an SSLError
        reason = getattr(error, "reason", None) or error.strerror or error
        text = f"{args.tls_cert} cannot be used as a certificate ({reason})."
        raise UserError(text, "Give PEM files with --tls-cert and --tls-key.") from None
    log_secrets(context, args.keylog)
    return context


async def _serve(options: object, validate: bool, quiet: bool) -> int:
    from rtmp_relay.relay import Relay, RelayOptions
    from rtmp_relay.url import endpoint, why
    from rtmp_relay.validate import Validator

    assert isinstance(options, RelayOptions)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    relay = Relay(options, (Validator(_print_finding),) if validate else ())
    try:
        await relay.start()
    except OSError as error:
        if error.filename is not None:
            raise
        where = endpoint(options.host, options.port)
        raise UserError(f"Cannot listen on {where} ({why(error)}).", "Choose another --listen.", 3) from None
    scheme = "rtmps" if options.tls is not None else "rtmp"
    if not quiet:
        print(f"relay ready: {scheme}://{endpoint(options.host, relay.port)}/APP/NAME", flush=True)
    await stop.wait()
    await relay.stop()
    return 0


def _print_finding(line: str) -> None:
    print(harmless(line), flush=True)
