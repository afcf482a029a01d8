"""The progress display of `ingest`: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rtmp_spark.report.units import duration

if TYPE_CHECKING:
    from rtmp_spark.ingest.ingest_progress import Progress

LINE_INTERVAL_SECONDS = 10.0  # between two lines of one phase
ShowProgress = Callable[["Progress"], None]


@contextmanager
def progress_display(quiet: bool) -> Iterator[ShowProgress | None]:
    """A function that shows the progress it is given, or None with `--quiet`. A bar disappears at the end."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield progress_lines()
    else:
        with progress_bar() as show:
            yield show


def progress_text(progress: Progress) -> str:
    """Files, bytes, messages, rate and remaining time, as far as they are known."""
    files = f"{progress.files} file{'' if progress.files == 1 else 's'}"
    if progress.files_done is not None:
        files = f"{progress.files_done} of {files}"
    digits = 0 if progress.bytes >= 100e6 else 1
    size = f"{progress.bytes / 1e6:,.{digits}f} MB"
    if progress.bytes_done is not None:
        size = f"{progress.bytes_done / 1e6:,.{digits}f} of {size}"
    parts = [files, size] if progress.rounds == 1 else [f"round {progress.round} of {progress.rounds}", files, size]
    if progress.messages:
        parts.append(f"{progress.messages:,} message{'' if progress.messages == 1 else 's'}")
    if progress.rate is not None:
        parts.append(f"{progress.rate / 1e6:,.{digits}f} MB/s")
    if progress.left_seconds is not None:
        left = max(round(progress.left_seconds), 1)
        parts.append(f"about {duration(left * 1000) if left >= 120 else f'{left} s'} left")
    return ", ".join(parts)


def progress_lines() -> ShowProgress:
    phase, after = "", 0.0

    def show(progress: Progress) -> None:
        nonlocal phase, after
        now = time.monotonic()
        if progress.phase != phase or now >= after:
            phase, after = progress.phase, now + LINE_INTERVAL_SECONDS
            print(f"rtmp-spark: {progress.phase}: {progress_text(progress)}", file=sys.stderr, flush=True)

    return show


@contextmanager
def progress_bar() -> Iterator[ShowProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description:<6}"), BarColumn(12), TextColumn("{task.fields[text]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, text="")

        def show(progress: Progress) -> None:
            known = progress.bytes_done is not None
            bar.update(
                task,
                description=progress.phase,
                total=progress.bytes if known else None,
                completed=progress.bytes_done or 0,
                text=progress_text(progress),
            )

        yield show
