"""Escaping of text from peers and files, so that it cannot control the terminal."""

from __future__ import annotations


def escape_for_terminal(text: str) -> str:
    """The text with control and direction characters replaced by dots.

    Lone surrogates (bytes that are not text, as in file names) stay: the encoding of standard output escapes them.
    """
    return "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else "." for c in text)
