"""The same tables on other kinds of Spark (executors in their own processes, a standalone master, Spark Connect) and
from captures in an object store.

Each runs in a process of its own, because one process holds one session.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyspark
import pytest

from rtmp_spark.spark.jars import delta_jars
from rtmp_spark.spark.session import CATALOG, EXTENSION

pytestmark = pytest.mark.slow

NAMES = ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")
INGEST = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]))"


def python(code: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        text=True,
        capture_output=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr


def run(lake: Path, sample_pcaps: Path, *extra: str, **environment: str) -> None:
    python(INGEST, "ingest", *(str(sample_pcaps / n) for n in NAMES), "--lake", str(lake), *extra, **environment)


def rows(lake: Path, table: str) -> list[str]:
    found = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table()
    return sorted(map(repr, found.drop(["ingest_id"]).to_pylist()))


@pytest.fixture(scope="module")
def local(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("local") / "lake"
    run(lake, sample_pcaps)
    return lake


def assert_same(local: Path, lake: Path) -> None:
    for table in ("messages", "commands", "media_tags", "connections", "findings", "deliveries"):
        assert rows(local, table) == rows(lake, table), table
    open_flows = [deltalake.DeltaTable(str(one / "open_flows")).to_pyarrow_table() for one in (local, lake)]
    assert len({tuple(sorted(table["uid"].to_pylist())) for table in open_flows}) == 1


def test_executors_in_their_own_processes(local: Path, sample_pcaps: Path, tmp_path: Path) -> None:
    run(tmp_path / "lake", sample_pcaps, "--master", "local-cluster[2,1,1024]", "--split-size", "64KB")
    assert_same(local, tmp_path / "lake")


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
    assert_same(local, tmp_path / "lake")


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
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
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


@pytest.fixture
def object_store() -> Iterator[dict[str, str]]:
    """An S3 server on loopback; the environment that leads there."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed (extra: test)")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server.stop()


def test_captures_in_an_object_store(
    local: Path, object_store: dict[str, str], sample_pcaps: Path, tmp_path: Path
) -> None:
    """A directory by `s3`, whose name is data, and a file by `s3a`."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=object_store["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="captures")
    client.upload_file(str(sample_pcaps / NAMES[0]), "captures", f"50% of day 1/{NAMES[0]}")
    client.upload_file(str(sample_pcaps / NAMES[1]), "captures", NAMES[1])
    lake = tmp_path / "lake"
    addresses = ["s3://captures/50%25 of day 1", f"s3a://captures/{NAMES[1]}"]
    python(INGEST, "ingest", *addresses, "--lake", str(lake), "--split-size", "64KB", **object_store)
    assert_same(local, lake)
