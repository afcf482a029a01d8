"""How far an ingest is: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rtmp_spark.report.text import span

if TYPE_CHECKING:
    from rtmp_spark.spark.progress import Progress

BETWEEN_SECONDS = 10.0  # two lines of one phase
Tell = Callable[["Progress"], None]


@contextmanager
def shown(quiet: bool) -> Iterator[Tell | None]:
    """What tells a person of the progress that it is given; nothing is left of a bar at the end."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield lines()
    else:
        with bar() as tell:
            yield tell


def words(progress: Progress) -> str:
    """Files, bytes, messages, rate and time left, as far as they are known."""
    files = f"{progress.files} file{'' if progress.files == 1 else 's'}"
    if progress.files_done is not None:
        files = f"{progress.files_done} of {files}"
    digits = 0 if progress.bytes >= 100e6 else 1
    size = f"{progress.bytes / 1e6:,.{digits}f} MB"
    if progress.bytes_done is not None:
        size = f"{progress.bytes_done / 1e6:,.{digits}f} of {size}"
    said = [files, size]
    if progress.messages:
        said.append(f"{progress.messages:,} message{'' if progress.messages == 1 else 's'}")
    if progress.rate is not None:
        said.append(f"{progress.rate / 1e6:,.{digits}f} MB/s")
    if progress.left_seconds is not None:
        left = max(round(progress.left_seconds), 1)
        said.append(f"about {span(left * 1000) if left >= 120 else f'{left} s'} left")
    return ", ".join(said)


def lines() -> Tell:
    phase, after = "", 0.0

    def tell(progress: Progress) -> None:
        nonlocal phase, after
        now = time.monotonic()
        if progress.phase != phase or now >= after:
            phase, after = progress.phase, now + BETWEEN_SECONDS
            print(f"rtmp-spark: {progress.phase}: {words(progress)}", file=sys.stderr, flush=True)

    return tell


@contextmanager
def bar() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description:<6}"), BarColumn(12), TextColumn("{task.fields[said]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=None, said="")

        def tell(progress: Progress) -> None:
            known = progress.bytes_done is not None
            drawn.update(
                task,
                description=progress.phase,
                total=progress.bytes if known else None,
                completed=progress.bytes_done or 0,
                said=words(progress),
            )

        yield tell
