"""pcapng: sections, interfaces, the three kinds of packet blocks, decryption secrets. Unknown blocks are skipped.

A block with impossible lengths, or a packet of an interface that was not described, ends the reading; the packets
before it are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rtmp_spark.capture.files.read_windows import Source, Windows
from rtmp_spark.capture.packet_block import Flags, Ints, PacketBlock, joined, rows_at
from rtmp_spark.capture.problem import FILE_DAMAGED_HINT, FILE_INCOMPLETE_HINT, Problem
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import RECORD_CHAIN_LEAST, RECORD_CHAIN_LENGTH, Limits

SECTION_HEADER = 0x0A0D0D0A
INTERFACE, _PACKET, _SIMPLE, ENHANCED, SECRETS = 1, 2, 3, 6, 10
BYTE_ORDER_MAGIC = 0x1A2B3C4D
IF_TSRESOL, _IF_TSOFFSET = 9, 14
PACKET_AT = 28  # the packet begins here in an Enhanced or obsolete Packet Block
_ENHANCED_BYTES = 32  # of such a block without a packet
_RUN_BLOCKS = 16  # fewer are taken one by one: working in columns costs as much as some packets
_LATEST_NS = (1 << 63) - 1


@dataclass(frozen=True)
class Interface:
    link_type: int
    snaplen: int
    resolution: int  # the if_tsresol byte
    offset_seconds: int


def nanoseconds(resolution: int, ticks: Ints) -> Ints:
    """Ticks of an if_tsresol as nanoseconds; impossible resolutions give zeros, never an error."""
    count = ticks.astype(np.uint64)
    power = resolution & 0x7F
    if resolution & 0x80:
        shift = np.uint64(min(power, 63))
        seconds = count >> shift if power < 64 else np.zeros_like(count)
        rest = count & ((np.uint64(1) << shift) - np.uint64(1)) if power < 64 else count
        if power > 30:
            rest = rest >> np.uint64(power - 30) if power - 30 < 64 else np.zeros_like(count)
        ns = (rest * np.uint64(1_000_000_000)) >> np.uint64(min(power, 30))
        seconds = np.minimum(seconds, np.uint64(_LATEST_NS // 1_000_000_000 - 1))
        return seconds.astype(np.int64) * 1_000_000_000 + ns.astype(np.int64)
    if power <= 9:
        scale = 10 ** (9 - power)
        whole: Ints = np.minimum(count, np.uint64(_LATEST_NS // scale)).astype(np.int64) * scale
        return whole
    if power - 9 <= 19:
        return (count // np.uint64(10 ** (power - 9))).astype(np.int64)
    return np.zeros(len(count), np.int64)


@dataclass(frozen=True)
class SectionHead:
    """What must be known to read packets in the middle of a section."""

    order: str = "<"
    interfaces: tuple[Interface, ...] = ()


class BlockReader:
    """Iterates the windows of `source`, which begins with a section header or, if `head` is given, with a block."""

    def __init__(
        self,
        source: Source,
        limits: Limits,
        window_bytes: int,
        head: SectionHead | None = None,
        offset: int = 0,
        end: int | None = None,
    ) -> None:
        """`offset`: where the source begins in the file. Blocks that begin at `end` or later are not read."""
        self._windows = Windows(source, window_bytes)
        self._limits = limits
        self._order = "<" if head is None else head.order
        self._numbers: dict[Interface, int] = {}
        self._described: list[Interface] = []  # every distinct interface of the file, by its number
        self._interfaces: list[int] = []  # numbers of the interfaces of the section
        for interface in () if head is None else head.interfaces:
            self._add_interface(interface)
        self._end = end
        self.window_at = offset  # where the last window begins in the file
        self.ended = offset  # after the last block
        self.sections = 0
        self.simple = 0  # packets without a time of their own
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
            self.window_at += position
            position = 0
            blocks: list[PacketBlock] = []  # one per byte order: sections may alternate
            while True:
                packets, position, section_follows = self._walk(data, size, position)
                if len(packets):
                    block = self._columns(data, packets)
                    if len(block):
                        blocks.append(block)
                if not section_follows:
                    break
            if blocks:
                yield joined(blocks)
            self.ended = self.window_at + position
            if self._end is not None and self.ended >= self._end:
                return
            if last:
                if position < size and self.problem is None:
                    self.problem = Problem(
                        ViolationCode.CAPTURE_TRUNCATED,
                        f"the file ends inside a block, {size - position} bytes after the last complete packet",
                        FILE_INCOMPLETE_HINT,
                        frame=self.records,
                    )
                return

    @property
    def head(self) -> SectionHead:
        """Of the section that is being read."""
        return SectionHead(self._order, tuple(self._described[number] for number in self._interfaces))

    def _bad(self, detail: str, *before: Sized) -> None:
        """`before`: packets of this window that are not counted yet."""
        self.problem = Problem(
            ViolationCode.CAPTURE_BAD_RECORD,
            detail,
            FILE_DAMAGED_HINT,
            frame=self.records + sum(map(len, before)) + 1,
        )

    def _walk(self, data: bytes, size: int, position: int) -> tuple[Ints, int, bool]:
        """Packets as rows (block type, interface, position, block length) until data ends or the byte order changes."""
        runs: list[Ints] = []
        packets: list[tuple[int, int, int, int]] = []
        alone_until = 0  # blocks that begin before are taken one by one
        most = self._limits.pcapng_block_bytes
        head = struct.Struct(self._order + "III").unpack_from
        tail = struct.Struct(self._order + "I").unpack_from
        last = size - 12 if self._end is None else min(size - 12, self._end - self.window_at - 1)
        while position <= last:
            if position >= alone_until:
                run, position, alone_until = self._run(data, size, position, last)
                if len(run):
                    runs += [_table(packets), run]
                    packets = []
                    continue
            kind, length, third = head(data, position)
            if kind == SECTION_HEADER:
                if position + 28 > size:
                    break
                if (packets or runs) and _byte_order(data, position) != self._order:
                    return np.concatenate([*runs, _table(packets)]), position, True
                if not self._begin_section(data, position):
                    self._bad("a section header has no byte-order magic")
                    break
                head = struct.Struct(self._order + "III").unpack_from
                tail = struct.Struct(self._order + "I").unpack_from
                kind, length, third = head(data, position)
            if length < 12 or length % 4 or length > most:
                self._bad(f"a block of type {kind} claims {length} bytes", *runs, packets)
                break
            following = position + length
            if following > size:
                break
            if tail(data, following - 4)[0] != length:
                self._bad(f"the two length fields of a block of type {kind} differ", *runs, packets)
                break
            if kind == ENHANCED:
                interface = third
            elif kind == _PACKET:
                interface = struct.unpack_from(self._order + "H", data, position + 8)[0]
            else:
                interface = 0
            if kind in (ENHANCED, _PACKET, _SIMPLE):
                if interface >= len(self._interfaces):
                    self._bad(f"a packet refers to interface {interface}, which was not described", *runs, packets)
                    break
                if length < (16 if kind == _SIMPLE else _ENHANCED_BYTES):
                    self._bad(f"a packet block has only {length} bytes", *runs, packets)
                    break
                packets.append((kind, self._interfaces[interface], position, length))
            elif kind == INTERFACE:
                self._describe_interface(data, position, length)
            elif kind == SECRETS and length >= 20:
                secrets_type, count = struct.unpack_from(self._order + "II", data, position + 8)
                body = data[position + 16 : following - 4]
                self.decryption_secrets.append((secrets_type, body[:count]))
            position = following
        return np.concatenate([*runs, _table(packets)]), position, False

    def _run(self, data: bytes, size: int, position: int, last: int) -> tuple[Ints, int, int]:
        """The sound Enhanced Packet Blocks that follow each other from here, as rows, the position after them, and that
        of a block which is none. No rows if they are few. Nearly all blocks of most files are in such runs: the loop
        only adds up lengths, which are checked afterwards, all at once."""
        begin = struct.Struct(self._order + "II").unpack_from
        starts: list[int] = []
        append = starts.append
        at = position
        while at <= last:
            kind, length = begin(data, at)
            if kind != ENHANCED or length < _ENHANCED_BYTES:
                break
            append(at)
            at += length
        nothing = _table([]), position, at + 1
        if len(starts) < _RUN_BLOCKS:
            return nothing
        ends = np.array([*starts[1:], at], np.int64)
        begins = np.array(starts, np.int64)
        sound = (ends <= size) & (ends - begins <= self._limits.pcapng_block_bytes) & (ends % 4 == begins % 4)
        begins, ends = (column[: _leading(sound)] for column in (begins, ends))
        tail = rows_at(data, ends - 4, 4).view(self._order + "u4")[:, 0]
        interface = rows_at(data, begins + 8, 4).view(self._order + "u4")[:, 0].astype(np.int64)
        whole = _leading((tail == ends - begins) & (interface < len(self._interfaces)))
        if whole < _RUN_BLOCKS:
            return nothing
        begins, ends, number = begins[:whole], ends[:whole], np.array(self._interfaces, np.int64)[interface[:whole]]
        return np.stack((np.full(whole, ENHANCED), number, begins, ends - begins), axis=1), int(ends[-1]), at + 1

    def _begin_section(self, data: bytes, position: int) -> bool:
        order = _byte_order(data, position)
        if order is None:
            return False
        self._order = order
        self._interfaces = []
        self.sections += 1
        return True

    def _add_interface(self, interface: Interface) -> None:
        number = self._numbers.setdefault(interface, len(self._described))
        if number == len(self._described):
            self._described.append(interface)
        self._interfaces.append(number)

    def _describe_interface(self, data: bytes, position: int, length: int) -> None:
        if length < 20:
            self._bad("an interface description is too short")
            return
        link_type, _reserved, snaplen = struct.unpack_from(self._order + "HHI", data, position + 8)
        resolution, offset = 6, 0
        at, end = position + 16, position + length - 4
        while at + 4 <= end:
            code, count = struct.unpack_from(self._order + "HH", data, at)
            value = data[at + 4 : min(at + 4 + count, end)]
            if code == 0:
                break
            if code == IF_TSRESOL and value:
                resolution = value[0]
            elif code == _IF_TSOFFSET and len(value) >= 8:
                (offset,) = struct.unpack(self._order + "q", value[:8])
            at += 4 + count + (-count & 3)
        self._add_interface(Interface(link_type, snaplen, resolution, offset))
        self.link_types.add(link_type)
        if snaplen:
            self.snaplen = max(self.snaplen or 0, snaplen)

    def _columns(self, data: bytes, table: Ints) -> PacketBlock:
        found = _packets_of(data, self._order, table, self._described)
        block = found.block
        simple = table[:, 0] == _SIMPLE
        if simple.any():  # simple packet blocks have no time: use that of the packet before
            self.simple += int(np.count_nonzero(simple))
            known = np.where(~simple, np.arange(len(table)), -1)
            known = np.maximum.accumulate(known)
            block.ts_ns = np.where(known >= 0, block.ts_ns[np.maximum(known, 0)], self._last_ts_ns)
        self._last_ts_ns = int(block.ts_ns[-1])
        block.frame += self.records
        self.records += len(table)
        self.over_snaplen += int(np.count_nonzero(block.caplen > found.snaplen))
        if not block.caplen.all():
            self.zero_length += int(np.count_nonzero(block.caplen == 0))
            block = block.select(block.caplen > 0)
        return block


class _Packets(NamedTuple):
    block: PacketBlock  # frame numbers from 1
    snaplen: Ints


def _packets_of(data: bytes, order: str, table: Ints, described: Sequence[Interface]) -> _Packets:
    """The packets of these rows: block type, number in `described`, position, block length."""
    kind, interface, position, length = table.T
    fields = rows_at(data, position, PACKET_AT).view(order + "u4").astype(np.int64)
    simple = kind == _SIMPLE
    used, interface = np.unique(interface, return_inverse=True)
    link_types, snaplens, resolutions, offsets = (
        column[interface] for column in np.array([_as_row(described[number]) for number in used.tolist()], np.int64).T
    )
    caplen, origlen = fields[:, 5], fields[:, 6]
    start, room = position + PACKET_AT, length - _ENHANCED_BYTES
    if simple.any():
        caplen = np.where(simple, np.minimum(fields[:, 2], snaplens), caplen)
        origlen = np.where(simple, fields[:, 2], origlen)
        start, room = position + np.where(simple, 12, PACKET_AT), length - np.where(simple, 16, _ENHANCED_BYTES)
    caplen = np.minimum(caplen, room)  # a packet cannot be longer than its block
    ts_ns = np.zeros(len(table), np.int64)
    ticks = (fields[:, 3].astype(np.uint64) << np.uint64(32)) | fields[:, 4].astype(np.uint64)
    for resolution in np.unique(resolutions).tolist():
        of_it = resolutions == resolution
        ts_ns[of_it] = nanoseconds(resolution, ticks[of_it].view(np.int64))
    ts_ns = np.minimum(ts_ns, _LATEST_NS - np.maximum(offsets, 0)) + offsets
    frame = np.arange(1, 1 + len(table), dtype=np.int64)
    return _Packets(PacketBlock(data, frame, ts_ns, start, caplen, np.maximum(origlen, caplen), link_types), snaplens)


def packets_at(data: bytes, head: SectionHead, positions: Ints) -> PacketBlock:
    """The packets of these sound Enhanced or obsolete Packet Blocks, with frame numbers from 1."""
    fields = rows_at(data, positions, 12).view(head.order + "u4").astype(np.int64)
    kind, length, interface = fields.T
    obsolete = kind == _PACKET
    if obsolete.any():  # theirs has 16 bits
        interface[obsolete] = rows_at(data, positions[obsolete] + 8, 2).view(head.order + "u2")[:, 0]
    return _packets_of(data, head.order, np.stack((kind, interface, positions, length), axis=1), head.interfaces).block


def _table(packets: Sequence[tuple[int, int, int, int]]) -> Ints:
    return np.array(packets, np.int64).reshape(-1, 4)


def _leading(flags: Flags) -> int:
    """How many are true before the first that is not."""
    return len(flags) if flags.all() else int(np.argmin(flags))


def _byte_order(data: bytes, position: int) -> str | None:
    """The byte order of the section that begins here."""
    for order in "<>":
        if struct.unpack_from(order + "I", data, position + 8)[0] == BYTE_ORDER_MAGIC:
            return order
    return None


def _as_row(interface: Interface) -> tuple[int, int, int, int]:
    """Link type, snapshot length, resolution, and offset in nanoseconds, within what 64 bits can express."""
    offset = max(-(1 << 32), min(1 << 32, interface.offset_seconds)) * 1_000_000_000
    return interface.link_type, interface.snaplen or _LATEST_NS, interface.resolution, offset


def first_block(data: bytes, order: str, limits: Limits, *, at_file_end: bool) -> int | None:
    """Offset of the first block in `data`, which begins anywhere in a section, at a multiple of four: it and those
    after it have two equal lengths."""
    words = np.frombuffer(data, order + "u4", len(data) // 4).astype(np.int64)
    if len(words) < 3:
        return None
    length = words[1:]
    places = np.flatnonzero((length >= 12) & (length % 4 == 0) & (length <= limits.pcapng_block_bytes))
    last = places + length[places] // 4 - 1
    places = places[last < len(words)]
    last = last[last < len(words)]
    for place in places[words[last] == length[places]].tolist():
        at, blocks = place, 0
        while blocks < RECORD_CHAIN_LENGTH and at + 2 < len(words):
            size = int(words[at + 1])
            if size < 12 or size % 4 or size > limits.pcapng_block_bytes or not _is_block_type(int(words[at])):
                break
            if at + size // 4 > len(words):
                blocks = RECORD_CHAIN_LENGTH if blocks >= RECORD_CHAIN_LEAST else 0
                break
            if words[at + size // 4 - 1] != size:
                break
            at, blocks = at + size // 4, blocks + 1
        if blocks == RECORD_CHAIN_LENGTH or (blocks and at == len(words) and at_file_end):
            return int(place) * 4
    return None


def _is_block_type(kind: int) -> bool:
    """Types of the specification, and those for local use (draft-ietf-opsawg-pcapng 11.1)."""
    return 0 < kind < 0x10000 or kind >= 0x80000000 or kind in (SECTION_HEADER, 0x0BAD, 0x40000BAD)
