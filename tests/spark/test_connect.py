"""The same tables by a Spark Connect server that was there before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from otherspark import NAMES, QUICK_JAVA, assert_same, free_port, python

from rtmp_spark.spark.jars import delta_jars
from rtmp_spark.spark.session import CATALOG, EXTENSION

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def connect() -> Iterator[str]:
    """A Spark Connect server with Delta Lake, as an administrator starts one."""
    pytest.importorskip("grpc", reason="the client of Spark Connect is not installed (extra: connect)")
    port = free_port()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    environment = os.environ | QUICK_JAVA | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the server did not start")


OVER_CONNECT = """
import sys
from rtmp_spark.spark import Lake, ingest, start_spark
spark = start_spark()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
assert start_spark() is spark, "a session that is there already is used, as in a notebook"
assert len(ingest(spark, sys.argv[2:], sys.argv[1]).ingested) == 2
assert Lake(spark, sys.argv[1]).deliveries.count() == 1
"""


def test_spark_connect(local: Path, connect: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """A server that SPARK_REMOTE names."""
    lake = tmp_path / "lake"
    python(OVER_CONNECT, str(lake), *(str(sample_pcaps / name) for name in NAMES), SPARK_REMOTE=connect)
    assert_same(local, lake)
