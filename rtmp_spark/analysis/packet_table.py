"""Rows of packets to rows of a table: the analysis of connections whose packets come as Arrow batches, not as files.

The batches have the columns of `format("pcap")` with payload, from whatever source, and hold all packets of some
connections, in their order. Every connection is analysed alone: no rule compares connections, and every stream counts
as a first attempt.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.analysis.core import AnalysisCore
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.memory_tuning import rare_collections
from rtmp_spark.capture.packet_block import PADDING, Ints, PacketBlock
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.codec.limits import ANALYZED_BYTES, REMEMBERED_PACKETS
from rtmp_spark.schema import TABLES, arrow_schema

REQUIRED = ("ts_ns", "src", "sport", "dst", "dport", "seq", "ack", "flags", "window", "payload")
OPTIONAL = ("payload_missing", "vlan", "ip_id", "window_scale", "tcp_header")
PLACE = ("path", "frame", "record_offset")  # where a packet is: its file, and its place there
DECODED = tuple(name for name in TABLES if name not in ("captures", "deliveries", "paths", "open_flows"))
_FRAMES = ("frame", "frame_first", "frame_last")
_CAPTURES = ("capture_id", "capture_id_last")
_NO_HEADER = bytes(20)  # its checksum 0 counts as unknown


class PacketTable:
    """Decodes the packets of some connections into one table. A capture is named by its path."""

    def __init__(self, settings: Settings, table: str) -> None:
        self.schema = decoded_schema(table)
        self._table = table
        self._core = AnalysisCore(replace(settings, rules_across_connections=False), (table,))
        self._core.remember_packets(REMEMBERED_PACKETS)  # later batches may be of other files
        self._paths: list[str | None] = []
        self._count = 0
        self._has_frames = True

    def rows(self, packets: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of these packets, all of them TCP. Files follow each other in the batches."""
        with rare_collections():
            read = 0
            for batch in packets:
                for number, part in self._by_file(batch):
                    segments = segments_of(part, self._places(part))
                    self._core.feed(_block(segments), segments, number)
                    read += len(segments.data)
                yield from self._made(self._core.ready())
                if read >= ANALYZED_BYTES:
                    yield from self._made(self._core.batches(self._paths))
                    read = 0
            self._core.finish()
            self._core.sink.add("streams", self._core.sink.take_late("streams"))
            yield from self._made(self._core.batches(self._paths))

    def _by_file(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Parts of the batch with the number of their file."""
        if not batch.num_rows:
            return
        paths = batch.column("path").to_pylist() if "path" in batch.schema.names else [None] * batch.num_rows
        begins = [0, *(n for n in range(1, len(paths)) if paths[n] != paths[n - 1])]
        for begin, end in zip(begins, [*begins[1:], len(paths)]):
            if not self._paths or self._paths[-1] != paths[begin]:
                self._paths.append(paths[begin])
            yield len(self._paths) - 1, batch.slice(begin, end - begin)

    def _places(self, batch: pa.RecordBatch) -> Ints:
        """Ascending numbers of the packets: their frame numbers, or their order where these are unknown."""
        frames = batch.column("frame") if "frame" in batch.schema.names else pa.nulls(batch.num_rows)
        if not frames.null_count:
            return _ints(frames)
        self._has_frames = False
        first, self._count = self._count, self._count + batch.num_rows
        return np.arange(first, self._count) + 1

    def _made(self, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        for _, batch in batches:
            if not self._has_frames:
                batch = _without(batch, _FRAMES)
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def decoded_schema(table: str) -> pa.Schema:
    """The columns of the table; captures and frames may be unknown here."""
    fields = arrow_schema(table)
    return pa.schema([f.with_nullable(True) if f.name in (*_FRAMES, *_CAPTURES) else f for f in fields])


def segments_of(batch: pa.RecordBatch, places: Ints) -> Segments:
    """The TCP segments of packets in the columns REQUIRED and, if there are any, OPTIONAL."""

    def column(name: str, default: int) -> Ints:
        if name not in batch.schema.names:
            return np.full(batch.num_rows, default, np.int64)
        return _ints(batch.column(name), default)

    payload = batch.column("payload").cast(pa.large_binary()).fill_null(b"")
    header = _headers(batch)
    joined = pc.binary_join_element_wise(header, payload, pa.scalar(b"", pa.large_binary()))
    _, offsets, data = joined.buffers()
    begin = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
    header_bytes = _ints(pc.binary_length(header))
    return Segments(
        (data.to_pybytes() if data is not None else b"") + PADDING,
        places,
        column("ts_ns", 0),
        _addresses(batch.column("src")),
        _addresses(batch.column("dst")),
        column("sport", 0),
        column("dport", 0),
        column("seq", 0),
        column("ack", 0),
        column("flags", 0),
        column("window", 0),
        begin[:-1] + header_bytes,
        np.diff(begin) - header_bytes,
        column("payload_missing", 0),
        column("vlan", -1),
        column("window_scale", -1),
        begin[:-1].copy(),
        # Without TCP headers, packets with the same id cannot be distinguished from copies of one packet.
        column("ip_id", 0) if "tcp_header" in batch.schema.names else np.zeros(batch.num_rows, np.int64),
    )


def _headers(batch: pa.RecordBatch) -> pa.Array:
    if "tcp_header" in batch.schema.names:
        return batch.column("tcp_header").cast(pa.large_binary()).fill_null(_NO_HEADER)
    return pa.array([_NO_HEADER] * batch.num_rows, pa.large_binary())


def _addresses(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """(n, 16) bytes; IPv4 is mapped into IPv6."""
    encoded = texts.dictionary_encode()
    packed = [_packed(text) for text in encoded.dictionary.to_pylist()]
    table = np.frombuffer(b"".join(packed), np.uint8).reshape(-1, 16)
    return table[_ints(encoded.indices)]


def _packed(text: str) -> bytes:
    address = ipaddress.ip_address(text)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def _ints(column: pa.Array, default: int = 0) -> Ints:
    numbers = column.cast(pa.int64())
    return np.asarray(numbers.fill_null(default) if numbers.null_count else numbers)


def _block(segments: Segments) -> PacketBlock:
    """The packets of a window, of which only times and numbers are known."""
    unknown = np.zeros(len(segments), np.int64)
    return PacketBlock(segments.data, segments.frame, segments.ts_ns, unknown, unknown, unknown, unknown)


def _without(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    columns = [
        pa.nulls(batch.num_rows, column.type) if field.name in names else column
        for field, column in zip(batch.schema, batch.columns)
    ]
    nullable = pa.schema([f.with_nullable(True) for f in batch.schema])
    return pa.RecordBatch.from_arrays(columns, schema=nullable)
