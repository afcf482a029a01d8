"""The same tables on other kinds of Spark: several executors in their own processes, and Spark Connect.

Each runs in a process of its own, because one process holds one session.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyspark
import pytest

pytestmark = pytest.mark.slow

NAMES = ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")
INGEST = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]))"


def run(lake: Path, sample_pcaps: Path, *extra: str, **environment: str) -> None:
    arguments = ["ingest", *(str(sample_pcaps / n) for n in NAMES), "--lake", str(lake), *extra]
    done = subprocess.run(
        [sys.executable, "-c", INGEST, *arguments],
        env=os.environ | environment,
        text=True,
        capture_output=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr


def rows(lake: Path, table: str) -> list[str]:
    found = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table()
    return sorted(map(repr, found.drop(["ingest_id"]).to_pylist()))


@pytest.fixture(scope="module")
def local(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("local") / "lake"
    run(lake, sample_pcaps)
    return lake


def test_executors_in_their_own_processes(local: Path, sample_pcaps: Path, tmp_path: Path) -> None:
    run(tmp_path / "lake", sample_pcaps, "--master", "local-cluster[2,1,1024]", "--split-size", "64KB")
    for table in ("messages", "commands", "media_tags", "connections", "findings"):
        assert rows(local, table) == rows(tmp_path / "lake", table), table


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, each a process of its own; only these are ended."""
    port = free_port()
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = os.environ | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
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
    for table in ("messages", "commands", "media_tags", "connections", "findings"):
        assert rows(local, table) == rows(tmp_path / "lake", table), table
