"""`format("pcap")`: the packets that Wireshark counts, from whole files or byte ranges, batch or streaming."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from scapy.layers.inet import IP, TCP
from scapy.utils import PcapReader

from rtmp_spark.spark import register

NAME = "ffmpeg_publish_h264_aac.pcap"


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def load(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    return spark.read.format("pcap").options(**options).load([str(p) for p in paths])


def test_headers_are_those_scapy_reads(spark: SparkSession, sample_pcaps: Path) -> None:
    expected = []
    with PcapReader(str(sample_pcaps / NAME)) as reader:
        for number, packet in enumerate(reader, 1):
            ip, tcp = packet[IP], packet[TCP]
            payload = ip.len - ip.ihl * 4 - tcp.dataofs * 4
            expected.append((number, ip.src, tcp.sport, ip.dst, tcp.dport, tcp.seq, int(tcp.flags), payload))
    columns = ["frame", "src", "sport", "dst", "dport", "seq", "flags", "payload_length"]
    got = [tuple(r) for r in load(spark, sample_pcaps / NAME).select(*columns).orderBy("frame").collect()]
    assert got == expected


def test_byte_ranges_give_the_same_packets(spark: SparkSession, sample_pcaps: Path) -> None:
    whole = load(spark, sample_pcaps / NAME).drop("frame")
    cut = load(spark, sample_pcaps / NAME, splitSize="40000").drop("frame")
    assert cut.select("record_offset").distinct().count() == cut.count() == whole.count()
    assert cut.exceptAll(whole).isEmpty()


def test_unusual_file_names_and_sql(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a[x]'.pcap"
    shutil.copy(sample_pcaps / NAME, odd)
    assert load(spark, odd).count() == load(spark, sample_pcaps / NAME).count()
    shutil.copy(odd, tmp_path / "b.pcap")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW packets USING pcap OPTIONS (path '{tmp_path}/b.pcap', payload 'true')")
    row = spark.sql("SELECT sum(length(payload)) AS a, sum(payload_length) AS b FROM packets").first()
    assert row is not None and row["a"] == row["b"] > 0


def test_an_empty_directory_has_no_packets(spark: SparkSession, tmp_path: Path) -> None:
    assert load(spark, tmp_path).count() == 0


def stream(spark: SparkSession, captures: Path, into: Path) -> int:
    """Stream the current files into a Delta table, two per batch; returns the number of batches in the checkpoint."""
    packets = spark.readStream.format("pcap").options(settle="0", maxFilesPerTrigger="2", splitSize="40000")
    writer = packets.load(str(captures)).writeStream.option("checkpointLocation", f"{into}/checkpoint")
    writer.trigger(availableNow=True).start(f"{into}/packets", "delta").awaitTermination()
    return sum(file.name.isdecimal() for file in (into / "checkpoint" / "commits").iterdir())


def test_a_stream_delivers_each_file_once(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """Also after restarts, for late files with old times and names like patterns; Spark's file stream fails there."""
    captures = tmp_path / "captures"
    captures.mkdir()
    for name in (b"good.pcap", b"good[x].pcap", b"good\xff.pcap"):
        shutil.copy(sample_pcaps / NAME, captures / os.fsdecode(name))
    (captures / "bad.pcap").write_text("no capture")
    (captures / "bad empty.pcap").touch()
    assert stream(spark, captures, tmp_path) == 3
    assert stream(spark, captures, tmp_path) == 3  # nothing new
    late = captures / "good late.pcap"
    shutil.copy(sample_pcaps / "capture_gap_lost_packets.pcap", late)
    os.utime(late, (1, 1))
    assert stream(spark, captures, tmp_path) == 4
    streamed = spark.read.format("delta").load(f"{tmp_path}/packets")
    batch = load(spark, captures / "good*", splitSize="40000")
    assert streamed.schema == batch.schema
    assert streamed.count() == batch.count() > 0
    assert streamed.exceptAll(batch).isEmpty()


def test_a_running_stream_delivers_new_files(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    names = [str(tmp_path / "a[x].pcap"), str(tmp_path / "*.pcap")]  # nothing fits yet
    packets = spark.readStream.format("pcap").options(settle="0", paths=json.dumps(names)).load()
    query = packets.writeStream.queryName("streamed").start(format="memory")
    try:
        for name in ("b.pcap", "a[x].pcap"):
            query.processAllAvailable()
            shutil.copy(sample_pcaps / NAME, tmp_path / name)
        query.processAllAvailable()
    finally:
        query.stop()
    batch = load(spark, tmp_path)
    assert spark.table("streamed").count() == batch.count()
    assert spark.table("streamed").exceptAll(batch).isEmpty()
