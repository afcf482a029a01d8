"""Fixtures of the Spark tests, besides the session that all tests share."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from kit.separate_ingest import NAMES, QUICK_JAVA, free_port
from kit.spark_submit import ELSEWHERE, SPARK, Submitter, make_package, make_python
from pyspark.sql import SparkSession

from rtmp_spark.spark import ingest


@pytest.fixture(scope="session")
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.skip("java is not installed")
    return found


@pytest.fixture(scope="session")
def local(spark: SparkSession, sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake with which the lakes of other kinds of Spark sessions are compared."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    ingest(spark, [str(sample_pcaps / name) for name in NAMES], str(lake))
    return lake


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, each a separate process that knows nothing of the driver's environment."""
    port = free_port()
    spark_class = str(SPARK / "spark-class")
    environment = ELSEWHERE | QUICK_JAVA | {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
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


@pytest.fixture
def spark_submit(tmp_path: Path) -> Submitter:
    return Submitter(tmp_path, make_package(tmp_path), make_python(tmp_path))
