"""What a command prints after reading captures: damaged files, no RTMP found, a filter that matches nothing."""

from __future__ import annotations

import argparse
import sys

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.analysis.sensor_recordings import SensorRecordings
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.service import REFUSED, TLS
from rtmp_spark.capture.unwrap.tls import keylog
from rtmp_spark.capture.unwrap.tls.keylog import can_decrypt
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.exit_codes import FILE_FAILED, NO_RTMP
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.install_command import install_command

_FILTERS = ("uid", "stream", "host", "port", "since", "until")
_HOW_TO_READ_TLS = f"To get the keys of RTMPS, {keylog.HOW_TO_GET_KEYS}."


def print_file_problems(files: list[FileFacts], *, damage: bool = True) -> None:
    """Name the files that could not be read, and those that could be read in part unless `damage` is false."""
    for file in files:
        if file.status == "failed":
            print(escape_for_terminal(f"rtmp-spark: {file.path}: {file.error_hint}."), file=sys.stderr)
        elif file.status == "partial" and damage:
            print(escape_for_terminal(f"rtmp-spark: {file.path} is damaged: {file.error_hint}."), file=sys.stderr)


def exit_code(recording: Recording | SensorRecordings, args: argparse.Namespace) -> int:
    """The exit code after reading a recording; explains it on standard error.

    A uid or stream that does not exist is a usage error and takes precedence over failed files.
    """
    filters = [] if recording.connections else [name for name in _FILTERS if getattr(args, name, None) is not None]
    if "uid" in filters or "stream" in filters:
        if len(filters) > 1:
            raise UserError(
                f"No connection matches {_options(filters)}.",
                "`rtmp-spark inspect` without them lists the connections.",
            )
        kind, wanted = ("connection", args.uid) if args.uid is not None else ("stream", args.stream)
        raise UserError(f"No {kind} {wanted} found.", f"`rtmp-spark inspect` without --{filters[0]} lists them.")
    if any(file.status == "failed" for file in recording.files):
        return FILE_FAILED
    if not recording.connections:
        text = "No RTMP found (all TCP ports were searched). Check what was captured."
        if filters:
            text = f"No RTMP connection matches {_options(filters)}. Change or remove the filter."
        print(f"rtmp-spark: {text}", file=sys.stderr)
        refused = recording.refusals.get(REFUSED, 0)
        if refused:
            counted = f"{refused} connection{' was' if refused == 1 else 's were'}"
            text = f"{counted} refused: a RST answered the SYN. Check address and port, and that the server runs."
            print(f"rtmp-spark: {text}", file=sys.stderr)
        encrypted = recording.refusals.get(TLS, 0)
        if encrypted:
            counted = f"{encrypted} TLS connection{'' if encrypted == 1 else 's'}"
            remedy = _HOW_TO_READ_TLS if can_decrypt() else f"To decrypt RTMPS: {install_command('tls')}"
            print(f"rtmp-spark: {counted} could not be decrypted. {remedy}", file=sys.stderr)
        return NO_RTMP
    return 0


def _options(names: list[str]) -> str:
    return " and ".join(f"--{name}" for name in names)
