"""Runs a command as a job: its arguments may be in files, and its exit code is that of the command.

`@FILE` is replaced by the lines of a file, one argument per line; empty lines and lines that start with # are skipped.
Write `@@NAME` for an argument that starts with @.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rtmp_spark.cli import main
from rtmp_spark.codec.errors import UserError
from rtmp_spark.commands.output.error_message import print_error


def run_job(command: str, arguments: Sequence[str] | None = None) -> int:
    """Run `rtmp-spark COMMAND`. `ingest` prints one line of JSON, its summary or its error."""
    try:
        given = list(expanded(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        return print_error(error.text, error.remedy, error.exit_code, as_json=command == "ingest")
    always = ["--json"] if command == "ingest" else []
    return main([command, *always, *given])


def expanded(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments, with those of files in place of their names."""
    for argument in arguments:
        if not argument.startswith("@"):
            yield argument
        elif argument.startswith("@@"):
            yield argument[1:]
        else:
            yield from _lines(argument[1:])


def _lines(path: str) -> Iterator[str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"The arguments in {path!r} cannot be read: {reason}.", "Check the path after @.") from None
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()
