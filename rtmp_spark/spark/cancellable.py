"""Spark work that Ctrl-C stops cleanly.

A signal that interrupts a call to Java leaves the connection to Java out of step, and later calls fail with unrelated
errors; a Java that is just starting would keep running. So the work, including the start of its session, runs in a
thread of its own, which does not receive the signal: its Spark jobs are cancelled and `stop.is_set()` is true. A second
Ctrl-C ends the process at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # importing it is left to the work, which starts Java first
    from pyspark.sql import SparkSession

Result = TypeVar("Result")


class Stop(threading.Event):
    """Set when the work must end. The caller that starts a session stores it in `spark`."""

    spark: SparkSession | None = None

    def cancel_jobs(self) -> None:
        if self.spark is None:
            return
        with suppress(Exception):  # the session may have ended already
            self.spark.interruptAll()


class Stopped(KeyboardInterrupt):
    """The ingest was stopped by Ctrl-C. `landed`: it had published all its rows before; else `done` of its rounds."""

    def __init__(self, landed: bool, done: int = 0, rounds: int = 0) -> None:
        text = "this ingest was published."
        if not landed:
            text = f"{done} of {rounds} rounds were published." if done else "nothing was published."
            text += " Run it again to continue."
        super().__init__(f"Stopped: {text}")
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
    """Returns what `work` returns. Ctrl-C sets `stop` and cancels the Spark jobs of `work` until it ends.

    An error of `work` after Ctrl-C becomes a KeyboardInterrupt.
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
