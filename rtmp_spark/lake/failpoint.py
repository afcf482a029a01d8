"""Named places where a test may stop this process.

RTMP_SPARK_FAILPOINT=name kills the process there by SIGKILL; a process that died of a signal which the test did not
send has reached the place. Tests that run many deaths in one process add a function to `observers` instead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "RTMP_SPARK_FAILPOINT"
observers: list[Callable[[str], None]] = []  # called with the name of every failpoint that is reached


def failpoint(name: str, pid: int | None = None) -> None:
    """Kill this process (or the given one) if `name` is the chosen failpoint."""
    for observer in observers:
        observer(name)
    if os.environ.get(VARIABLE) == name:
        os.kill(pid or os.getpid(), signal.SIGKILL)
