"""One large connection under Spark: its worker has a helper process, and decodes without it if the helper dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.ingest.scan import plan
from rtmp_spark.spark import Lake, ingest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a second process needs a second core")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """One publisher in 55 MB, and how many messages it sent."""
    directory = tmp_path_factory.mktemp("large")
    make = [sys.executable, str(ROOT / "bench" / "make_captures.py"), str(directory), "huge", "--scale", "0.1"]
    subprocess.run(make, check=True, capture_output=True)
    made = json.loads((directory / "captures.json").read_text())["huge"]
    return directory / "huge.pcap", made["client_messages"]


@contextmanager
def watched(*, kill: bool = False) -> Iterator[list[int]]:
    """The helper processes that start during the block; `kill` ends them."""
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    number = int(process.name)
                    if (
                        number not in seen
                        and b"rtmp_spark.conversation.decoding.helper_process" in (process / "cmdline").read_bytes()
                    ):
                        seen.append(number)
                        if kill:
                            os.kill(number, signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kill", [False, True])
def test_all_messages_are_published(
    kill: bool, large: tuple[Path, int], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, messages = large
    monkeypatch.setattr(plan, "HEAVY_BYTES", 1 << 20)
    with watched(kill=kill) as seen:
        summary = ingest(spark, [str(path)], str(tmp_path / "lake"))
    assert seen
    assert not summary.crashed
    found = Lake(spark, str(tmp_path / "lake")).messages
    assert found.where("direction = 'c2s'").count() == messages
    assert not any(Path(f"/proc/{number}").exists() for number in seen)
