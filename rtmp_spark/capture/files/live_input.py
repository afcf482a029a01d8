"""A capture that is still being written: a pipe, or a file that grows. A read returns what is there, without waiting
until the wanted number of bytes has come."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from pathlib import Path

_GATHER_SECONDS = 0.2  # bytes that come within this time are returned together: small windows cost more per byte
_PIPE_BYTES = 1 << 20


class LiveInput:
    """`read` waits for the first byte; it returns nothing at the end of a pipe, and after `stop`.

    A regular file has no end: `read` waits until it grows.
    """

    live = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._grows = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._stopped = False
        self.ended = False

    def stop(self) -> None:
        """Nothing more is expected: what is there now is the rest."""
        self._stopped = True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self._descriptor > 2:  # standard input stays open
            os.close(self._descriptor)

    def read(self, size: int, /) -> bytes:
        parts: list[bytes] = []
        until = None  # the time of the first byte and some more
        while size > 0 and not self.ended:
            wait = _GATHER_SECONDS if until is None else max(until - time.monotonic(), 0)
            part = self._available(min(size, _PIPE_BYTES), wait)
            if part:
                parts.append(part)
                size -= len(part)
                until = until or time.monotonic() + _GATHER_SECONDS
            elif self._stopped:
                self.ended = True
            if until is not None and time.monotonic() >= until:
                break
        return b"".join(parts)

    def _available(self, size: int, wait: float) -> bytes:
        """Some bytes; none if none came within this time."""
        if self._grows:
            part = os.read(self._descriptor, size)
            if not part and not self._stopped:
                time.sleep(wait)
            return part
        if not select.select([self._descriptor], [], [], wait)[0]:
            return b""
        part = os.read(self._descriptor, size)
        self.ended = not part
        return part


def open_live(path: str, *, follow: bool = False) -> LiveInput | None:
    """The pipe at a path, or `-`; with `follow` also a regular file. None for anything else."""
    if path == "-":
        try:
            descriptor = sys.stdin.buffer.fileno()
        except (AttributeError, OSError, ValueError):  # standard input was replaced or closed
            return None
        return LiveInput(descriptor) if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    mode = Path(path).stat().st_mode
    if stat.S_ISFIFO(mode) or (follow and stat.S_ISREG(mode)):
        return LiveInput(os.open(path, os.O_RDONLY))
    return None
