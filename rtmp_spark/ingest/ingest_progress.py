"""Progress of an ingest: its phases, and during the two passes the work its executors have done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.worker_progress import WorkDone, WorkWatch

SHARES = {"scan": (0.0, 0.3), "decode": (0.3, 0.7)}  # of the time of both passes: where each starts, and its share


@dataclass(frozen=True)
class Progress:
    """The scan reports files and bytes done, decoding only bytes."""

    phase: str
    files: int = 0
    bytes: int = 0
    files_done: int | None = None
    bytes_done: int | None = None  # None: unknown
    messages: int = 0
    seconds: float = 0.0  # since the phase began
    left_seconds: float | None = None  # until both passes are done; None: too early to say
    round: int = 1
    rounds: int = 1

    @property
    def rate(self) -> float | None:
        """Bytes per second."""
        return self.bytes_done / self.seconds if self.bytes_done and self.seconds else None


class ProgressReporter:
    """Passes progress to a listener, if there is one."""

    def __init__(self, listener: Callable[[Progress], None] | None) -> None:
        self.listener = listener
        self.rounds = 1
        self._round = 1
        self._passes_begun = 0.0

    def begin_round(self, number: int) -> None:
        self._round = number
        self._passes_begun = 0.0

    def report(self, phase: str, files: Sequence[CaptureFile], messages: int = 0) -> None:
        if self.listener is not None:
            size = sum(f.size_bytes for f in files)
            self._tell(Progress(phase, len(files), size, messages=messages))

    def _tell(self, progress: Progress) -> None:
        if self.listener is not None:
            self.listener(replace(progress, round=self._round, rounds=self.rounds))

    @contextmanager
    def watched(self, phase: str, files: Sequence[CaptureFile], work: int) -> Iterator[str]:
        """Reports the work of the executors while the block runs. `work` is the total, in the unit that they count.

        Yields the directory for their counters.
        """
        self.report(phase, files)
        if self.listener is None:
            yield ""
            return
        total, begun = sum(f.size_bytes for f in files), time.monotonic()
        before, share = SHARES[phase]
        self._passes_begun = self._passes_begun or begun

        def report_work(done: WorkDone) -> None:
            part = min(done.bytes / work, 1.0) if work else 1.0  # after a crash some work is done twice
            now, all_done = time.monotonic(), before + share * part
            left = (now - self._passes_begun) * (1 - all_done) / all_done if part else None
            files_done = min(done.files, len(files)) if phase == "scan" else None
            seconds = now - begun
            self._tell(Progress(phase, len(files), total, files_done, int(part * total), done.messages, seconds, left))

        with WorkWatch(report_work) as watch:
            yield watch.directory
