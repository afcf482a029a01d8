"""Progress and result lines of `publish` and `play`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtmp_relay.client.rtmp_client import Progress


def transfer_progress(quiet: bool) -> Callable[[Progress], None]:
    """A function that shows progress on a terminal once a second."""
    last = [0.0]

    def show(progress: Progress) -> None:
        now = time.monotonic()
        if not quiet and sys.stderr.isatty() and now - last[0] >= 1:
            last[0] = now
            late = f", {progress.behind_ms} ms late" if progress.behind_ms > 100 else ""
            text = f"{progress.media_ms / 1000:8.1f} s  {progress.tags} tags  {progress.bytes / 1e6:.1f} MB{late}"
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    return show


def transfer_summary(verb: str, progress: Progress) -> str:
    return f"{verb} {progress.tags} tags, {progress.bytes} bytes, {progress.media_ms / 1000:.1f} s of media"
