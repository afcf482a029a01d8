"""What the command line prints about an error: one sentence, its remedy, and the exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable
from itertools import islice

from rtmp_spark.codec.errors import CaptureError, RtmpSparkError, UserError, path_remedy
from rtmp_spark.commands.exit_codes import ENVIRONMENT, FILE_FAILED, USAGE
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.install_command import install_command

_PATH_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_BAD_NAMES = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
_EXTRAS = {"deltalake": "lake", "duckdb": "lake", "pyspark": "spark", "delta": "spark", "pandas": "spark"}  # by package
_SHOWN_NAME = 200  # characters of a path in a message
MOST_LISTED = 20  # choices in a message
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO})


def explain_error(error: Exception) -> tuple[str, str, int]:
    """(sentence, remedy, exit code) for any exception."""
    if isinstance(error, UserError):
        return error.text, error.remedy, error.exit_code
    if isinstance(error, CaptureError):
        return error.detail, error.hint, FILE_FAILED
    if isinstance(error, OSError) and error.filename and (isinstance(error, _PATH_ERRORS) or error.errno in _BAD_NAMES):
        name, why = _short(str(error.filename)), (error.strerror or "cannot be read").lower()
        return f"{name}: {why}.", path_remedy(error) or "Check the path.", USAGE
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        what = error.filename or "The output cannot be written"
        return f"{what}: {os.strerror(error.errno).lower()}.", "Free disk space, or write elsewhere.", ENVIRONMENT
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        remedy = f"Install it: {install_command(extra)}" if extra else "`rtmp-spark doctor` says what to install."
        return f"The Python package {error.name} is not installed.", remedy, ENVIRONMENT
    if isinstance(error, RtmpSparkError):
        return str(error), "", FILE_FAILED
    text = f"Unexpected error ({type(error).__name__}: {error})."
    return text, "Run the command again with --debug and report the output.", ENVIRONMENT


def listed(choices: Iterable[str], count: int) -> str:
    """The first of `count` choices, one on each line."""
    lines = [f"  {choice}\n" for choice in islice(choices, MOST_LISTED)]
    return "".join(lines) + (f"  ... and {count - len(lines)} more\n" if count > len(lines) else "")


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}... ({len(name)} characters)"


def print_error(text: str, remedy: str, exit_code: int, *, as_json: bool = False) -> int:
    """Print an error to standard error and, for a scheduler, as JSON to standard output; return its exit code."""
    if as_json:
        print(json.dumps({"exit_code": exit_code, "error": f"{text} {remedy}".strip()}), flush=True)
    separator = "" if text.endswith("\n") else " "  # a text that ends with a list ends its line itself
    for line in f"rtmp-spark: {text}{separator}{remedy}".rstrip().split("\n"):
        print(escape_for_terminal(line), file=sys.stderr)
    return exit_code
