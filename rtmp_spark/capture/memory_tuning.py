"""Memory settings for reading captures: large windows are allocated and freed, and rows contain no reference cycles."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 128 << 20
_WINDOW_BYTES = 32 << 20  # the largest value that mallopt accepts


def keep_freed_memory() -> None:
    """Make this process keep the memory of a window for the next one.

    Returning it to the system and getting it back, page by page, takes a tenth of the time. Only programs and workers
    should call this, not a library.
    """
    with suppress(AttributeError, OSError, TypeError):  # only glibc has this
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _WINDOW_BYTES)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the cycle collector rarely: rows have no cycles, and searching millions of them takes a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(5_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@cache
def exempt_loaded_modules() -> None:
    """Exclude all objects that exist now from garbage collections; later calls in this process change nothing.

    A Python worker of Spark runs a full collection after every task, which takes 20 ms to search the loaded modules.
    """
    gc.freeze()
