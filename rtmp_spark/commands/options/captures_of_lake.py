"""Captures named on the command line, or those that hold one connection of a lake (`--lake DIR --uid UID`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.options.capture_options import add_path_argument, capture_files


def add_path_or_lake_arguments(parser: argparse.ArgumentParser, *, read_twice: bool = False) -> None:
    """The capture files, or the lake that knows them."""
    add_path_argument(parser, read_twice=read_twice, or_lake=True)
    parser.add_argument("--lake", metavar="DIR", help="read the captures of connection --uid, as this lake knows them")


def chosen_captures(args: argparse.Namespace) -> list[str]:
    """The captures to read. For a connection of a lake, `args` get the sensor and the redaction key of the lake."""
    if args.lake is None:
        if not args.paths:
            raise UserError("Name captures or a lake.", f"For example: rtmp-spark {args.command} trace.pcap -o FILE")
        return capture_files(args.paths, read_twice=args.command == "slice")
    if args.paths:
        raise UserError("--lake and captures cannot be combined.", "The lake knows its captures; leave them out.")
    if args.uid is None:
        raise UserError("--lake needs the uid of a connection.", "Give --uid; `rtmp-spark sql` finds it.")
    return _captures_of_connection(args)


def _captures_of_connection(args: argparse.Namespace) -> list[str]:
    import pyarrow.compute as pc

    from rtmp_spark.lake.reader import open_lake

    lake = open_lake(args.lake)
    found = lake.read("connections", ("sensor", "capture_ids"), pc.field("uid") == args.uid).to_pylist()
    if not found:
        raise UserError(f"No connection {args.uid} in {args.lake}.", "The table `connections` lists them.")
    args.sensor, args.redact_key = found[0]["sensor"], lake.redact_key
    captures = lake.read("captures", ("capture_id", "path", "sensor"), pc.field("sensor") == args.sensor).to_pylist()
    paths: dict[str, list[str]] = {}
    for row in captures:
        paths.setdefault(row["capture_id"], []).append(row["path"])
    return [_present(paths.get(capture_id, []), args) for capture_id in found[0]["capture_ids"]]


def _present(paths: list[str], args: argparse.Namespace) -> str:
    """The path of a capture that is still there."""
    for path in paths:
        if Path(path).is_file():
            return capture_files([path])[0]
    place = paths[0] if paths else "A capture"
    remedy = f"name the captures instead of the lake: rtmp-spark {args.command} FILE... --uid {args.uid}"
    if "://" in place:
        raise UserError(f"{place} holds packets of {args.uid}, but it is not a local file.", f"Copy it and {remedy}")
    raise UserError(f"{place} holds packets of {args.uid}, but it is not there any more.", f"Move it back, or {remedy}")


def refuse_changed_captures(args: argparse.Namespace) -> None:
    """Raises if captures of a lake do not hold the connection any more. Call it if nothing was found in them."""
    if args.lake is not None:
        raise UserError(
            f"The captures of {args.uid} have changed since they were ingested into {args.lake}.",
            "Restore them, or name the captures instead of the lake.",
        )
