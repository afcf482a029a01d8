"""Lines for a person: in colour and wrapped to the width of the terminal; in a pipe plain, each line whole."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Protocol

from rtmp_spark.commands.harmless import harmless
from rtmp_spark.report.text import endpoint

STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_FURTHER = 4  # how much deeper a wrapped line goes on


def ends(connection: Mapping[str, Any]) -> str:
    """Client and server of a row of `connections`."""
    client, server = (endpoint(connection[f"{end}_h"], connection[f"{end}_p"]) for end in ("orig", "resp"))
    return f"{client} -> {server}"


class Say(Protocol):
    def __call__(self, text: str = "", style: str = "", indent: int = 0) -> None: ...


def printer() -> Say:
    """What prints a line to standard output; without a text, an empty one."""
    from rich.console import Console
    from rich.text import Text

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for the command line to end as every other program in a pipe; rich exits with 1

    console = Terminal(highlight=False, soft_wrap=True)

    def say(text: str = "", style: str = "", indent: int = 0) -> None:
        line = " " * indent + harmless(text)
        width = console.width if sys.stdout.isatty() else max(len(line), 1)
        further = " " * (len(line) - len(line.lstrip()) + _FURTHER)
        parts = wrap(line, width, subsequent_indent=further, replace_whitespace=False, break_on_hyphens=False)
        for part in parts or [""]:
            console.print(Text(part, style=style))

    return say
