"""Printing lines for people: coloured and wrapped to the width of a terminal, plain and unwrapped in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Protocol

from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.report.units import endpoint

_COLOURS_IN_A_PIPE = ("FORCE_COLOR", "TTY_COMPATIBLE")  # environment variables that rich obeys
_WRAPPED_INDENT = 4  # added to the indent of a line for its wrapped parts


def client_and_server(connection: Mapping[str, Any]) -> str:
    """The addresses in a row of `connections`: client -> server."""
    client, server = (endpoint(connection[f"{end}_h"], connection[f"{end}_p"]) for end in ("orig", "resp"))
    return f"{client} -> {server}"


def short_capture_names(captures: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Capture id -> file name, or path if file names are not unique. Empty for a single capture."""
    paths = {row["capture_id"]: row["path"] for row in captures if row["capture_id"]}
    if len(paths) < 2:
        return {}
    short = {capture: path.rstrip("/").rpartition("/")[2] for capture, path in paths.items()}
    return short if len(set(short.values())) == len(short) else paths


class PrintLine(Protocol):
    def __call__(self, text: str = "", style: str = "", indent: int = 0) -> None: ...


def _print_plain(text: str = "", style: str = "", indent: int = 0) -> None:
    """The line without colours, which need no library."""
    print((" " * indent + escape_for_terminal(text)).rstrip())


def line_printer() -> PrintLine:
    """A function that prints one line to standard output; without a text, an empty line."""
    if not sys.stdout.isatty() and not any(os.environ.get(name) for name in _COLOURS_IN_A_PIPE):
        return _print_plain
    from rich.console import Console
    from rich.text import Text

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # cli.main turns this into the usual exit code; rich would exit with 1

    console = Terminal(highlight=False, soft_wrap=True)

    def print_line(text: str = "", style: str = "", indent: int = 0) -> None:
        line = " " * indent + escape_for_terminal(text)
        width = console.width if sys.stdout.isatty() else max(len(line), 1)
        further = " " * (len(line) - len(line.lstrip()) + _WRAPPED_INDENT)
        parts = wrap(line, width, subsequent_indent=further, replace_whitespace=False, break_on_hyphens=False)
        for part in parts or [""]:
            console.print(Text(part, style=style))

    return print_line
