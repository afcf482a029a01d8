"""Records of a classic pcap, read window by window from the start or from any byte of the file.

The loop over a window only collects offsets; times and lengths are then read as columns. An impossible record header
ends the reading, because no later record can be found with certainty.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from rtmp_spark.capture.files.pcap import PcapHeader
from rtmp_spark.capture.files.read_windows import Source, Windows
from rtmp_spark.capture.packet_block import Ints, PacketBlock, rows_at
from rtmp_spark.capture.problem import FILE_DAMAGED_HINT, FILE_INCOMPLETE_HINT, Problem
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import (
    RECORD_CHAIN_LEAST,
    RECORD_CHAIN_LENGTH,
    RECORD_CHAIN_SECONDS,
    RECORD_PLAUSIBLE_BYTES,
    Limits,
)


class RecordReader:
    """Iterates the windows of `source`, whose next byte begins a record at the file offset `offset`."""

    def __init__(
        self, source: Source, header: PcapHeader, limits: Limits, window_bytes: int, offset: int, end: int | None = None
    ) -> None:
        self._windows = Windows(source, window_bytes)
        self._header = header
        self._limits = limits
        self._end = end  # records that start here or later belong to the next range
        self.window_at = offset  # where the last window begins in the file
        self.ended = offset  # after the last record
        self.records = 0
        self.zero_length = 0
        self.over_snaplen = 0
        self.problem: Problem | None = None

    def __iter__(self) -> Iterator[PacketBlock]:
        position = 0
        while self.problem is None:
            data, size, last = self._windows.after(position)
            self.window_at = self.ended
            offsets, position = self._walk(data, size)
            if len(offsets):
                block = self._columns(data, offsets)
                self.ended += position
                del data
                if len(block):
                    yield block
                del block
            if self._end is not None and self.ended >= self._end:
                return
            if last:
                if position < size and self.problem is None:
                    self.problem = Problem(
                        ViolationCode.CAPTURE_TRUNCATED,
                        f"the file ends inside a record, {size - position} bytes after the last complete packet",
                        FILE_INCOMPLETE_HINT,
                        frame=self.records,
                    )
                return

    def _walk(self, data: bytes, size: int) -> tuple[Ints, int]:
        """Offsets of the complete records of a window, and the offset of the next one.

        Lengths are checked afterwards, all at once: the loop ends even if one is wrong, because it only moves forward.
        """
        header_bytes = self._header.record_header_bytes
        incl_len_at = struct.Struct(self._header.byte_order + "8xI").unpack_from
        last = size - header_bytes
        if self._end is not None:
            last = min(last, self._end - self.ended - 1)
        offsets: list[int] = []
        append = offsets.append
        position = 0
        while position <= last:
            append(position)
            position += header_bytes + incl_len_at(data, position)[0]
        append(position)
        starts = np.array(offsets, np.int64)
        incl_len = np.diff(starts) - header_bytes
        false = np.flatnonzero(incl_len > self._limits.pcap_record_bytes)
        if not len(false):
            whole = len(incl_len) - int(position > size)
        else:
            whole = int(false[0])
            number = self.records + whole + 1
            self.problem = Problem(
                ViolationCode.CAPTURE_BAD_RECORD,
                f"a packet claims {incl_len[whole]} captured bytes",
                FILE_DAMAGED_HINT,
                frame=number,
            )
        return starts[:whole], int(starts[whole])

    def _columns(self, data: bytes, offsets: Ints) -> PacketBlock:
        header = self._header
        fields = rows_at(data, offsets, 16).view(header.byte_order + "u4").astype(np.int64)
        caplen = fields[:, 2]
        block = PacketBlock(
            data,
            np.arange(self.records + 1, self.records + 1 + len(offsets), dtype=np.int64),
            fields[:, 0] * 1_000_000_000 + fields[:, 1] * (1 if header.nanosecond else 1000),
            offsets + header.record_header_bytes,
            caplen,
            np.maximum(fields[:, 3], caplen),
            np.full(len(offsets), header.link_type, np.int64),
        )
        self.records += len(offsets)
        self.over_snaplen += int(np.count_nonzero(caplen > header.snaplen)) if header.snaplen else 0
        empty = int(np.count_nonzero(caplen == 0))
        if empty:
            self.zero_length += empty
            block = block.select(caplen > 0)
        return block


def first_record(data: bytes, header: PcapHeader, limits: Limits, *, at_file_end: bool) -> int | None:
    """Offset of the first record header in `data`, which may start anywhere in a file: it begins a plausible chain."""
    header_bytes = header.record_header_bytes
    places = min(len(data), limits.pcap_record_bytes + header_bytes) - 15
    if places <= 0:
        return None
    view = np.lib.stride_tricks.as_strided(np.frombuffer(data, np.uint8), (places, 4), (1, 1), writeable=False)

    def field(at: int) -> Ints:
        shifted = np.lib.stride_tricks.as_strided(
            np.frombuffer(data, np.uint8)[at:], view.shape, (1, 1), writeable=False
        )
        column: Ints = np.ascontiguousarray(shifted).view(header.byte_order + "u4")[:, 0].astype(np.int64)
        return column

    fraction, incl_len, origlen = field(4), field(8), field(12)
    plausible = (
        (incl_len <= limits.pcap_record_bytes)
        & (incl_len > 0)
        & (origlen >= incl_len)
        & (origlen < RECORD_PLAUSIBLE_BYTES)
        & (fraction < (1_000_000_000 if header.nanosecond else 1_000_000))
    )
    for place in np.flatnonzero(plausible).tolist():
        if _chain_holds(data, place, header, limits, at_file_end):
            return int(place)
    return None


def _chain_holds(data: bytes, position: int, header: PcapHeader, limits: Limits, at_file_end: bool) -> bool:
    record = struct.Struct(header.byte_order + "IIII").unpack_from
    per_second = 1_000_000_000 if header.nanosecond else 1_000_000
    before: int | None = None
    for hops in range(RECORD_CHAIN_LENGTH):
        if position == len(data) and at_file_end:
            return hops > 0
        if position + 16 > len(data):
            return hops >= RECORD_CHAIN_LEAST
        seconds, fraction, incl_len, origlen = record(data, position)
        if incl_len > limits.pcap_record_bytes or origlen > RECORD_PLAUSIBLE_BYTES or fraction >= per_second:
            return False
        if before is not None and abs(seconds - before) > RECORD_CHAIN_SECONDS:
            return False
        before = seconds
        position += header.record_header_bytes + incl_len
    return True
