"""Text that is safe on a page. Every string from the network passes through here.

Control characters become visible symbols, characters that change the writing direction become their code points, and
long texts are cut with a note of their length.
"""

from __future__ import annotations

import html
import re

from rtmp_spark.report.units import MISSING

SHOWN_CHARS = 240
# Characters that are invisible or reverse the text around them: controls, zero width, direction marks, tags.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def printable(value: object, limit: int = SHOWN_CHARS) -> str:
    """The value as text without control characters, at most `limit` characters of it."""
    if value is None:
        return MISSING
    text = str(value)
    cut = len(text) > limit
    shown = _MARKS.sub(r"\1", _UNSEEN.sub(_picture, text[:limit]))
    return f"{shown}… ({len(text):,} characters)" if cut else shown


def escape(value: object, limit: int = SHOWN_CHARS) -> str:
    """`printable`, escaped for HTML text and quoted attributes."""
    return html.escape(printable(value, limit), quote=True)


def untrusted(value: object, limit: int = SHOWN_CHARS) -> str:
    """A string from the network as HTML, isolated from the writing direction of the text around it."""
    return f"<bdi>{escape(value, limit)}</bdi>"


def prose(value: object, limit: int = 600) -> str:
    """A sentence of this program as HTML: starts with a capital; text in backticks becomes code."""
    sentence = printable(value, limit)
    return re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(sentence[:1].upper() + sentence[1:], quote=True))
