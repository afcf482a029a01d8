"""`format("pcap")`: the packets that Wireshark counts, whole or in byte ranges, at once or as files are closed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from scapy.layers.inet import IP, TCP
from scapy.utils import PcapReader

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import packet_stream, source
from rtmp_spark.spark.packet_stream import PcapStreamReader, ReadAllAvailable, ReadMaxFiles
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


def stream(spark: SparkSession, captures: Path, into: Path) -> int:
    """What is there now into a Delta table, two files a batch; how many batches its checkpoint knows."""
    packets = spark.readStream.format("pcap").options(settle="0", maxFilesPerTrigger="2", splitSize="40000")
    writer = packets.load(str(captures)).writeStream.option("checkpointLocation", f"{into}/checkpoint")
    writer.trigger(availableNow=True).start(f"{into}/packets", "delta").awaitTermination()
    return sum(file.name.isdecimal() for file in (into / "checkpoint" / "commits").iterdir())


def test_a_stream_delivers_each_file_once(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    """Over restarts; late ones with old times and names like patterns too, where the file stream of Spark fails."""
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


def test_a_stream_that_runs_gets_what_comes(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
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


def test_a_mistyped_name_begins_no_stream(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no"):
        PcapStreamReader({"path": str(tmp_path / "mistyped")}).initialOffset()
    for name in ("settle", "maxFilesPerTrigger"):
        with pytest.raises(UserError, match=f"The option {name} is 'ten'."):
            PcapStreamReader({"path": str(tmp_path), name: "ten"})


class Steps:
    """A stream over a directory, step by step; each by a new reader, as after a restart."""

    def __init__(self, directory: Path, settle: int = 0) -> None:
        self.options = {"path": str(directory), "settle": str(settle)}
        self.offset = PcapStreamReader(self.options).initialOffset()

    def next(self, max_files: int = 0) -> list[str]:
        limit = ReadMaxFiles(max_files) if max_files else ReadAllAvailable()
        before, self.offset = self.offset, PcapStreamReader(self.options).latestOffset(self.offset, limit)
        self.offset = json.loads(json.dumps(self.offset))
        return self.planned(before)

    def planned(self, before: dict[str, Any]) -> list[str]:
        ranges = PcapStreamReader(self.options).partitions(before, self.offset)
        return [Path(r.path).name for r in ranges if isinstance(r, source.PacketRange)]


def write(path: Path, modified: float, text: str = "") -> Path:
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def test_steps_of_a_stream(tmp_path: Path) -> None:
    """Oldest first; a batch is the same when it is planned again; one that changed is another; gone is forgotten."""
    for n in (3, 1, 2):
        write(tmp_path / f"{n}.pcap", n)
    steps = Steps(tmp_path)
    assert steps.next(2) == ["1.pcap", "2.pcap"]
    before = steps.offset
    assert steps.next() == ["3.pcap"]
    write(tmp_path / "1.pcap", 4, "changed")
    (tmp_path / "2.pcap").unlink()
    assert steps.planned(before) == ["3.pcap"]
    assert steps.next() == ["1.pcap"]
    assert len(steps.offset["seen"]) == len(before["seen"])  # 1 and 2 then, 3 and the new 1 now
    offset = steps.offset
    assert steps.next() == []
    assert steps.offset == offset


def test_a_stream_leaves_open_files_to_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rotated.pcap", 987)
    write(tmp_path / "open.pcap", 991)
    steps = Steps(tmp_path, settle=10)
    monkeypatch.setattr(packet_stream.time, "time", lambda: 1000.0)
    assert steps.next() == ["rotated.pcap"]
    reader = PcapStreamReader(steps.options)
    reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(packet_stream.time, "time", lambda: 1002.0)
    assert reader.latestOffset(steps.offset, ReadAllAvailable()) == steps.offset  # as it was when the run began
    assert steps.next() == ["open.pcap"]


def test_a_file_that_cannot_be_read_stops_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits until it can be opened; deleted after its batch was planned, it has no rows."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    gone = write(tmp_path / "a.pcap", 1)
    steps = Steps(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(packet_stream, "open_file", refuse)
        assert steps.next() == []
    assert "the stream waits for " in capsys.readouterr().err
    assert steps.next() == ["a.pcap"]
    gone.unlink()
    assert list(PcapStreamReader(steps.options).read(source.PacketRange(str(gone), 0, 0, whole=True))) == []
    assert "a.pcap has no packets for the stream: " in capsys.readouterr().err
