"""Text that others wrote (peers, files, their names), fit for a terminal: it shows and does nothing else."""

from __future__ import annotations


def harmless(text: str) -> str:
    """Without control and direction characters. Bytes that were no text stay: the terminal's encoding escapes them."""
    return "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else "." for c in text)
