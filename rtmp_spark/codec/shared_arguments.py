"""Arguments of commands whose bytes are identical: parsed once, with everything that was derived from them.

Commands repeat byte by byte from connection to connection (`createStream`, the answer to `connect`). The decoder parses
such bytes once and gives every command the same `Arguments`; functions decorated with `noted` compute their result once
per `Arguments`. Callers must not change either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Arguments(list[Any]):
    """A list of arguments that several commands share, and a cache of results computed from it."""

    __slots__ = ("notes",)

    def __init__(self, values: list[Any]) -> None:
        super().__init__(values)
        self.notes: dict[Any, Any] = {}


def noted(read: Callable[[list[Any]], Result]) -> Callable[[list[Any]], Result]:
    """Cache the result of `read` in the `Arguments` it was computed from."""

    def ask(args: list[Any]) -> Result:
        if type(args) is not Arguments:
            return read(args)
        notes = args.notes
        if read not in notes:
            notes[read] = read(args)
        result: Result = notes[read]
        return result

    return ask
