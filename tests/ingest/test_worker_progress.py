"""Progress of an ingest: the driver adds up the counts of the workers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rtmp_spark.ingest import worker_progress
from rtmp_spark.ingest.worker_progress import WorkCounter, WorkDone, WorkWatch


def test_numbers_of_workers_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_progress, "BETWEEN_SECONDS", 0.01)
    reported, all_reported = [], threading.Event()

    def report(done: WorkDone) -> None:
        reported.append(done)
        if done == WorkDone(2, 1500, 7):
            all_reported.set()

    with WorkWatch(report) as watch:
        first, second = WorkCounter(watch.directory), WorkCounter(watch.directory)
        first.add(files=1, bytes=1000)
        second.add(bytes=200, messages=3)
        second.add(bytes=300, messages=4)
        first.add(files=1)
        first.close()
        second.close()
        assert all_reported.wait(10)
    assert reported == sorted(reported) and not Path(watch.directory).exists()


def test_a_worker_on_another_machine_writes_nothing(tmp_path: Path) -> None:
    for directory in (str(tmp_path / "nowhere"), ""):
        far = WorkCounter(directory)
        far.add(files=1, bytes=1)
        far.close()
    assert not list(tmp_path.iterdir())
