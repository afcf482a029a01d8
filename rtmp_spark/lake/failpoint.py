"""Named places where a test may kill this process: RTMP_SPARK_FAILPOINT=name makes it die there by SIGKILL.

Dying by a signal that nobody sent is the proof that the place was reached.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "RTMP_SPARK_FAILPOINT"


def failpoint(name: str, pid: int | None = None) -> None:
    """Kill this process (or the given one) if `name` is the chosen failpoint."""
    if os.environ.get(VARIABLE) == name:
        os.kill(pid or os.getpid(), signal.SIGKILL)
