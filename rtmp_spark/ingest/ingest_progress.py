"""Where an ingest stands, told while it runs: phases by the driver, and in the two passes what their workers did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .paths import CaptureFile
from .pulse import Done, Watch

SHARES = {"scan": (0.0, 0.3), "decode": (0.3, 0.7)}  # of the time for both passes: what is before, what it takes


@dataclass(frozen=True)
class Progress:
    """Where an ingest stands. Of files and bytes the first pass tells how many are done, the second of bytes."""

    phase: str
    files: int = 0
    bytes: int = 0
    files_done: int | None = None
    bytes_done: int | None = None  # None: nobody knows
    messages: int = 0
    seconds: float = 0.0  # of this phase
    left_seconds: float | None = None  # of both passes; None: too early to say

    @property
    def rate(self) -> float | None:
        """Bytes per second."""
        return self.bytes_done / self.seconds if self.bytes_done and self.seconds else None


class Teller:
    """Tells whoever listens; with nobody there it costs nothing."""

    def __init__(self, listener: Callable[[Progress], None] | None) -> None:
        self.listener = listener
        self._passes_begun = 0.0

    def tell(self, phase: str, files: Sequence[CaptureFile], messages: int = 0) -> None:
        if self.listener is not None:
            self.listener(Progress(phase, len(files), sum(f.size_bytes for f in files), messages=messages))

    @contextmanager
    def watched(self, phase: str, files: Sequence[CaptureFile], work: int) -> Iterator[str]:
        """While its job runs, what its workers did is told: `work` is all that there is to do, in their own unit.

        Gives the directory for their numbers.
        """
        self.tell(phase, files)
        if self.listener is None:
            yield ""
            return
        listener, total, begun = self.listener, sum(f.size_bytes for f in files), time.monotonic()
        before, share = SHARES[phase]
        self._passes_begun = self._passes_begun or begun

        def report(done: Done) -> None:
            part = min(done.bytes / work, 1.0) if work else 1.0  # what was decoded twice, after a crash, counts once
            now, all_done = time.monotonic(), before + share * part
            left = (now - self._passes_begun) * (1 - all_done) / all_done if part else None
            files_done = min(done.files, len(files)) if phase == "scan" else None
            seconds = now - begun
            listener(Progress(phase, len(files), total, files_done, int(part * total), done.messages, seconds, left))

        with Watch(report) as watch:
            yield watch.directory
