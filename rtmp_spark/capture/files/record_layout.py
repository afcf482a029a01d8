"""How single records of an uncompressed capture are read, given their places: pcap records, pcapng packet blocks."""

from __future__ import annotations

import struct
from typing import BinaryIO, Protocol

import numpy as np

from rtmp_spark.capture.files.compression import ByteStream
from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, PcapHeader, parse_header
from rtmp_spark.capture.files.pcapng import PACKET_AT, SECTION_HEADER, BlockReader, SectionHead, packets_at
from rtmp_spark.capture.packet_block import Ints, PacketBlock, rows_at
from rtmp_spark.codec.limits import DEFAULT_LIMITS, FIRST_WINDOW_BYTES


class RecordLayout(Protocol):
    header_bytes: int  # from the start of a record to its packet

    def size(self, data: bytes, at: int) -> int:
        """How many bytes the record takes that begins at this offset of `data`."""
        ...

    def block(self, data: bytes, at: Ints, frames: Ints) -> PacketBlock:
        """The packets of the records that begin at these offsets of `data`."""
        ...


class PcapLayout:
    def __init__(self, header: PcapHeader) -> None:
        self._header = header
        self.header_bytes = header.record_header_bytes

    def size(self, data: bytes, at: int) -> int:
        incl_len: int = struct.unpack_from(self._header.byte_order + "I", data, at + 8)[0]
        return self.header_bytes + incl_len

    def block(self, data: bytes, at: Ints, frames: Ints) -> PacketBlock:
        header = self._header
        fields = rows_at(data, at, 16).view(header.byte_order + "u4").astype(np.int64)
        caplen = fields[:, 2]
        return PacketBlock(
            data,
            frames,
            fields[:, 0] * 1_000_000_000 + fields[:, 1] * (1 if header.nanosecond else 1000),
            at + header.record_header_bytes,
            caplen,
            np.maximum(fields[:, 3], caplen),
            np.full(len(at), header.link_type, np.int64),
        )


class PcapngLayout:
    header_bytes = PACKET_AT

    def __init__(self, head: SectionHead) -> None:
        self._head = head

    def size(self, data: bytes, at: int) -> int:
        length: int = struct.unpack_from(self._head.order + "I", data, at + 4)[0]
        return length

    def block(self, data: bytes, at: Ints, frames: Ints) -> PacketBlock:
        found = packets_at(data, self._head, at)
        found.frame = frames
        return found


def section_head(file: BinaryIO) -> BlockReader:
    """A reader that has read a pcapng up to its first packets."""
    head = BlockReader(ByteStream(file), DEFAULT_LIMITS, FIRST_WINDOW_BYTES)
    next(iter(head), None)
    return head


def layout_of(file: BinaryIO) -> RecordLayout:
    """The layout of a file that is open at its beginning."""
    start = file.read(FILE_HEADER_BYTES)
    if start[:4] != SECTION_HEADER.to_bytes(4, "little"):
        return PcapLayout(parse_header(start))
    file.seek(0)
    return PcapngLayout(section_head(file).head)
