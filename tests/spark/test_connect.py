"""An ingest through a running Spark Connect server gives the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from kit.separate_ingest import NAMES, assert_same, free_port, python, wait_for_port

from rtmp_spark.spark.session.spark_session import local_settings

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def connect() -> Iterator[str]:
    """A Spark Connect server with Delta Lake, as an administrator starts one."""
    pytest.importorskip("grpc", reason="the client of Spark Connect is not installed (extra: connect)")
    port = free_port()
    settings = local_settings(small=True) | {  # its class archive
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, server)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


OVER_CONNECT = """
import sys
from pathlib import Path
from pyspark.sql.functions import lit, unhex
from rtmp_spark.spark import (
    Lake, amf0, amf3, decode, decode_packets, flv_tags, ingest, register, rtmp_messages, rtmp_tag, start_spark,
)
lake_path, *paths = sys.argv[1:]
spark = start_spark()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
assert start_spark() is spark, "an existing session is used, as in a notebook"
assert len(ingest(spark, paths, lake_path).ingested) == 2
lake = Lake(spark, lake_path)
assert lake.deliveries.count() == 1
lake.register("rtmp")
messages = lake.messages.count()
assert spark.sql("SELECT * FROM rtmp.messages").count() == messages > 0

register(spark)
assert spark.read.format("rtmp").load(paths).count() == messages
with decode(spark, paths) as tables:
    assert tables.messages.count() == messages
packets = spark.read.format("pcap").option("payload", "true").load(paths)
assert decode_packets(packets).count() == messages
one = spark.range(1).select(
    amf0(unhex(lit("02000161")))["values"].alias("a"), amf3(unhex(lit("0401")))["values"].alias("b"),
    rtmp_tag(lit(8), unhex(lit("af00119056e500")))["tags"][0]["codec"].alias("c"),
    flv_tags(unhex(lit("464c560105000000090000000000")))["tags"].alias("d"),
)
row = one.first()
assert (row.a.toPython(), row.b.toPython(), row.c, row.d) == (["a"], [1], "aac", []), row
assert rtmp_messages(spark.createDataFrame([("a", b"")], "stream string, data binary")).count() == 0
assert spark.sql("SELECT amf0(X'02000161').values:[0]::string").first()[0] == "a"

streamed = lake_path + "-streamed"
def ingested(batch, batch_id):
    from rtmp_spark.spark import ingest_batch
    ingest_batch(batch, batch_id, streamed, app_id="test")
one_file = str(Path(paths[0]).parent / "republish*")
files = spark.readStream.format("pcap").options(filesOnly="true", settle="0").load(one_file)
query = files.writeStream.foreachBatch(ingested).option("checkpointLocation", lake_path + "-checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
assert Lake(spark, streamed).connections.count() == 2
"""


def test_spark_connect(local: Path, connect: str, sample_pcaps: Path, tmp_path: Path) -> None:
    """A server that SPARK_REMOTE names; everything that `rtmp_spark.spark` offers."""
    lake = tmp_path / "lake"
    python(OVER_CONNECT, str(lake), *(str(sample_pcaps / name) for name in NAMES), SPARK_REMOTE=connect)
    assert_same(local, lake)
