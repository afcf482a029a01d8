"""The arguments that every command shares which reads captures without Spark, and the words for what went wrong."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime, timedelta, timezone
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from rtmp_spark.capture import keylog
from rtmp_spark.capture.keylog import KeyLog
from rtmp_spark.capture.memory import keep_freed_memory
from rtmp_spark.capture.recording import CaptureFile, Recording
from rtmp_spark.capture.redact import Redactor, load_key
from rtmp_spark.capture.service import TLS
from rtmp_spark.capture.settings import Settings
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.harmless import harmless
from rtmp_spark.forensics.catalogue import entry
from rtmp_spark.forensics.deliveries import Deliveries
from rtmp_spark.forensics.hindsight import judge_together
from rtmp_spark.forensics.judge import Judge

_HOW_TO_READ_TLS = f"If RTMP is inside, to get its keys {keylog.HOW_TO_GET_KEYS}."
USAGE, FILE_FAILED, NO_RTMP = 2, 4, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CHOOSING = ("uid", "stream", "host", "port", "since", "until")
_LAST_SECOND = 253_402_300_799  # of the year 9999


def add_path_argument(parser: argparse.ArgumentParser, *, twice: bool = False) -> None:
    """`twice`: it is read more than once, which standard input cannot be."""
    kinds = "pcap or pcapng, plain, gzip or zstd"
    parser.add_argument("paths", nargs="+", metavar="FILE", help=kinds if twice else f"{kinds}; - is standard input")


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which connections")
    group.add_argument("--uid", help="the connection with this uid")
    group.add_argument("--host", type=parse_host, metavar="ADDRESS", help="connections from or to this address")
    group.add_argument("--port", type=parse_port, metavar="N", help="connections from or to this port")
    group.add_argument("--stream", metavar="NAME", help="connections with this stream, by its name or the hash of it")
    group.add_argument("--since", type=parse_time, metavar="TIME", help="from this time on (2026-01-31T12:00:00, UTC)")
    group.add_argument("--until", type=parse_time, metavar="TIME", help="up to this time")
    parser.add_argument("--sensor", default="", metavar="NAME", help="where the capture was recorded; part of the uid")
    add_keylog_argument(parser)
    parser.add_argument(
        "--keep-secrets", action="store_true", help="show stream keys, tokens and passwords as they are"
    )


def add_keylog_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keylog",
        action="append",
        default=[],
        metavar="FILE",
        help="TLS secrets to read RTMPS with (what SSLKEYLOGFILE wrote), or a directory of such files; may be repeated",
    )


def load_keylog(args: argparse.Namespace) -> KeyLog:
    """The secrets of --keylog and SSLKEYLOGFILE; the captures may bring more."""
    log = keylog.load(args.keylog)
    if len(log):
        keylog.require_cryptography()
    return log


def parse_time(text: str) -> int:
    """ISO 8601 (UTC unless it says otherwise) or seconds since the epoch, as microseconds."""
    try:
        seconds = float(text)
        if abs(seconds) <= _LAST_SECOND:
            return round(seconds * 1_000_000)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-01-31T12:00:00") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return (when - _EPOCH) // timedelta(microseconds=1)


def parse_host(text: str) -> str:
    """An address as the tables write it, however it is written here."""
    try:
        address = ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write 192.0.2.1 or 2001:db8::1") from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write a number up to 65535")
    return int(text)


def refuse_for_lake(args: argparse.Namespace) -> None:
    """Options that choose among connections while captures are decoded do nothing to the rows of a lake."""
    for name in ("host", "port", "stream", "since", "until"):
        if getattr(args, name) is not None:
            raise UserError(f"--{name} is for captures.", "From a lake, choose one connection with --uid.")


def make_settings(args: argparse.Namespace) -> Settings:
    """What a command that reads captures asks for."""
    keep_freed_memory()
    return Settings(
        judge=Judge,
        catalogue=entry,
        hindsight=judge_together,
        deliveries=Deliveries,
        sensor=args.sensor,
        keylog=load_keylog(args),
        redactor=_redactor(args),
        uid=args.uid,
        host=args.host,
        port=args.port,
        stream=args.stream,
        since=args.since,
        until=args.until,
    )


def _redactor(args: argparse.Namespace) -> Redactor:
    if not args.keep_secrets:
        return Redactor(load_key())
    return Redactor(None, load_key() if args.stream else None)  # a hash that was seen without --keep-secrets


def check_paths(paths: list[str]) -> list[str]:
    """The paths, each a file that can be read; else one sentence about the first that is not."""
    for path in paths:
        if path == "-":
            if len(paths) > 1:
                raise UserError("Standard input cannot be one of several files.", "Give - alone.")
            continue
        if not path:
            raise UserError("The name of a capture is empty.", "Is a variable of the shell not set?")
        if Path(path).is_dir():
            raise UserError(f"{path} is a directory.", f"Name its files: {path.rstrip('/')}/*.pcap*")
        if not Path(path).exists():
            raise UserError(f"{path} does not exist.", "Check the path.")
        if not os.access(path, os.R_OK):
            raise UserError(f"{path} cannot be read.", "Check its permissions.")
    return paths


def tell_problems(files: list[CaptureFile]) -> None:
    for file in files:
        if file.status == "failed":
            print(harmless(f"rtmp-spark: {file.path}: {file.error_hint}."), file=sys.stderr)
        elif file.status == "partial":
            print(harmless(f"rtmp-spark: {file.path} is damaged: {file.error_hint}."), file=sys.stderr)


def exit_code(recording: Recording, args: argparse.Namespace) -> int:
    """The exit code for a recording that was read: what a person asked for that is not there counts first."""
    chosen = [] if recording.connections else [o for o in _CHOOSING if getattr(args, o, None) is not None]
    if "uid" in chosen or "stream" in chosen:
        if len(chosen) > 1:
            raise UserError(
                f"No connection in what was given has all of {_options(chosen)}.",
                "`rtmp-spark inspect` without them lists what there is.",
            )
        word, wanted = ("connection", args.uid) if args.uid is not None else ("stream", args.stream)
        remedy = "`rtmp-spark inspect` without it lists them."
        raise UserError(f"There is no {word} {wanted} in what was given.", remedy)
    if any(file.status == "failed" for file in recording.files):
        return FILE_FAILED
    if not recording.connections:
        said = "no RTMP in what was given. It is looked for on every port: check what was recorded."
        if chosen:
            said = f"no RTMP connection in what was given matches {_options(chosen)}. Try without."
        print(f"rtmp-spark: {said}", file=sys.stderr)
        closed = recording.refusals.get(TLS, 0)
        if closed:
            closed_ones = f"{closed} TLS connection{'' if closed == 1 else 's'}"
            print(f"rtmp-spark: {closed_ones} could not be read. {_HOW_TO_READ_TLS}", file=sys.stderr)
        return NO_RTMP
    return 0


def _options(names: list[str]) -> str:
    return " and ".join(f"--{name}" for name in names)
