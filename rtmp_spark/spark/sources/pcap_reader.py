"""Packets of captures as Arrow batches: partitions, columns and options of `format("pcap")`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rtmp_spark.codec.errors import CaptureError, UserError
from rtmp_spark.ingest.captures.capture_paths import CaptureFile, list_captures, open_file
from rtmp_spark.ingest.captures.probed_files import probe
from rtmp_spark.ingest.options import SPLIT_BYTES

from .source_options import InOneSentence, SourceOptions

if TYPE_CHECKING:
    from rtmp_spark.capture.packet_block import PacketBlock

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
        pa.field("ip_id", pa.int32()),
        pa.field("src", pa.string()),
        pa.field("sport", pa.int32()),
        pa.field("dst", pa.string()),
        pa.field("dport", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("ack", pa.int64()),
        pa.field("flags", pa.int32()),
        pa.field("window", pa.int32()),
        pa.field("window_scale", pa.int32()),
        pa.field("payload_length", pa.int32()),
        pa.field("payload_missing", pa.int32()),
    ]
)
_FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("modified_at", pa.timestamp("us", tz="UTC")),
    ]
)
_BYTES = (pa.field("tcp_header", pa.binary()), pa.field("payload", pa.binary()))


@dataclass
class PacketRange(InputPartition):
    path: str
    start: int
    end: int  # 0: not a plain classic pcap, read from its start to its end
    whole: bool

    def __init__(self, path: str, start: int, end: int, whole: bool) -> None:
        super().__init__((path, start, end, whole))
        self.path, self.start, self.end, self.whole = path, start, end, whole


class FileList(InputPartition):
    """The files themselves, with the option `filesOnly`."""

    def __init__(self, files: Sequence[CaptureFile]) -> None:
        super().__init__(tuple(files))
        self.files = files


def packet_schema(options: SourceOptions) -> pa.Schema:
    if options.is_on("filesOnly"):
        return _FILES
    return pa.schema([*_PACKETS, *_BYTES]) if options.is_on("payload") else _PACKETS


class PcapReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.payload = options.is_on("payload")
        self.files_only = options.is_on("filesOnly")
        self.schema = packet_schema(options)
        self.split_bytes = options.number("splitSize", SPLIT_BYTES, "Give a number of bytes; 0 keeps files whole.")
        self.paths = options.paths("pcap")

    def partitions(self) -> list[InputPartition]:
        with InOneSentence():
            return self.ranges(list_captures(self.paths))

    def ranges(self, files: Iterable[CaptureFile]) -> list[InputPartition]:
        if self.files_only:
            return [FileList(list(files))]
        ranges: list[InputPartition] = []
        for file in files:
            size = file.size_bytes
            if not probe(file).is_plain_pcap:
                ranges.append(PacketRange(file.path, 0, 0, whole=True))
                continue
            step = self.split_bytes or size
            for start in range(0, size, step):
                ranges.append(PacketRange(file.path, start, min(start + step, size), whole=step >= size))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, (PacketRange, FileList)):  # Spark makes one without a value if there are none
            return
        with InOneSentence():
            try:
                yield from self.rows(partition)
            except CaptureError as error:
                assert isinstance(partition, PacketRange)
                raise UserError(f"{partition.path} cannot be read: {error.detail}.", "Leave it out.") from None

    def rows(self, partition: PacketRange | FileList) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, FileList):
            rows = [
                {"path": shown(file.path), "size_bytes": file.size_bytes, "modified_at": file.modified_ns // 1000}
                for file in partition.files
            ]
            yield pa.RecordBatch.from_pylist(rows, _FILES)
        else:
            yield from self.packets(partition)

    def packets(self, partition: PacketRange) -> Iterator[pa.RecordBatch]:
        from rtmp_spark.capture.packets.dissector import Dissector

        dissector = Dissector()
        path = shown(partition.path)
        with open_file(partition.path) as file:
            for block, offsets in _blocks(file, partition):
                columns = _columns(block, dissector, self.payload)
                count = len(block)
                columns["path"] = pa.array([path], pa.string()).take(pa.array(np.zeros(count, np.int64)))
                columns["record_offset"] = pa.nulls(count, pa.int64()) if offsets is None else pa.array(offsets)
                if not partition.whole:
                    columns["frame"] = pa.nulls(count, pa.int64())
                batch = pa.record_batch([columns[f.name].cast(f.type) for f in self.schema], schema=self.schema)
                for start in range(0, count, ROWS):
                    yield batch.slice(start, ROWS)


def shown(path: str) -> str:
    """A file name need not be UTF-8, a column must be."""
    return path.encode("utf-8", "backslashreplace").decode()


def _blocks(file: BinaryIO, partition: PacketRange) -> Iterator[tuple[PacketBlock, Any]]:
    """Windows of packets, and the file offset of each record where it is known."""
    from rtmp_spark.capture.files.byte_range import PcapRange
    from rtmp_spark.capture.files.open_capture import open_capture
    from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, parse_header

    if not partition.end:
        for block in open_capture(file):
            yield block, None
        return
    header = parse_header(file.read(FILE_HEADER_BYTES))
    reader = PcapRange(file, partition.start, partition.end, header)
    for block in reader:
        yield block, reader.offsets(block)


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
    where = pa.array(place, mask=place < 0)  # the segment of each packet; null if it is not TCP
    columns["src"] = pa.array(_addresses(segments.src), pa.string()).take(where)
    columns["dst"] = pa.array(_addresses(segments.dst), pa.string()).take(where)
    columns["vlan"] = pa.array(segments.vlan, mask=segments.vlan < 0).take(where)
    columns["window_scale"] = pa.array(segments.wscale, mask=segments.wscale < 0).take(where)
    for name, values in (
        ("ip_id", segments.ip_id),
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
        starts, lengths = segments.start.tolist(), segments.length.tolist()
        headers = [data[at:start] for at, start in zip(segments.header.tolist(), starts)]
        payloads = [data[start : start + length] for start, length in zip(starts, lengths)]
        columns["tcp_header"] = pa.array(headers, pa.binary()).take(where)
        columns["payload"] = pa.array(payloads, pa.binary()).take(where)
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
