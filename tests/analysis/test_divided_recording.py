"""Connections that are divided among processes give the same output as one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.handmade_facts import SAMPLES
from kit.hostile_captures import syns

from rtmp_spark import cli
from rtmp_spark.analysis import decoding_processes, recording
from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.recording import ALL_TABLES, Recording, _NotYetNoted
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.open_capture import open_capture
from rtmp_spark.capture.tcp import connection_share, reassembler
from rtmp_spark.capture.tcp.connection_share import ConnectionShare
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.limits import BRIEF_FLOWS_AT_ONCE, Limits

pytestmark = pytest.mark.skipif(not decoding_processes.can_fork(), reason="needs Linux")

CAPTURES = sorted(path for path in SAMPLES.iterdir() if ".pcap" in path.name)
WHOLE = [path for path in CAPTURES if path.suffix == ".pcap" and "rtmpt" not in path.name]
RTMPT = SAMPLES / "p1980_rtmpt_pyrtmp_ffmpeg_publish.pcap"
SEVERAL = SAMPLES / "republish_same_name.pcap"


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were started, also for small captures; none is left at the end."""
    started: list[int] = []
    fork = os.fork

    def noted() -> int:
        pid = fork()
        started.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    monkeypatch.setattr(recording, "SEPARATED_BYTES", 0)
    monkeypatch.setattr(connection_share, "UNDIVIDED_SHARE", 1)
    yield started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class Notes(ConnectionObserver):
    def __init__(self) -> None:
        self.uids: list[str] = []

    def note(self, connection: ConnectionAnalysis) -> str:
        return connection.uid

    def noted(self, note: str) -> None:
        self.uids.append(note)


class Analyzed:
    def __init__(self, paths: list[Path], jobs: int, **options: Any) -> None:
        self.warnings: list[str] = []
        settings = Settings(jobs=jobs, keep_payloads=True, warn=self.warnings.append, **options)
        notes = Notes()
        found = Recording(paths, settings, (*ALL_TABLES, "deliveries", "payloads"), observer=notes)
        self.batches: list[Batch] = list(found.batches())
        self.rest = (notes.uids, found.files, found.connections, found.refusals, found.severities)


def same(paths: list[Path], jobs: int, **options: Any) -> Analyzed:
    """Analyze captures in one process and in several; returns the latter."""
    one, several = Analyzed(paths, 1, **options), Analyzed(paths, jobs, **options)
    assert several.rest == one.rest, paths
    assert [table for table, _ in several.batches] == [table for table, _ in one.batches], paths
    for (table, batch), (_, expected) in zip(several.batches, one.batches):
        assert batch.equals(expected), (paths, table)
    return several


def small_windows(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(recording, "open_capture", partial(open_capture, window_bytes=size))
    monkeypatch.setattr(reassembler, "BATCH_SEGMENTS", 50)


def test_every_sample(pids: list[int]) -> None:
    for path in CAPTURES:
        assert not same([path], 3).warnings
    assert len(pids) == 3 * len(CAPTURES)


def test_many_files_in_small_windows(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 20_000)
    assert not same(WHOLE, 2).warnings
    assert len(pids) == 2


def test_one_process_starts_again_and_repeats_nothing(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """RTMPT sessions may use several connections. The recording has other connections before."""
    known: list[int] = []

    class Known(_NotYetNoted):
        def __init__(self, observer: ConnectionObserver, count: int) -> None:
            known.append(count)
            super().__init__(observer, count)

    monkeypatch.setattr(recording, "_NotYetNoted", Known)
    same([*WHOLE[:12], RTMPT], 2)
    assert known[0] > 0
    assert len(pids) == 2


def test_limits_on_all_connections_need_one_process(pids: list[int]) -> None:
    assert not same(WHOLE[:12], 2, limits=Limits(open_connections=3)).warnings
    assert len(pids) == 2


@pytest.mark.parametrize("at", [1, 4])
def test_a_process_dies(at: int, pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    select, calls = ConnectionShare.select, [0]

    def dies(self: ConnectionShare, segments: Any, flows: Any) -> Any:
        calls[0] += 1
        if self.own == 1 and calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return select(self, segments, flows)

    monkeypatch.setattr(ConnectionShare, "select", dies)
    small_windows(monkeypatch, 50_000)
    (warning,) = same([SEVERAL], 2).warnings
    assert "has died" in warning
    assert len(pids) == 2


def test_an_error_in_a_process_is_the_error_of_one_process(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Connection) -> bool:
        raise RuntimeError("broken")

    monkeypatch.setattr(Connection, "named", property(fails))
    with pytest.raises(RuntimeError, match="broken"):
        Analyzed([SEVERAL], 2)
    assert len(pids) == 2


def test_an_interrupt_leaves_no_process(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(size: int, file_no: int) -> None:
        raise KeyboardInterrupt

    small_windows(monkeypatch, 20_000)
    with pytest.raises(KeyboardInterrupt):
        list(Recording([SEVERAL], Settings(jobs=3), progress=interrupt).batches())
    assert len(pids) == 3


def test_a_reader_that_stops_leaves_no_process(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 20_000)
    batches = Recording(WHOLE, Settings(jobs=2)).batches()
    next(batches)
    batches.close()
    assert len(pids) == 2


@pytest.mark.parametrize(
    "command",
    [
        "inspect",
        "inspect -v",
        "inspect --json",
        "inspect --table messages --csv",
        "inspect --table deliveries",
        "check --json",
        "report -o OUT/report.html",
        "extract -o OUT/",
    ],
)
def test_commands(
    command: str, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    results = []
    for jobs in ("1", "2"):
        name, *words = command.split()
        Path("OUT").mkdir()
        code = cli.main([name, str(SEVERAL), *words, "--jobs", jobs])
        written = {path.name: path.read_bytes() for path in Path("OUT").iterdir()}
        results.append((code, written, capsys.readouterr()))
        Path("OUT").rename(f"jobs {jobs}")
    assert results[0] == results[1]
    assert len(pids) == 2


def test_small_captures_are_read_by_one_process(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    list(Recording([SEVERAL], Settings(jobs=2)).batches())
    assert not pids


def test_a_connection_with_nearly_all_data_is_not_divided(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_share, "UNDIVIDED_SHARE", 0.8)
    list(Recording([SAMPLES / "ffmpeg_publish_h264_aac.pcap"], Settings(jobs=2)).batches())
    assert not pids


def test_a_flood_of_brief_flows_is_not_divided(pids: list[int], tmp_path: Path) -> None:
    flood = tmp_path / "syns.pcap"
    flood.write_bytes(syns(2 * BRIEF_FLOWS_AT_ONCE))  # divided, the parts would be read again by one process
    list(Recording([flood], Settings(jobs=2)).batches())
    assert not pids
