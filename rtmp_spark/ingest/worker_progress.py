"""How far the workers of a running job are: each keeps its numbers in a small file, and the driver adds them up.

Spark's public API says nothing of a job under way. Where workers share no directory with the driver (a cluster), they
write nothing, and only the phases of an ingest are told. A number that is late or lost harms nobody.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

BETWEEN_SECONDS = 0.5
_NUMBERS = struct.Struct("<QQQ")


class Done(NamedTuple):
    files: int = 0
    bytes: int = 0
    messages: int = 0


class Pulse:
    """The side of a worker. `directory` is the driver's; empty when nobody watches."""

    def __init__(self, directory: str) -> None:
        self._done = [0, 0, 0]
        self._next = 0.0
        self._file = -1
        if directory:
            with suppress(OSError):  # another machine
                self._file = os.open(f"{directory}/{uuid.uuid4().hex}", os.O_WRONLY | os.O_CREAT, 0o600)

    def add(self, files: int = 0, bytes: int = 0, messages: int = 0) -> None:
        if self._file < 0:
            return
        for place, more in enumerate((files, bytes, messages)):
            self._done[place] += more
        if time.monotonic() >= self._next:
            self._write()

    def close(self) -> None:
        if self._file >= 0:
            self._write()
            os.close(self._file)
            self._file = -1

    def _write(self) -> None:
        self._next = time.monotonic() + BETWEEN_SECONDS
        with suppress(OSError):  # a full disk is told by those whose work it stops
            os.pwrite(self._file, _NUMBERS.pack(*self._done), 0)


class Watch:
    """The side of the driver: while it is open, `report` hears from time to time what was done in all."""

    def __init__(self, report: Callable[[Done], None]) -> None:
        self._report = report
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.directory = ""

    def __enter__(self) -> Watch:
        with suppress(OSError):  # no room for numbers: nothing is told
            self.directory = tempfile.mkdtemp(prefix="rtmp-spark-")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.directory:
            self._over.set()
            self._thread.join()
            shutil.rmtree(self.directory, ignore_errors=True)

    def done(self) -> Done:
        sums = [0, 0, 0]
        for path in Path(self.directory).iterdir():
            with suppress(OSError, struct.error):
                for place, more in enumerate(_NUMBERS.unpack(path.read_bytes())):
                    sums[place] += more
        return Done(*sums)

    def _run(self) -> None:
        before = now = Done()
        while not self._over.wait(BETWEEN_SECONDS):
            with suppress(OSError):  # somebody tidied up
                now = self.done()
            if now != before:
                self._report(now)
                before = now
