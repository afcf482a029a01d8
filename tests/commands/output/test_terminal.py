"""Printed lines on a terminal and in a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from rtmp_spark.commands.output.terminal import client_and_server, line_printer

WORDS = "Where the server closed, its log says why: a key, an on_publish hook or a limit of connections. " * 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def narrow(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def test_a_narrow_terminal_wraps_and_indents_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = narrow(monkeypatch)
    line_printer()(WORDS, "yellow", 2)
    assert "\x1b[33m" in terminal.getvalue()
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 60
    assert lines[0].startswith("  Where") and all(re.match(r" {6}\S", line) for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == WORDS.strip()


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = narrow(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    line_printer()("a warning", "yellow")
    assert terminal.getvalue() == "a warning\n"


def test_lines_in_a_pipe_are_not_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_line = line_printer()
    print_line(WORDS.strip(), "bold red", 2)
    print_line()
    print_line("no \x1b[31m")
    assert capsys.readouterr().out == f"  {WORDS.strip()}\n\nno .[31m\n"


def test_an_ipv6_address_is_in_brackets() -> None:
    row = {"orig_h": "2001:db8::1", "orig_p": 50000, "resp_h": "192.0.2.1", "resp_p": 1935}
    assert client_and_server(row) == "[2001:db8::1]:50000 -> 192.0.2.1:1935"
