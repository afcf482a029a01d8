"""The progress display of `ingest`: lines in a pipe, a bar on a terminal."""

from __future__ import annotations

import io

import pytest

from rtmp_spark.commands.output.progress import progress_display
from rtmp_spark.commands.output.progress.progress_display import progress_lines, progress_text
from rtmp_spark.ingest.ingest_progress import Progress


def test_known_numbers_are_shown() -> None:
    assert progress_text(Progress("scan", 1, 3_700_000)) == "1 file, 3.7 MB"
    text = progress_text(Progress("scan", 10, 3_700_000, 4, 1_850_000, seconds=0.5, left_seconds=0.2))
    assert text == "4 of 10 files, 1.9 of 3.7 MB, 3.7 MB/s, about 1 s left"
    text = progress_text(Progress("decode", 10, 2_000_000_000, None, 500_000_000, 12_345, 10.0, 3700.0))
    assert text == "10 files, 500 of 2,000 MB, 12,345 messages, 50 MB/s, about 1 h 1 min left"


def test_a_line_per_phase_and_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: clock[0])
    show = progress_lines()
    for now, phase in ((0, "scan"), (1, "scan"), (2, "decode"), (11, "decode"), (13, "decode"), (14, "write")):
        clock[0] = float(now)
        show(Progress(phase, now, 0))
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0].removeprefix("rtmp-spark: ") for line in printed] == [
        "scan: 0 files", "decode: 2 files", "decode: 13 files", "write: 14 files",
    ]  # fmt: skip


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_display.progress_display(quiet=False) as show:
        assert show is not None
        show(Progress("decode", 2, 4_000_000, None, 1_000_000, 77, 1.0, 3.0))
    assert "2 files, 1.0 of 4.0 MB, 77 messages, 1.0 MB/s, about 3 s left" in terminal.getvalue()
    with progress_display.progress_display(quiet=True) as silent:
        assert silent is None
