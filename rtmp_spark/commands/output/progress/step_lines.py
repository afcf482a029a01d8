"""Numbered steps on standard error (`demo`). On a terminal the current step also has a line that changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StepLines:
    """`seconds` holds the duration of each finished step by its name."""

    def __init__(self, count: int, silent: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._count = count
        self._silent = silent
        self._live = sys.stderr.isatty() and not silent
        self._number = 0
        self._line = ""  # the live line on the terminal

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[Callable[[str], None]]:
        """Print the title of a step and measure it; the yielded function shows its progress."""
        self._number += 1
        started = time.monotonic()
        self._write(f"[{self._number}/{self._count}] {title}\n")
        yield self._show
        self._clear()
        self.seconds[name] = round(time.monotonic() - started, 1)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        self._write(f"      {text}\n")

    def _show(self, text: str) -> None:
        line = f"      {text}"
        if self._live and line != self._line:
            self._write(f"\r{line:<{len(self._line)}}")
            self._line = line

    def _clear(self) -> None:
        if self._line:
            self._write(f"\r{'':<{len(self._line)}}\r")
            self._line = ""

    def _write(self, text: str) -> None:
        if not self._silent:
            sys.stderr.write(text)
            sys.stderr.flush()
