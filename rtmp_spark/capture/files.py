"""Open a capture of any kind and read it in windows; or read one byte range of a classic pcap.

A capture that is damaged gives everything before the damage, `status` "partial" and a Problem. Only what is
no capture at all raises (CaptureError).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from os import PathLike, fspath
from types import TracebackType
from typing import BinaryIO

import numpy as np

from rtmp_spark.capture.block import PacketBlock, Problem, often
from rtmp_spark.capture.compression import ByteStream, open_stream
from rtmp_spark.capture.pcap import FILE_HEADER_BYTES, PcapHeader, byte_order_of, parse_header
from rtmp_spark.capture.pcapng import SECTION_HEADER, BlockReader
from rtmp_spark.capture.records import RecordReader, first_record
from rtmp_spark.codec.errors import CaptureError, ViolationCode
from rtmp_spark.codec.limits import DEFAULT_LIMITS, MIB, Limits

WINDOW_BYTES = 8 * MIB
_SEARCH_BYTES = 2 * MIB  # enough for a chain of the largest records
FIRST_WINDOW_BYTES = 1 << 16
_SECTION_MAGIC = SECTION_HEADER.to_bytes(4, "little")


class _Tap:
    """The decompressed bytes on their way to a reader, counted and shown to `on_bytes`."""

    def __init__(self, head: bytes, stream: ByteStream, on_bytes: Callable[[bytes | memoryview], None] | None) -> None:
        self._head = head
        self._stream = stream
        self._on_bytes = on_bytes
        self.size_bytes = len(head)
        self._again = 0  # bytes that come a second time
        if on_bytes is not None and head:
            on_bytes(head)

    def read(self, size: int, /) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head + self.read(max(size - len(head), 1))
        data = self._stream.read(size)
        again = min(self._again, len(data))
        self._again -= again
        self.size_bytes += len(data) - again
        if self._on_bytes is not None and len(data) > again:
            self._on_bytes(memoryview(data)[again:])
        return data

    def drain(self) -> None:
        """Show the rest to `on_bytes`: a file is told by all of its bytes, those behind damage too."""
        while self._on_bytes is not None and self.read(MIB):
            pass

    def back(self, size: int, /) -> bool:
        if self._stream.back(size):
            self._again += size
            return True
        return False


class Capture:
    """One capture file: iterate it once for its PacketBlocks; the facts are final after that."""

    def __init__(
        self,
        file: BinaryIO,
        limits: Limits = DEFAULT_LIMITS,
        window_bytes: int = WINDOW_BYTES,
        on_bytes: Callable[[bytes | memoryview], None] | None = None,
        *,
        close_file: bool = False,
    ) -> None:
        self._file = file
        self._close_file = close_file
        self._stream = open_stream(file, limits)
        self.compression = self._stream.compression
        self.packets_truncated = 0
        self.missing_bytes = 0
        self.time_backwards = 0
        self.ts_first_ns: int | None = None
        self.ts_last_ns: int | None = None
        self._previous_ts_ns: int | None = None
        self._first_backwards: tuple[int, int] | None = None
        self._first_truncated: tuple[int, int] | None = None
        self._finished = False
        self.header: PcapHeader | None = None
        self._reader: RecordReader | BlockReader
        head = self._stream.read(FILE_HEADER_BYTES)
        if not head:
            raise self._refusal("the file is empty", "there is nothing to read; record it again")
        if head[:4] == _SECTION_MAGIC:
            self.format = "pcapng"
            self._tap = _Tap(head, self._stream, on_bytes)
            self._reader = BlockReader(self._tap, limits, window_bytes)
        elif len(head) >= 4 and byte_order_of(head[:4]) is not None:
            self.format = "pcap"
            self.header = parse_header(head)
            self._tap = _Tap(b"", self._stream, on_bytes)
            self._tap.size_bytes = len(head)
            if on_bytes is not None:
                on_bytes(head)
            self._reader = RecordReader(self._tap, self.header, limits, window_bytes, len(head))
        else:
            raise self._refusal("this is not a capture file", "give a pcap or pcapng file, plain, gzip or zstd")
        self._blocks = iter(self._reader)
        self._peeked: list[PacketBlock] = []

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
                self._finished = True
                self._tap.drain()
                return
            self._take_notes(block)
            yield block

    def first_ts_ns(self) -> int | None:
        """The time of the first packet, without using it up."""
        if not self._peeked:
            block = next(self._blocks, None)
            if block is None:
                return None
            self._peeked.append(block)
        return int(self._peeked[0].ts_ns[0])

    def _take_notes(self, block: PacketBlock) -> None:
        missing = block.origlen - block.caplen
        cut = np.flatnonzero(missing)
        self.packets_truncated += len(cut)
        self.missing_bytes += int(missing.sum())
        if len(cut) and self._first_truncated is None:
            self._first_truncated = block.place(int(cut[0]))
        low, high = int(block.ts_ns.min()), int(block.ts_ns.max())
        self.ts_first_ns = low if self.ts_first_ns is None else min(low, self.ts_first_ns)
        self.ts_last_ns = high if self.ts_last_ns is None else max(high, self.ts_last_ns)
        before = int(block.ts_ns[0]) if self._previous_ts_ns is None else self._previous_ts_ns
        back = np.flatnonzero(np.diff(block.ts_ns, prepend=before) < 0)
        if len(back):
            self.time_backwards += len(back)
            if self._first_backwards is None:
                self._first_backwards = block.place(int(back[0]))
        self._previous_ts_ns = int(block.ts_ns[-1])

    @property
    def packets(self) -> int:
        return self._reader.records

    @property
    def zero_length(self) -> int:
        return self._reader.zero_length

    @property
    def size_bytes(self) -> int:
        return self._tap.size_bytes

    @property
    def snaplen(self) -> int | None:
        return self.header.snaplen if self.header is not None else self._pcapng.snaplen

    @property
    def link_types(self) -> list[int]:
        return [self.header.link_type] if self.header is not None else sorted(self._pcapng.link_types)

    @property
    def decryption_secrets(self) -> list[tuple[int, bytes]]:
        return [] if self.header is not None else self._pcapng.decryption_secrets

    @property
    def _pcapng(self) -> BlockReader:
        assert isinstance(self._reader, BlockReader)
        return self._reader

    @property
    def error(self) -> Problem | None:
        """What ended the reading before the end of the file."""
        if self._stream.problem is not None:
            code, detail, hint = self._stream.problem
            return Problem(code, detail, hint, frame=self.packets or None, ts_ns=self._previous_ts_ns)
        problem = self._reader.problem
        return problem and replace(problem, ts_ns=self._previous_ts_ns)

    @property
    def status(self) -> str:
        if self.error is None:
            return "ok"
        return "partial" if self.packets else "failed"

    @property
    def problems(self) -> list[Problem]:
        found = [] if self.error is None else [self.error]
        if self.packets_truncated:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_SNAPLEN,
                    f"{self.missing_bytes} bytes were cut off {self.packets_truncated} packets when they were recorded",
                    "record with a snapshot length of 0 (tcpdump -s 0)",
                    self.packets_truncated,
                    *(self._first_truncated or ()),
                )
            )
        if self._reader.over_snaplen:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_SNAPLEN,
                    f"{self._reader.over_snaplen} packets are longer than the snapshot length of the file",
                    "they were read as they are",
                    self._reader.over_snaplen,
                )
            )
        if self.time_backwards:
            found.append(
                Problem(
                    ViolationCode.CAPTURE_TIME_BACKWARDS,
                    f"packet times go back {often(self.time_backwards)}",
                    "put them in order with reordercap, if you want; the streams are ordered by sequence number anyway",
                    self.time_backwards,
                    *(self._first_backwards or ()),
                )
            )
        return found


def open_capture(
    source: str | PathLike[str] | BinaryIO,
    limits: Limits = DEFAULT_LIMITS,
    *,
    window_bytes: int = WINDOW_BYTES,
    on_bytes: Callable[[bytes | memoryview], None] | None = None,
) -> Capture:
    """Open a path, `-` for standard input, or a binary file object."""
    if not isinstance(source, (str, PathLike)):
        return Capture(source, limits, window_bytes, on_bytes)
    if fspath(source) == "-":
        return Capture(sys.stdin.buffer, limits, window_bytes, on_bytes)
    return Capture(open(source, "rb"), limits, window_bytes, on_bytes, close_file=True)


def sort_by_first_packet(
    paths: Iterable[str | PathLike[str]],
    limits: Limits = DEFAULT_LIMITS,
    look_at: Callable[[Capture], object] | None = None,
) -> list[str | PathLike[str]]:
    """Files of one recording in the order of time; what cannot be read or holds no packet comes last.

    `look_at` gets each, read up to its first packets."""

    def begins(path: str | PathLike[str]) -> tuple[bool, int, str]:
        try:
            with open_capture(path, limits, window_bytes=FIRST_WINDOW_BYTES) as capture:
                first = capture.first_ts_ns()
                if look_at is not None:
                    look_at(capture)
        except (OSError, CaptureError):
            first = None
        return first is None, first or 0, fspath(path)

    return sorted(paths, key=begins)


class RangeReader:
    """The records of a classic pcap that start in [start, end); frames count from 1 inside the range.

    `began` is where the first of them stands (None: none was found) and `ended` where the last one ends: the
    range on the left must have ended where this one began, else this one began at the wrong place.
    """

    def __init__(
        self, file: BinaryIO, start: int, end: int, header: PcapHeader, limits: Limits, window_bytes: int
    ) -> None:
        self.began: int | None = start
        if start <= FILE_HEADER_BYTES:
            self.began = FILE_HEADER_BYTES
        else:
            file.seek(start)
            probe = file.read(_SEARCH_BYTES)
            place = first_record(probe, header, limits, at_file_end=len(probe) < _SEARCH_BYTES)
            self.began = None if place is None or start + place >= end else start + place
        file.seek(end if self.began is None else self.began)
        self._reader = RecordReader(ByteStream(file), header, limits, window_bytes, file.tell(), end)

    def __iter__(self) -> Iterator[PacketBlock]:
        return iter(self._reader) if self.began is not None else iter(())

    @property
    def ended(self) -> int | None:
        return None if self.began is None else self._reader.ended

    @property
    def packets(self) -> int:
        return self._reader.records

    @property
    def error(self) -> Problem | None:
        return self._reader.problem

    @property
    def status(self) -> str:
        return "ok" if self.error is None else "partial"


def read_range(
    file: BinaryIO,
    start: int,
    end: int,
    header: PcapHeader,
    limits: Limits = DEFAULT_LIMITS,
    window_bytes: int = WINDOW_BYTES,
) -> RangeReader:
    """Read the records of an uncompressed classic pcap that start in the byte range [start, end)."""
    return RangeReader(file, start, end, header, limits, window_bytes)
