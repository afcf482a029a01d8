"""Escaping of text for the terminal."""

from __future__ import annotations

from rtmp_spark.commands.output.terminal_escape import escape_for_terminal


def test_text_from_peers_cannot_control_the_terminal() -> None:
    assert escape_for_terminal("a\x1b[31mb\u202ec\n") == "a.[31mb.c."
