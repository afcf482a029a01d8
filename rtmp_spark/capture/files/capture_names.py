"""Which files of a directory are captures, judged by their names."""

from __future__ import annotations

import re
from pathlib import Path

_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp|ntar)(\d*|[._-].*)?(\.(gz|zst))?$", re.IGNORECASE)
_HIDDEN = (".", "_")  # first characters of files that programs write for themselves, as in Spark


def is_capture_name(name: str) -> bool:
    """Whether a file of this name is a capture. Capture tools append numbers and dates: trace.pcap3, trace.pcap.1."""
    return _CAPTURE_NAME.search(name) is not None and not name.startswith(_HIDDEN)


def captures_below(directory: Path) -> list[Path]:
    """The captures in a directory and its subdirectories, sorted by path."""
    return sorted(path for path in directory.rglob("*") if is_capture_name(path.name) and path.is_file())
