"""The same tables where executors are processes of their own: below one driver, and under a standalone master."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from otherspark import INGEST, NAMES, QUICK_JAVA, assert_same, free_port, python

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def run(lake: Path, sample_pcaps: Path, *extra: str) -> None:
    """Ranges of the files, so that there is work for both executors."""
    captures = (str(sample_pcaps / name) for name in NAMES)
    python(INGEST, "ingest", *captures, "--lake", str(lake), "--split-size", "64KB", *extra)


def test_executors_below_one_driver(local: Path, sample_pcaps: Path, tmp_path: Path) -> None:
    run(tmp_path / "lake", sample_pcaps, "--master", "local-cluster[2,1,1024]")
    assert_same(local, tmp_path / "lake")


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, each a process of its own; only these are ended."""
    port = free_port()
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = os.environ | QUICK_JAVA | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> None:
        started.append(
            subprocess.Popen(
                [spark_class, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )

    master = f"spark://127.0.0.1:{port}"
    ui = str(free_port())
    start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", ui)
    for n in range(2):
        start(
            "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
            "--work-dir", str(tmp_path / f"work{n}"), "--webui-port", str(free_port()), master,
        )  # fmt: skip
    try:
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def test_a_standalone_master_with_two_workers(local: Path, standalone: str, sample_pcaps: Path, tmp_path: Path) -> None:
    run(tmp_path / "lake", sample_pcaps, "--master", standalone)
    assert_same(local, tmp_path / "lake")
