"""How memory is handled while captures are read: windows of megabytes come and go, rows pile up and hold no cycles."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 128 << 20
_WINDOW_BYTES = 32 << 20  # the most that mallopt takes


def keep_freed_memory() -> None:
    """From here on this process keeps what a window needed for the next one. Giving it back to the system and getting
    it anew, page by page, takes a tenth of the time. For programs and workers: it is not a library's to decide."""
    with suppress(AttributeError, OSError, TypeError):  # only glibc has this
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _WINDOW_BYTES)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Rows and facts hold no cycles; looking for some among millions of them takes a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(5_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
