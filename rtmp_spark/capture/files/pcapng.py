"""pcapng: sections, interfaces, packets of all three kinds, decryption secrets; unknown blocks are passed over.

A block whose lengths cannot be true, or a packet of an interface that was never described, ends the reading:
what came before stays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rtmp_spark.capture.block import Ints, PacketBlock, Problem, rows_at
from rtmp_spark.capture.buffer import Source, Windows
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import Limits

SECTION_HEADER = 0x0A0D0D0A
_INTERFACE, _PACKET, _SIMPLE, _ENHANCED, _SECRETS = 1, 2, 3, 6, 10
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_IF_TSRESOL, _IF_TSOFFSET = 9, 14
_LATEST_NS = (1 << 63) - 1


@dataclass(frozen=True)
class Interface:
    link_type: int
    snaplen: int
    resolution: int  # if_tsresol as it stands in the file
    offset_seconds: int

    def nanoseconds(self, ticks: Ints) -> Ints:
        """Times in epoch nanoseconds; resolutions beyond any clock give zeros, never an error."""
        count = ticks.astype(np.uint64)
        power = self.resolution & 0x7F
        if self.resolution & 0x80:
            shift = np.uint64(min(power, 63))
            seconds = count >> shift if power < 64 else np.zeros_like(count)
            rest = count & ((np.uint64(1) << shift) - np.uint64(1)) if power < 64 else count
            if power > 30:
                rest = rest >> np.uint64(power - 30) if power - 30 < 64 else np.zeros_like(count)
            ns = (rest * np.uint64(1_000_000_000)) >> np.uint64(min(power, 30))
            seconds = np.minimum(seconds, np.uint64(_LATEST_NS // 1_000_000_000 - 1))
            whole = seconds.astype(np.int64) * 1_000_000_000 + ns.astype(np.int64)
        elif power <= 9:
            scale = 10 ** (9 - power)
            whole = np.minimum(count, np.uint64(_LATEST_NS // scale)).astype(np.int64) * scale
        elif power - 9 <= 19:
            whole = (count // np.uint64(10 ** (power - 9))).astype(np.int64)
        else:
            whole = np.zeros(len(count), np.int64)
        offset = max(-(1 << 32), min(1 << 32, self.offset_seconds)) * 1_000_000_000
        if offset > 0:
            whole = np.minimum(whole, _LATEST_NS - offset)
        return whole + offset


class BlockReader:
    """Iterates the windows of `source`, which stands at the first section header."""

    def __init__(self, source: Source, limits: Limits, window_bytes: int) -> None:
        self._windows = Windows(source, window_bytes)
        self._limits = limits
        self._order = "<"
        self._interfaces: list[Interface] = []
        self._last_ts_ns = 0
        self.records = 0
        self.zero_length = 0
        self.over_snaplen = 0
        self.problem: Problem | None = None
        self.link_types: set[int] = set()
        self.snaplen: int | None = None
        self.decryption_secrets: list[tuple[int, bytes]] = []

    def __iter__(self) -> Iterator[PacketBlock]:
        position = 0
        while self.problem is None:
            data, size, last = self._windows.after(position)
            position = 0
            while True:
                packets, position, section_follows = self._walk(data, size, position)
                if packets:
                    block = self._columns(data, packets)
                    if len(block):
                        yield block
                if not section_follows:
                    break
            if last:
                if position < size and self.problem is None:
                    self.problem = Problem(
                        ViolationCode.CAPTURE_TRUNCATED,
                        f"the file ends inside a block: {size - position} bytes behind the last whole packet",
                        "everything before it was read; wait until the recorder has closed the file",
                        frame=self.records,
                    )
                return

    def _bad(self, detail: str, packets: int) -> None:
        self.problem = Problem(
            ViolationCode.CAPTURE_BAD_RECORD,
            detail,
            "the file is damaged from there on; everything before it was read",
            frame=self.records + packets + 1,
        )

    def _walk(self, data: bytes, size: int, position: int) -> tuple[list[tuple[int, int, int, int]], int, bool]:
        """Packets as (block type, interface, position, block length) until data or the section ends."""
        packets: list[tuple[int, int, int, int]] = []
        most = self._limits.pcapng_block_bytes
        head = struct.Struct(self._order + "III").unpack_from
        tail = struct.Struct(self._order + "I").unpack_from
        while position + 12 <= size:
            kind, length, third = head(data, position)
            if kind == SECTION_HEADER:
                if packets:
                    return packets, position, True
                if position + 28 > size:
                    break
                if not self._begin_section(data, position):
                    self._bad("a section header has no byte-order magic", 0)
                    break
                head = struct.Struct(self._order + "III").unpack_from
                tail = struct.Struct(self._order + "I").unpack_from
                kind, length, third = head(data, position)
            if length < 12 or length % 4 or length > most:
                self._bad(f"a block of type {kind} claims {length} bytes", len(packets))
                break
            following = position + length
            if following > size:
                break
            if tail(data, following - 4)[0] != length:
                self._bad(f"the two lengths of a block of type {kind} differ", len(packets))
                break
            if kind == _ENHANCED:
                interface = third
            elif kind == _PACKET:
                interface = struct.unpack_from(self._order + "H", data, position + 8)[0]
            else:
                interface = 0
            if kind in (_ENHANCED, _PACKET, _SIMPLE):
                if interface >= len(self._interfaces):
                    self._bad(f"a packet of interface {interface}, which was not described", len(packets))
                    break
                if length < (16 if kind == _SIMPLE else 32):
                    self._bad(f"a packet block of {length} bytes", len(packets))
                    break
                packets.append((kind, interface, position, length))
            elif kind == _INTERFACE:
                self._describe_interface(data, position, length)
            elif kind == _SECRETS and length >= 20:
                secrets_type, count = struct.unpack_from(self._order + "II", data, position + 8)
                body = data[position + 16 : following - 4]
                self.decryption_secrets.append((secrets_type, body[:count]))
            position = following
        return packets, position, False

    def _begin_section(self, data: bytes, position: int) -> bool:
        for order in "<>":
            if struct.unpack_from(order + "I", data, position + 8)[0] == _BYTE_ORDER_MAGIC:
                self._order = order
                self._interfaces = []
                return True
        return False

    def _describe_interface(self, data: bytes, position: int, length: int) -> None:
        if length < 20:
            self._bad("an interface description is too short", 0)
            return
        link_type, _reserved, snaplen = struct.unpack_from(self._order + "HHI", data, position + 8)
        resolution, offset = 6, 0
        at, end = position + 16, position + length - 4
        while at + 4 <= end:
            code, count = struct.unpack_from(self._order + "HH", data, at)
            value = data[at + 4 : min(at + 4 + count, end)]
            if code == 0:
                break
            if code == _IF_TSRESOL and value:
                resolution = value[0]
            elif code == _IF_TSOFFSET and len(value) >= 8:
                (offset,) = struct.unpack(self._order + "q", value[:8])
            at += 4 + count + (-count & 3)
        self._interfaces.append(Interface(link_type, snaplen, resolution, offset))
        self.link_types.add(link_type)
        if snaplen:
            self.snaplen = max(self.snaplen or 0, snaplen)

    def _columns(self, data: bytes, packets: list[tuple[int, int, int, int]]) -> PacketBlock:
        table = np.array(packets, np.int64)
        kind, interface, position, length = table.T
        fields = rows_at(data, position, 28).view(self._order + "u4").astype(np.int64)
        simple = kind == _SIMPLE
        snaplens = np.array([i.snaplen or _LATEST_NS for i in self._interfaces], np.int64)[interface]
        caplen = np.where(simple, np.minimum(fields[:, 2], snaplens), fields[:, 5])
        origlen = np.where(simple, fields[:, 2], fields[:, 6])
        start = position + np.where(simple, 12, 28)
        room = length - np.where(simple, 16, 32)
        caplen = np.minimum(caplen, room)  # a packet never reaches beyond its own block
        ts_ns = np.zeros(len(table), np.int64)
        ticks = (fields[:, 3].astype(np.uint64) << np.uint64(32)) | fields[:, 4].astype(np.uint64)
        for number in np.unique(interface).tolist():
            of_it = interface == number
            ts_ns[of_it] = self._interfaces[number].nanoseconds(ticks[of_it].view(np.int64))
        if simple.any():  # these carry no time: that of the packet before them
            known = np.where(~simple, np.arange(len(table)), -1)
            known = np.maximum.accumulate(known)
            ts_ns = np.where(known >= 0, ts_ns[np.maximum(known, 0)], self._last_ts_ns)
        self._last_ts_ns = int(ts_ns[-1])
        block = PacketBlock(
            data,
            np.arange(self.records + 1, self.records + 1 + len(table), dtype=np.int64),
            ts_ns,
            start,
            caplen,
            np.maximum(origlen, caplen),
            np.array([i.link_type for i in self._interfaces], np.int64)[interface],
        )
        self.records += len(table)
        self.over_snaplen += int(np.count_nonzero(caplen > snaplens))
        if not caplen.all():
            self.zero_length += int(np.count_nonzero(caplen == 0))
            block = block.select(caplen > 0)
        return block
