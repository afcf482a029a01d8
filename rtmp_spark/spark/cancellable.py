"""Work with Spark that Ctrl-C stops cleanly.

A call to Java that a signal breaks off leaves its connection out of step, and what follows fails with errors that mean
nothing; a Java that is just starting is left behind. So the work, with the start of its session, runs in a thread of
its own, which the signal does not meet: it sees its Spark jobs cancelled and `stop.is_set()`. A second Ctrl-C ends
the process at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Generic, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

Result = TypeVar("Result")


class Stop(threading.Event):
    """Set when the work shall end; who starts a session for it says so in `spark`."""

    spark: SparkSession | None = None

    def cancel_jobs(self) -> None:
        if self.spark is None:
            return
        with suppress(Exception):  # the session may be at its end already
            try:
                self.spark.sparkContext.cancelAllJobs()
            except PySparkException:  # Spark Connect knows no context, and has its own word
                self.spark.interruptAll()


class Stopped(KeyboardInterrupt):
    """Somebody wanted the ingest to end. `landed` says whether it had committed."""

    def __init__(self, landed: bool) -> None:
        what = "all of this ingest landed" if landed else "nothing of this ingest landed"
        super().__init__(f"Stopped: {what}. Run it again to go on.")
        self.landed = landed


class _Work(threading.Thread, Generic[Result]):
    """Daemon, so that a second Ctrl-C does not wait for it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.ended = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        self.ended.set()

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._result[0]


def run_stoppable(stop: Stop, work: Callable[[], Result]) -> Result:
    """What `work` gives or raises. After Ctrl-C `stop` is set, and its Spark jobs are cancelled until it ends.

    Whatever fails then is a KeyboardInterrupt.
    """

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    thread = _Work(work)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        thread.start()
        while not thread.ended.wait(0.2):
            if stop.is_set():
                stop.cancel_jobs()
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        return thread.result()
    except Exception:
        if stop.is_set():
            raise KeyboardInterrupt from None
        raise
