"""Open a capture file of any supported format and read it in windows of packets.

A damaged capture gives all packets before the damage; its facts then have the status "partial" and a Problem. Only
input that is not a capture at all raises CaptureError. To add a file format, recognise its first bytes in
`Capture.__init__` and write a reader like `pcap_records.RecordReader` and `pcapng.BlockReader`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from os import PathLike, fspath
from types import TracebackType
from typing import BinaryIO

from rtmp_spark.capture.files.compression import ByteStream, ReadAhead, open_stream
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.capture.files.pcap import FILE_HEADER_BYTES, NOT_A_CAPTURE_HINT, PcapHeader, byte_order_of, parse_header
from rtmp_spark.capture.files.pcap_records import RecordReader
from rtmp_spark.capture.files.pcapng import SECTION_HEADER, BlockReader
from rtmp_spark.capture.packet_block import PacketBlock
from rtmp_spark.capture.problem import Problem
from rtmp_spark.codec.errors import CaptureError
from rtmp_spark.codec.limits import DEFAULT_LIMITS, FIRST_WINDOW_BYTES, MIB, READ_WINDOW_BYTES, Limits

_SECTION_MAGIC = SECTION_HEADER.to_bytes(4, "little")

OnBytes = Callable[[bytes | memoryview], None]


class _CountedStream:
    """Passes decompressed bytes to a reader, counts them and shows each byte to `on_bytes` once."""

    def __init__(self, head: bytes, stream: ByteStream, on_bytes: OnBytes | None) -> None:
        self._head = head
        self._stream = stream
        self._on_bytes = on_bytes
        self.size_bytes = len(head)
        self._repeated = 0  # bytes that the next reads give a second time
        if on_bytes is not None and head:
            on_bytes(head)

    def read(self, size: int, /) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head if self._stream.live else head + self.read(max(size - len(head), 1))
        data = self._stream.read_some(size)
        repeated = min(self._repeated, len(data))
        self._repeated -= repeated
        self.size_bytes += len(data) - repeated
        if self._on_bytes is not None and len(data) > repeated:
            self._on_bytes(memoryview(data)[repeated:])
        return data

    def drain(self) -> None:
        """Show the rest to `on_bytes`: a file is identified by all of its bytes, including those after damage."""
        while self._on_bytes is not None and self.read(MIB):
            pass

    def back(self, size: int, /) -> bool:
        if self._stream.back(size):
            self._repeated += size
            return True
        return False


class Capture:
    """One capture file: iterate it once for its PacketBlocks. `facts` grow with each block and are final after that."""

    def __init__(
        self,
        file: BinaryIO,
        limits: Limits = DEFAULT_LIMITS,
        window_bytes: int = READ_WINDOW_BYTES,
        on_bytes: OnBytes | None = None,
        facts: FileFacts | None = None,
        *,
        close_file: bool = False,
        read_ahead: bool = False,
    ) -> None:
        """`facts` is the value to fill in, if there is one already. `read_ahead`: decompress in a thread."""
        self._file = file
        self._close_file = close_file
        self._stream = open_stream(file, limits)
        if read_ahead and self._stream.compression:
            self._stream = ReadAhead(self._stream)
        self.facts = FileFacts() if facts is None else facts
        self.header: PcapHeader | None = None
        self._reader: RecordReader | BlockReader
        head = self._stream.read(FILE_HEADER_BYTES)
        if not head:
            raise self._refusal("the file is empty", "there is nothing to read; capture again")
        if head[:4] == _SECTION_MAGIC:
            self.facts.format = "pcapng"
            self._counted = _CountedStream(head, self._stream, on_bytes)
            self._reader = BlockReader(self._counted, limits, window_bytes)
        elif len(head) >= 4 and byte_order_of(head[:4]) is not None:
            self.facts.format = "pcap"
            self.header = parse_header(head)
            self._counted = _CountedStream(b"", self._stream, on_bytes)
            self._counted.size_bytes = len(head)
            if on_bytes is not None:
                on_bytes(head)
            self._reader = RecordReader(self._counted, self.header, limits, window_bytes, len(head))
        else:
            raise self._refusal("this is not a capture file", NOT_A_CAPTURE_HINT)
        self.facts.compression = self._stream.compression or None
        self._blocks = iter(self._reader)
        self._peeked: list[PacketBlock] = []
        self._update_facts()

    def _refusal(self, detail: str, hint: str) -> CaptureError:
        self.close()
        problem = self._stream.problem
        return CaptureError(*problem) if problem is not None else CaptureError(None, detail, hint)

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._close_file:
            self._file.close()

    def __iter__(self) -> Iterator[PacketBlock]:
        while True:
            block = self._peeked.pop() if self._peeked else next(self._blocks, None)
            if block is None:
                self._counted.drain()
                self._update_facts()
                self.facts.conclude()
                return
            self.facts.add_packets(block)
            self._update_facts()
            yield block
            del block

    def first_ts_ns(self) -> int | None:
        """The time of the first packet; the packet remains to be iterated."""
        if not self._peeked:
            block = next(self._blocks, None)
            if block is None:
                return None
            self._peeked.append(block)
        return int(self._peeked[0].ts_ns[0])

    def _update_facts(self) -> None:
        facts, reader = self.facts, self._reader
        facts.packets, facts.zero_length, facts.over_snaplen = reader.records, reader.zero_length, reader.over_snaplen
        if isinstance(reader, BlockReader):
            facts.link_types, facts.snaplen = sorted(reader.link_types), reader.snaplen or None
        elif self.header is not None:
            facts.link_types, facts.snaplen = [self.header.link_type], self.header.snaplen or None
        facts.with_secrets = bool(self.decryption_secrets)
        facts.error = self._error()

    def _error(self) -> Problem | None:
        ts_ns = self.facts.ts_tail_ns
        if self._stream.problem is not None:
            code, detail, hint = self._stream.problem
            return Problem(code, detail, hint, frame=self.facts.packets or None, ts_ns=ts_ns)
        problem = self._reader.problem
        return problem and replace(problem, ts_ns=ts_ns)

    @property
    def size_bytes(self) -> int:
        """Decompressed bytes read so far."""
        return self._counted.size_bytes

    @property
    def decryption_secrets(self) -> list[tuple[int, bytes]]:
        """Type and content of the Decryption Secrets Blocks read so far."""
        return self._reader.decryption_secrets if isinstance(self._reader, BlockReader) else []


def open_capture(
    source: str | PathLike[str] | BinaryIO,
    limits: Limits = DEFAULT_LIMITS,
    *,
    window_bytes: int = READ_WINDOW_BYTES,
    on_bytes: OnBytes | None = None,
    facts: FileFacts | None = None,
    read_ahead: bool = False,
) -> Capture:
    """Open a path, `-` for standard input, or a binary file object. `read_ahead`: decompress in a thread."""
    if not isinstance(source, (str, PathLike)):
        return Capture(source, limits, window_bytes, on_bytes, facts, read_ahead=read_ahead)
    if fspath(source) == "-":
        return Capture(sys.stdin.buffer, limits, window_bytes, on_bytes, facts, read_ahead=read_ahead)
    return Capture(open(source, "rb"), limits, window_bytes, on_bytes, facts, close_file=True, read_ahead=read_ahead)


def sort_by_first_packet(
    paths: Iterable[str | PathLike[str]],
    limits: Limits = DEFAULT_LIMITS,
    look_at: Callable[[Capture], object] | None = None,
) -> list[tuple[str | PathLike[str], int | None]]:
    """The files of one recording with the time of their first packet, in that order. Unreadable and empty files come
    last, without a time.

    `look_at` gets each capture, read up to its first packets.
    """

    def begins(path: str | PathLike[str]) -> tuple[bool, int, str]:
        try:
            with open_capture(path, limits, window_bytes=FIRST_WINDOW_BYTES) as capture:
                first = capture.first_ts_ns()
                if look_at is not None:
                    look_at(capture)
        except (OSError, CaptureError):
            first = None
        return first is None, first or 0, fspath(path)

    found = sorted(((begins(path), path) for path in paths), key=lambda pair: pair[0])
    return [(path, None if is_empty else first) for (is_empty, first, _), path in found]
