"""Progress of an ingest: the numbers of workers reach the driver, and become words."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from rtmp_spark.commands import ingest_progress
from rtmp_spark.commands.ingest_progress import lines, shown, words
from rtmp_spark.spark import pulse
from rtmp_spark.spark.progress import Progress
from rtmp_spark.spark.pulse import Done, Pulse, Watch


def test_numbers_of_workers_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BETWEEN_SECONDS", 0.01)
    told, all_told = [], threading.Event()

    def report(done: Done) -> None:
        told.append(done)
        if done == Done(2, 1500, 7):
            all_told.set()

    with Watch(report) as watch:
        first, second = Pulse(watch.directory), Pulse(watch.directory)
        first.add(files=1, bytes=1000)
        second.add(bytes=200, messages=3)
        second.add(bytes=300, messages=4)
        first.add(files=1)
        first.close()
        second.close()
        assert all_told.wait(10)
    assert told == sorted(told) and not Path(watch.directory).exists()


def test_a_worker_on_another_machine_says_nothing(tmp_path: Path) -> None:
    for directory in (str(tmp_path / "nowhere"), ""):
        far = Pulse(directory)
        far.add(files=1, bytes=1)
        far.close()
    assert not list(tmp_path.iterdir())


def test_what_is_known_is_said() -> None:
    assert words(Progress("scan", 1, 3_700_000)) == "1 file, 3.7 MB"
    said = words(Progress("scan", 10, 3_700_000, 4, 1_850_000, seconds=0.5, left_seconds=0.2))
    assert said == "4 of 10 files, 1.9 of 3.7 MB, 3.7 MB/s, about 1 s left"
    said = words(Progress("decode", 10, 2_000_000_000, None, 500_000_000, 12_345, 10.0, 3700.0))
    assert said == "10 files, 500 of 2,000 MB, 12,345 messages, 50 MB/s, about 1 h 1 min left"


def test_a_line_for_each_phase_and_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(ingest_progress.time, "monotonic", lambda: clock[0])
    tell = lines()
    for now, phase in ((0, "scan"), (1, "scan"), (2, "decode"), (11, "decode"), (13, "decode"), (14, "write")):
        clock[0] = float(now)
        tell(Progress(phase, now, 0))
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0].removeprefix("rtmp-spark: ") for line in printed] == [
        "scan: 0 files", "decode: 2 files", "decode: 13 files", "write: 14 files",
    ]  # fmt: skip


def test_a_bar_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with shown(quiet=False) as tell:
        assert tell is not None
        tell(Progress("decode", 2, 4_000_000, None, 1_000_000, 77, 1.0, 3.0))
    assert "2 files, 1.0 of 4.0 MB, 77 messages, 1.0 MB/s, about 3 s left" in terminal.getvalue()
    with shown(quiet=True) as nobody:
        assert nobody is None
