"""Numbers, durations, times and addresses as people write them, with units. Missing values become a dash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

MISSING = "–"
DIRECTION_LABELS = {"c2s": "client → server", "s2c": "server → client"}


def counted(count: int, word: str, plural: str = "") -> str:
    """1 file, 2 files."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def number(value: float | None, digits: int = 3) -> str:
    """At most `digits` significant digits, with thousands separators and without trailing zeros."""
    if value is None or value != value:
        return MISSING
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def size(count: float | None) -> str:
    if count is None:
        return MISSING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count:.0f} B"


def bitrate(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{number(value / 1e6)} Mb/s" if abs(value) >= 1e6 else f"{number(value / 1e3)} kb/s"


def duration(milliseconds: float | None) -> str:
    """A duration: 250 ms, 3.2 s, 5 min 10 s."""
    if milliseconds is None:
        return MISSING
    seconds = milliseconds / 1000
    if abs(seconds) < 1:
        return f"{number(milliseconds)} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{value} {unit}" for value, unit in parts[:2] if value)


def utc_time(microseconds: int | None, *, date: bool = True) -> str:
    """A time in UTC with milliseconds."""
    if microseconds is None:
        return MISSING
    seconds, rest = divmod(microseconds, 1_000_000)
    try:
        when = time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return str(microseconds)
    of_day = f"{when[3]:02}:{when[4]:02}:{when[5]:02}.{rest // 1000:03}"
    return f"{when[0]:04}-{when[1]:02}-{when[2]:02} {of_day}" if date else of_day


def utc_day(microseconds: int) -> str:
    return utc_time(microseconds)[:10]


def endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def spaced(value: Any) -> str:
    """A value of a table (`peer_vanished`) with spaces instead of underscores."""
    return MISSING if value is None else str(value).replace("_", " ")


def encoded_bitrate(stream: Mapping[str, Any]) -> float | None:
    """Audio and video bits per second of media time."""
    return (stream["video_bitrate"] or 0) + (stream["audio_bitrate"] or 0) or None
