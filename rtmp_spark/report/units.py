"""Values as words for a page: escaped, harmless, with units. Everything that came over the wire passes through here.

It never trusts a string: control characters become their pictures, marks that turn the direction of writing become
their code points, long texts are cut and say so.
"""

from __future__ import annotations

import html
import re
import time
from typing import Any

SHOWN_CHARS = 240
# What would be invisible or turn the text around it: controls, zero width, direction marks, line separators, tags.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
MISSING = "–"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def harmless(value: object, limit: int = SHOWN_CHARS) -> str:
    """Text that shows what it holds and does nothing else, at most `limit` characters of it."""
    if value is None:
        return MISSING
    text = str(value)
    cut = len(text) > limit
    shown = _MARKS.sub(r"\1", _UNSEEN.sub(_picture, text[:limit]))
    return f"{shown}… ({len(text):,} characters)" if cut else shown


def escape(value: object, limit: int = SHOWN_CHARS) -> str:
    """`harmless`, and safe inside HTML text and quoted attributes."""
    return html.escape(harmless(value, limit), quote=True)


def wire(value: object, limit: int = SHOWN_CHARS) -> str:
    """A string from the wire as HTML, apart from the direction of the text around it."""
    return f"<bdi>{escape(value, limit)}</bdi>"


def prose(value: object, limit: int = 600) -> str:
    """A sentence of ours as HTML: begins with a capital, `code` between backticks."""
    said = harmless(value, limit)
    return re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(said[:1].upper() + said[1:], quote=True))


def one_of(count: int, word: str, plural: str = "") -> str:
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def number(value: float | None, digits: int = 3) -> str:
    """At most `digits` significant ones, thousands apart, no needless zeros."""
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


def span(milliseconds: float | None) -> str:
    """A length of time."""
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


def clock(microseconds: int | None, *, date: bool = True) -> str:
    """A point in time, UTC, to the millisecond."""
    if microseconds is None:
        return MISSING
    seconds, rest = divmod(microseconds, 1_000_000)
    try:
        when = time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return str(microseconds)
    of_day = f"{when[3]:02}:{when[4]:02}:{when[5]:02}.{rest // 1000:03}"
    return f"{when[0]:04}-{when[1]:02}-{when[2]:02} {of_day}" if date else of_day


def day(microseconds: int) -> str:
    return clock(microseconds)[:10]


def endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def words(value: Any) -> str:
    """A word of the tables (`peer_vanished`) as people write it."""
    return MISSING if value is None else str(value).replace("_", " ")
