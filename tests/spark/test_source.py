"""`format("pcap")`: the packets that Wireshark counts, whole or in byte ranges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from scapy.layers.inet import IP, TCP
from scapy.utils import PcapReader

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import source
from rtmp_spark.spark.source import register

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


def test_a_split_size_that_is_none() -> None:
    """Below nothing there would be no packets, without a word."""
    for size in ("-5", "64MB", "1e6"):
        with pytest.raises(UserError, match=f"The option splitSize is '{size}'. Give a number of bytes"):
            source.PcapReader({"path": "a.pcap", "splitSize": size})
    assert source.PcapReader({"path": "a.pcap", "splitSize": "0"}).split_bytes == 0


def test_names_are_data_and_sql_can_ask(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a[x]'.pcap"
    shutil.copy(sample_pcaps / NAME, odd)
    assert load(spark, odd).count() == load(spark, sample_pcaps / NAME).count()
    shutil.copy(odd, tmp_path / "b.pcap")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW packets USING pcap OPTIONS (path '{tmp_path}/b.pcap', payload 'true')")
    row = spark.sql("SELECT sum(length(payload)) AS a, sum(payload_length) AS b FROM packets").first()
    assert row is not None and row["a"] == row["b"] > 0


def test_an_empty_directory_has_no_packets(spark: SparkSession, tmp_path: Path) -> None:
    assert load(spark, tmp_path).count() == 0
