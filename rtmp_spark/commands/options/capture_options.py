"""Arguments of the commands that read captures without Spark, and the analysis settings they stand for."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from rtmp_spark.analysis.settings import ConnectionFilter, Settings
from rtmp_spark.capture.files.capture_names import captures_below
from rtmp_spark.capture.memory_tuning import keep_freed_memory
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.errors import UserError
from rtmp_spark.codec.limits import SEPARATED_BYTES
from rtmp_spark.commands.options.argument_types import count, parse_host, parse_port, parse_time
from rtmp_spark.conversation.decoding.helper_process import HelperPool
from rtmp_spark.redact import Redactor, load_key

_MOST_JOBS = 8  # by default: each process reads the captures, so more of them gain little


def add_path_argument(
    parser: argparse.ArgumentParser, *, read_twice: bool = False, or_lake: bool = False, with_sensor: bool = False
) -> None:
    """The captures. A command that reads them twice cannot read standard input."""
    text = "pcap or pcapng capture, plain, gzip or zstd; a directory means all captures below it"
    if not read_twice:
        text += "; - for standard input"
    if with_sensor:
        text += "; NAME=FILE names the sensor"
    parser.add_argument("paths", nargs="*" if or_lake else "+", metavar="FILE", help=text)


def add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection filters")
    group.add_argument("--uid", help="only the connection with this uid")
    add_connection_filters(group)
    group.add_argument("--stream", metavar="NAME", help="only connections with this stream name, or its hash")
    parser.add_argument(
        "--sensor", default="", metavar="NAME", help="where the capture was taken; it is part of each uid"
    )
    add_keylog_argument(parser)
    parser.add_argument("--keep-secrets", action="store_true", help="do not redact stream keys, tokens and passwords")


def add_jobs_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=count,
        metavar="N",
        help="processes that decode captures of 64 MB or more; the output does not depend on it "
        f"(default: one per core, at most {_MOST_JOBS})",
    )


class TakesArguments(Protocol):
    """A parser or a group of its arguments."""

    def add_argument(self, *names: str, type: Any, metavar: str, help: str) -> argparse.Action: ...


def add_connection_filters(group: TakesArguments) -> None:
    """Filters that `ingest` and the commands without Spark share."""
    group.add_argument("--host", type=parse_host, metavar="ADDRESS", help="only connections from or to this address")
    group.add_argument("--port", type=parse_port, metavar="N", help="only connections from or to this port")
    group.add_argument(
        "--since", type=parse_time, metavar="TIME", help="ignore everything before this time (2026-01-31T12:00:00, UTC)"
    )
    group.add_argument("--until", type=parse_time, metavar="TIME", help="ignore everything after this time")


def add_keylog_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keylog",
        action="append",
        default=[],
        metavar="FILE",
        help="TLS key log (SSLKEYLOGFILE) to decrypt RTMPS, or a directory of key logs; may be repeated",
    )


def load_keylog(args: argparse.Namespace) -> KeyLog:
    """The secrets of --keylog and SSLKEYLOGFILE. pcapng captures may add more."""
    log = keylog.load(args.keylog)
    if len(log):
        keylog.require_cryptography()
    return log


def refuse_for_lake(args: argparse.Namespace) -> None:
    """Filters that apply during decoding cannot be used with the rows of a lake."""
    for name in ("host", "port", "stream", "since", "until"):
        if getattr(args, name) is not None:
            raise UserError(f"--{name} cannot be used with --lake.", "Use --uid to choose one connection.")


def make_settings(args: argparse.Namespace) -> Settings:
    """Analysis settings from the arguments of `add_filter_arguments`, with every rule."""
    keep_freed_memory()
    jobs = _jobs(args)
    return Settings(
        sensor=args.sensor,
        keylog=load_keylog(args),
        redactor=_redactor(args),
        filter=ConnectionFilter(args.uid, args.host, args.port, args.stream, args.since, args.until),
        jobs=jobs,
        warn=lambda text: print(f"rtmp-spark: {text}", file=sys.stderr),
        helpers=HelperPool(jobs - 1) if jobs > 1 else None,  # they start only for connections with much data
    )


def _jobs(args: argparse.Namespace) -> int:
    jobs: int | None = getattr(args, "jobs", 1)
    if jobs is not None:
        return jobs
    files = [path for argument in args.paths if (path := Path(argument.rpartition("=")[2])).exists()]
    if sum(file.stat().st_size for file in files if file.is_file()) < SEPARATED_BYTES and not any(
        map(Path.is_dir, files)
    ):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_JOBS)


def _redactor(args: argparse.Namespace) -> Redactor:
    key = getattr(args, "redact_key", None) or load_key()  # a lake has its own
    if not args.keep_secrets:
        return Redactor(key)
    return Redactor(None, key if args.stream else None)  # --stream may be a hash from redacted output


def capture_files(paths: list[str], *, read_twice: bool = False, others: bool = False) -> list[str]:
    """The files at these paths, each once, in the order given: for a directory, the captures below it.

    Raises UserError about the first path that is not readable. `-` and pipes must be alone (`others`: there are files
    that are not in `paths`), and a command that reads its input twice cannot read a pipe.
    """
    found: dict[str, None] = {}
    alone = len(paths) == 1 and not others
    for path in paths:
        if path != "-":
            _check_path(path, pipes=alone and not read_twice)
        elif not alone:
            raise UserError("Standard input cannot be combined with files.", "Give - alone.")
        found.update(dict.fromkeys(_captures_of_directory(path) if Path(path).is_dir() else [path]))
    return list(found)


def _check_path(path: str, *, pipes: bool = False) -> None:
    """Raise UserError unless it is a readable file or directory, or a pipe if pipes are possible."""
    if not path:
        raise UserError("A capture name is empty.", "Check for an unset shell variable.")
    if not Path(path).exists():
        raise UserError(f"{path} does not exist.", "Check the path.")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read.", "Check its permissions.")
    is_pipe = Path(path).is_fifo()
    if Path(path).is_file() or Path(path).is_dir() or (is_pipe and pipes):
        return
    what = "is a pipe, which can only be read once" if is_pipe else "is not a file"
    raise UserError(f"{path} {what}.", "Copy it to a file first.")


def _captures_of_directory(path: str) -> list[str]:
    found = [str(file) for file in captures_below(Path(path))]
    if not found:
        raise UserError(
            f"{path} contains no captures.",
            "Their names end in .pcap, .pcapng, .cap, .dmp or .ntar, with or without .gz or .zst; name other files.",
        )
    for file in found:
        _check_path(file)
    return found
