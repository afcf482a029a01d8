"""Processes that each decode some of the connections of a recording and send what they find to this one."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, NamedTuple

from rtmp_spark.capture.tcp.connection_share import ConnectionShare, NotSeparable

_PIPE_BYTES = 1 << 20  # a process waits if it is this much ahead of the others
_NOT_SEPARABLE = "not separable"

Send = Callable[[object], None]


class ProcessLost(Exception):
    """A process ended before its work was done."""


class _Process(NamedTuple):
    pid: int
    pipe: IO[bytes]


def can_fork() -> bool:
    return sys.platform == "linux"  # elsewhere, system libraries may fail in the child


class DecodingProcesses:
    """A context manager; at its end no process is left. `work` is called in each process, with its share of the
    connections and a function that sends an object to this process."""

    def __init__(self, count: int, work: Callable[[ConnectionShare, Send], None]) -> None:
        self._processes: list[_Process] = []
        try:
            for number in range(count):
                self._start(ConnectionShare(number, count), work)
        except OSError as error:
            self._end()
            raise ProcessLost from error

    def receive(self) -> list[object]:
        """The next object of every process."""
        try:
            received = [pickle.load(process.pipe) for process in self._processes]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise ProcessLost from error
        if _NOT_SEPARABLE in received:
            raise NotSeparable
        return received

    def __enter__(self) -> DecodingProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, share: ConnectionShare, work: Callable[[ConnectionShare, Send], None]) -> None:
        reading, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            raise
        if pid:
            os.close(writing)
            self._processes.append(_Process(pid, os.fdopen(reading, "rb", _PIPE_BYTES)))
            return
        try:  # in the new process
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that started this one
            os.close(reading)
            for other in self._processes:
                other.pipe.close()
            _run(share, work, writing)
        finally:
            os._exit(0)  # nothing of the other process may run here, not even its error handling

    def _end(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
            process.pipe.close()
            with suppress(OSError):
                os.waitpid(process.pid, 0)


def _run(share: ConnectionShare, work: Callable[[ConnectionShare, Send], None], writing: int) -> None:
    import fcntl

    with suppress(OSError, AttributeError):  # Python 3.10 has the constant, an old kernel may refuse
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(what: object) -> None:
        data = memoryview(pickle.dumps(what, 5))
        while data:
            data = data[os.write(writing, data) :]

    try:
        work(share, send)
    except NotSeparable:
        send(_NOT_SEPARABLE)
