"""A limit on the time that a piece of work in a Python worker takes.

Spark has no such limit, and `interruptTag` does not find jobs that collect Arrow batches.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block after so many seconds. Only for the main thread, as of a Python worker."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
