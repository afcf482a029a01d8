"""A progress line on the terminal. It is rewritten a few times a second and removed at the end.

Nothing is printed if standard error is not a terminal or with `--quiet`. `ingest` has its own progress_display.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_INTERVAL_SECONDS = 0.2
_LARGE_BYTES = 32 << 20  # smaller inputs are read before a line would be seen


class ProgressLine:
    def __init__(self, quiet: bool) -> None:
        self._visible = not quiet and sys.stderr.isatty()
        self._width = 0  # of the line on the terminal
        self._next = 0.0

    def show(self, text: str) -> None:
        if not self._visible or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        sys.stderr.write(f"\r{text:<{self._width}} ")
        sys.stderr.flush()
        self._width = len(text)

    def done(self) -> None:
        """Remove the line. Call it before anything else is printed."""
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()
            self._width = 0


class BytesRead(ProgressLine):
    """The progress callback of a recording: bytes read of all files."""

    def __init__(self, paths: list[str], quiet: bool) -> None:
        sizes = [Path(path).stat().st_size for path in paths if path != "-"]
        super().__init__(quiet or bool(sizes) and sum(sizes) <= _LARGE_BYTES)
        self._total = 0 if any(path.endswith((".gz", ".zst")) for path in paths) else sum(sizes)
        self._before = self._last = self._file = 0

    def __call__(self, done: int, file_no: int) -> None:
        if file_no != self._file:
            self._before, self._file = self._before + self._last, file_no
        self._last = done
        read = self._before + done
        share = f" ({min(read / self._total, 1):.0%})" if self._total else ""
        self.show(f"{read / 1e6:,.0f} MB read{share}")
