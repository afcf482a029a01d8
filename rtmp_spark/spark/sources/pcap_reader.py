"""`format("pcap")` for `spark.read` and `spark.readStream`: the packets of captures as rows, read in byte ranges.

    register(spark)
    spark.read.format("pcap").load("day/*.pcap").where("dport = 1935")
    CREATE TEMPORARY VIEW packets USING pcap OPTIONS (path 'day.pcap')
    spark.readStream.format("pcap").load("captures")  # as files are closed: packet_stream.py

Classic uncompressed pcaps are cut into ranges (option `splitSize`, bytes, default 64 MB; 0 keeps files whole);
others are one partition each. `frame` is known where a file is read in one piece, `record_offset` wherever there
are ranges to cut. Payload bytes come only with option `payload` = true. It reassembles and decodes nothing.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rtmp_spark.codec.errors import CaptureError, UserError

from .paths import CaptureFile, list_captures, open_file
from .scan import is_plain_pcap
from .tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rtmp_spark.capture.block import PacketBlock

SPLIT_BYTES = 64 << 20
ROWS = 32_768  # per Arrow batch

_PACKETS = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("frame", pa.int64()),
        pa.field("record_offset", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("ts_ns", pa.int64()),
        pa.field("caplen", pa.int32()),
        pa.field("origlen", pa.int32()),
        pa.field("link_type", pa.int32()),
        pa.field("vlan", pa.int32()),
        pa.field("src", pa.string()),
        pa.field("sport", pa.int32()),
        pa.field("dst", pa.string()),
        pa.field("dport", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("ack", pa.int64()),
        pa.field("flags", pa.int32()),
        pa.field("window", pa.int32()),
        pa.field("payload_length", pa.int32()),
        pa.field("payload_missing", pa.int32()),
    ]
)
_PAYLOAD = pa.field("payload", pa.binary())


@dataclass
class PacketRange(InputPartition):
    path: str
    start: int
    end: int  # 0: not a plain classic pcap, read from its start to its end
    whole: bool

    def __init__(self, path: str, start: int, end: int, whole: bool) -> None:
        super().__init__((path, start, end, whole))
        self.path, self.start, self.end, self.whole = path, start, end, whole


class PcapDataSource(DataSource):
    """The data source behind the name `pcap`."""

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        return spark_schema(packet_schema(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return PcapReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .packet_stream import PcapStreamReader  # most sessions read no stream

        return PcapStreamReader(dict(self.options))


def packet_schema(options: Mapping[str, str]) -> pa.Schema:
    return _PACKETS.append(_PAYLOAD) if _is_on(options, "payload") else _PACKETS


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name, "false")).lower() in ("true", "1", "yes")


def number(options: Mapping[str, str], name: str, default: int, remedy: str) -> int:
    """An option; Spark hands their names over in lower case."""
    given = options.get(name) or options.get(name.lower()) or str(default)
    if not given.isdecimal():
        raise UserError(f"The option {name} is {given!r}.", remedy)
    return int(given)


class PcapReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.payload = _is_on(options, "payload")
        self.schema = packet_schema(options)
        self.split_bytes = number(options, "splitSize", SPLIT_BYTES, "Give a number of bytes; 0 keeps files whole.")
        given = json.loads(options["paths"]) if "paths" in options else [options["path"]] if "path" in options else []
        if not given:
            raise UserError("No capture was named.", 'Give one: spark.read.format("pcap").load(path).')
        self.paths: list[str] = given

    def partitions(self) -> list[InputPartition]:
        return self.ranges(list_captures(self.paths))

    def ranges(self, files: Iterable[CaptureFile]) -> list[InputPartition]:
        ranges: list[InputPartition] = []
        for file in files:
            size = file.size_bytes
            if not is_plain_pcap(file.path):
                ranges.append(PacketRange(file.path, 0, 0, whole=True))
                continue
            step = self.split_bytes or size
            for start in range(0, size, step):
                ranges.append(PacketRange(file.path, start, min(start + step, size), whole=step >= size))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PacketRange):  # an empty list of partitions arrives as one without a value
            return
        try:
            yield from self.packets(partition)
        except CaptureError as error:
            raise ValueError(f"{partition.path}: {error.detail}") from None

    def packets(self, partition: PacketRange) -> Iterator[pa.RecordBatch]:
        from rtmp_spark.capture.packet import Dissector

        dissector = Dissector()
        shown = partition.path.encode("utf-8", "backslashreplace").decode()  # names need not be UTF-8, text is
        with open_file(partition.path) as file:
            for block, offsets in _blocks(file, partition):
                columns = _columns(block, dissector, self.payload)
                count = len(block)
                columns["path"] = pa.array([shown], pa.string()).take(pa.array(np.zeros(count, np.int64)))
                columns["record_offset"] = pa.nulls(count, pa.int64()) if offsets is None else pa.array(offsets)
                if not partition.whole:
                    columns["frame"] = pa.nulls(count, pa.int64())
                batch = pa.record_batch([columns[f.name].cast(f.type) for f in self.schema], schema=self.schema)
                for start in range(0, count, ROWS):
                    yield batch.slice(start, ROWS)


def _blocks(file: BinaryIO, partition: PacketRange) -> Iterator[tuple[PacketBlock, Any]]:
    """Windows of packets, and where in the file each record stands if that can be told."""
    from rtmp_spark.capture.files import open_capture, read_range
    from rtmp_spark.capture.pcap import FILE_HEADER_BYTES, parse_header

    if not partition.end:
        for block in open_capture(file):
            yield block, None
        return
    header = parse_header(file.read(FILE_HEADER_BYTES))
    reader = read_range(file, partition.start, partition.end, header)
    for block in reader:
        assert reader.ended is not None
        window_at = reader.ended - int(block.start[-1] + block.caplen[-1])
        yield block, block.start + (window_at - header.record_header_bytes)


def _columns(block: PacketBlock, dissector: Any, payload: bool) -> dict[str, pa.Array]:
    count = len(block)
    segments = dissector.segments(block)
    columns: dict[str, pa.Array] = {
        "frame": pa.array(block.frame),
        "ts": pa.array(block.ts_ns // 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "ts_ns": pa.array(block.ts_ns),
        "caplen": pa.array(block.caplen),
        "origlen": pa.array(block.origlen),
        "link_type": pa.array(block.link_type),
    }
    row = np.searchsorted(block.frame, segments.frame)
    place = np.full(count, -1, np.int64)
    place[row] = np.arange(len(segments))
    where = pa.array(place, mask=place < 0)  # the segment of each packet; null for what is no TCP
    columns["src"] = pa.array(_addresses(segments.src), pa.string()).take(where)
    columns["dst"] = pa.array(_addresses(segments.dst), pa.string()).take(where)
    columns["vlan"] = pa.array(segments.vlan, mask=segments.vlan < 0).take(where)
    for name, values in (
        ("sport", segments.sport),
        ("dport", segments.dport),
        ("seq", segments.seq),
        ("ack", segments.ack),
        ("flags", segments.flags),
        ("window", segments.window),
        ("payload_length", segments.length),
        ("payload_missing", segments.missing),
    ):
        columns[name] = pa.array(values).take(where)
    if payload:
        data = segments.data
        parts = [data[s : s + n] for s, n in zip(segments.start.tolist(), segments.length.tolist())]
        columns["payload"] = pa.array(parts, pa.binary()).take(where)
    return columns


def _addresses(packed: Any) -> list[str]:
    """(n, 16) bytes as text; IPv4 is mapped into IPv6 there."""
    if not len(packed):
        return []
    unique, index = np.unique(np.ascontiguousarray(packed).view("V16").ravel(), return_inverse=True)
    texts = []
    for raw in unique:
        address = ipaddress.IPv6Address(bytes(raw))
        texts.append(str(address.ipv4_mapped or address))
    return [texts[i] for i in index.tolist()]


def register(spark: SparkSession) -> None:
    """Make `format("pcap")` known to this session."""
    spark.dataSource.register(PcapDataSource)
