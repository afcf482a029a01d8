"""The detail of a finding, where it is printed after the title of its rule."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def detail_beyond_title(title: str, detail: str) -> str:
    """The detail, or an empty text if the title has all of its words."""
    words = {word.lower() for word in _WORD.findall(detail)}
    return detail if words - {word.lower() for word in _WORD.findall(title)} else ""
