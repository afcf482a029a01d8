"""Progress of the workers of a running job: each counts in a small file, and the driver adds the counts up.

Spark's public API reports nothing about a running job. Where workers share no directory with the driver (a cluster),
they write nothing, and only the phases of an ingest are reported. The counts are for display only.
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


class WorkDone(NamedTuple):
    files: int = 0
    bytes: int = 0
    messages: int = 0


class WorkCounter:
    """The worker's side. `directory` is the driver's; empty: count nothing."""

    def __init__(self, directory: str) -> None:
        self._done = [0, 0, 0]
        self._next = 0.0
        self._file = -1
        if directory:
            with suppress(OSError):  # the worker runs on another machine
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
        with suppress(OSError):  # a full disk is reported by the work itself
            os.pwrite(self._file, _NUMBERS.pack(*self._done), 0)


class WorkWatch:
    """The driver's side: while it is open, calls `report` twice a second with the sum of all counts."""

    def __init__(self, report: Callable[[WorkDone], None]) -> None:
        self._report = report
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.directory = ""

    def __enter__(self) -> WorkWatch:
        with suppress(OSError):  # no room for the counts: report nothing
            self.directory = tempfile.mkdtemp(prefix="rtmp-spark-")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.directory:
            self._over.set()
            self._thread.join()
            shutil.rmtree(self.directory, ignore_errors=True)

    def done(self) -> WorkDone:
        sums = [0, 0, 0]
        for path in Path(self.directory).iterdir():
            with suppress(OSError, struct.error):
                for place, more in enumerate(_NUMBERS.unpack(path.read_bytes())):
                    sums[place] += more
        return WorkDone(*sums)

    def _run(self) -> None:
        before = now = WorkDone()
        while not self._over.wait(BETWEEN_SECONDS):
            with suppress(OSError):  # the directory was removed
                now = self.done()
            if now != before:
                self._report(now)
                before = now
