"""Read one byte range of an uncompressed capture, so that several processes can share a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Generic, TypeVar

from rtmp_spark.capture.files.compression import ByteStream
from rtmp_spark.capture.files.file_facts import OK, FileFacts
from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, PcapHeader
from rtmp_spark.capture.files.pcap_records import RecordReader, first_record
from rtmp_spark.capture.files.pcapng import BlockReader, first_block
from rtmp_spark.capture.files.record_layout import PcapLayout, PcapngLayout, RecordLayout, section_head
from rtmp_spark.capture.packet_block import Ints, PacketBlock
from rtmp_spark.codec.limits import (
    DEFAULT_LIMITS,
    LIKELY_PACKET_BYTES,
    PACKET_SEARCH_BYTES,
    READ_WINDOW_BYTES,
    Limits,
)

Reader = TypeVar("Reader", RecordReader, BlockReader)


def _even_windows(size: int, window_bytes: int) -> int:
    """The size of equal windows that hold so many bytes and little more: the last one ends where the range ends."""
    count = max(-(-size // window_bytes), 1)
    return -(-(size + count * LIKELY_PACKET_BYTES) // count)


class _Range(Generic[Reader]):
    """The packets of the records that start in [start, end); frame numbers count from 1 inside the range.

    `began` is the offset of the first of them (None: there is none) and `ended` the offset after the last one. If the
    range on the left did not end where this one began, this one found a wrong beginning.
    """

    facts: FileFacts
    began: int | None
    layout: RecordLayout
    _reader: Reader

    def __iter__(self) -> Iterator[PacketBlock]:
        if self.began is not None:
            for block in self._reader:
                self.facts.add_packets(block)
                yield block
                del block
        reader, facts = self._reader, self.facts
        facts.packets, facts.zero_length, facts.over_snaplen = reader.records, reader.zero_length, reader.over_snaplen
        facts.error, facts.status = reader.problem, OK

    @property
    def ended(self) -> int | None:
        return None if self.began is None else self._reader.ended

    def offsets(self, block: PacketBlock) -> Ints:
        """Where the records of these packets of the last window begin in the file."""
        return block.start + (self._reader.window_at - self.layout.header_bytes)


class PcapRange(_Range[RecordReader]):
    """A range of an uncompressed classic pcap with this file header."""

    def __init__(
        self,
        file: BinaryIO,
        start: int,
        end: int,
        header: PcapHeader,
        limits: Limits = DEFAULT_LIMITS,
        window_bytes: int = READ_WINDOW_BYTES,
    ) -> None:
        self.layout = PcapLayout(header)
        self.facts = FileFacts(format="pcap", link_types=[header.link_type], snaplen=header.snaplen or None)
        if start <= FILE_HEADER_BYTES:
            self.began = FILE_HEADER_BYTES
        else:
            file.seek(start)
            probe = file.read(PACKET_SEARCH_BYTES)
            place = first_record(probe, header, limits, at_file_end=len(probe) < PACKET_SEARCH_BYTES)
            self.began = None if place is None or start + place >= end else start + place
        file.seek(end if self.began is None else self.began)
        window_bytes = _even_windows(end - file.tell(), window_bytes)
        self._reader = RecordReader(ByteStream(file), header, limits, window_bytes, file.tell(), end)


class PcapngRange(_Range[BlockReader]):
    """A range of an uncompressed pcapng of one section, with the interfaces before the first packet of the file."""

    def __init__(
        self,
        file: BinaryIO,
        start: int,
        end: int,
        limits: Limits = DEFAULT_LIMITS,
        window_bytes: int = READ_WINDOW_BYTES,
    ) -> None:
        head = section_head(file)
        self._head = head.head
        self.layout = PcapngLayout(self._head)
        snaplen = head.snaplen or None
        self.facts = FileFacts(format="pcapng", link_types=sorted(head.link_types), snaplen=snaplen)
        self.began = start
        if start:
            start += -start % 4
            file.seek(start)
            probe = file.read(PACKET_SEARCH_BYTES)
            place = first_block(probe, self._head.order, limits, at_file_end=len(probe) < PACKET_SEARCH_BYTES)
            self.began = None if place is None or start + place >= end else start + place
        file.seek(end if self.began is None else self.began)
        known = self._head if start else None
        window_bytes = _even_windows(end - file.tell(), window_bytes)
        self._reader = BlockReader(ByteStream(file), limits, window_bytes, known, file.tell(), end)

    @property
    def needs_the_whole_file(self) -> bool:
        """Whether other ranges depend on blocks of this one, or this one on others: more sections or interfaces after
        the first packet, packets without a time, TLS secrets."""
        reader = self._reader
        if self.began is not None and reader.head != self._head:
            return True
        return bool(reader.sections > (self.began == 0) or reader.simple or reader.decryption_secrets)
