"""Packets of a window -> TCP segments as columns.

The layers are walked over whole columns (layers.py); only fragments and link types that we leave to scapy are
taken one by one. What is no TCP, or cannot be read, is counted with its reason and never raises.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rtmp_spark.capture.block import PADDING, Bytes, Ints, PacketBlock, Problem
from rtmp_spark.capture.fragments import Fragments
from rtmp_spark.capture.layers import (
    FRAGMENT,
    FRAGMENT_V6,
    IP_PROTOCOL,
    LINK,
    TABLE,
    TCP,
    Packets,
    Rows,
    be16,
    be32,
    descend,
    reason,
)
from rtmp_spark.codec.errors import Severity, ViolationCode

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
_RAW_LINK = LINK + 101


@dataclass
class Segments:
    """TCP segments in packet order. IPv4 addresses are mapped into IPv6 (::ffff:a.b.c.d)."""

    data: bytes
    frame: Ints
    ts_ns: Ints
    src: Bytes
    dst: Bytes
    sport: Ints
    dport: Ints
    seq: Ints
    ack: Ints
    flags: Ints
    window: Ints
    start: Ints  # of the payload, in data
    length: Ints  # of the captured payload
    missing: Ints  # payload that the snapshot length cut off
    vlan: Ints  # -1: none
    wscale: Ints  # on SYN only; -1: none
    header: Ints  # start of the TCP header, in data

    def __len__(self) -> int:
        return len(self.frame)

    def intact(self, row: int) -> bool | None:
        """Whether the TCP checksum is right (RFC 9293 3.1); None where it cannot say: bytes are missing, or the
        recorder sits in the sending machine, before the network card that fills it in."""
        if self.missing[row]:
            return None
        at, end = int(self.header[row]), int(self.start[row] + self.length[row])
        ends = _words(self.src[row].tobytes()) + _words(self.dst[row].tobytes()) + 6  # ::ffff adds nothing here
        if (ends + end - at + _words(self.data[at:end])) % 0xFFFF == 0:
            return True
        left_to_the_card = (ends % 0xFFFF, (ends + end - at) % 0xFFFF)
        return None if int.from_bytes(self.data[at + 16 : at + 18], "big") in (0, *left_to_the_card) else False

    def select(self, wanted: Any) -> Segments:
        """The segments that a mask or an index array picks; the bytes are shared."""
        columns = {f.name: getattr(self, f.name)[wanted] for f in fields(self) if f.name != "data"}
        return Segments(self.data, **columns)


class Dissector:
    """Windows in, segments out; remembers the fragments that wait for their rest."""

    def __init__(self) -> None:
        self._fragments = Fragments()
        self._scapy_layers: dict[int, Callable[[bytes], bytes | None] | None] = {}
        self.counts: Counter[str] = Counter()
        self.link_types_unknown: Counter[int] = Counter()
        self.first_unknown: dict[int, tuple[int, int]] = {}  # link type -> number and time of its first packet
        self.bad_checksums = 0
        self.first_bad_checksum: tuple[int, int] | None = None

    def segments(self, block: PacketBlock) -> Segments:
        packets = Packets(block.data, block.start.copy(), block.start + block.caplen, block.start + block.origlen)
        kind = descend(packets, LINK + block.link_type)
        found = self._tcp(packets, kind, block.frame, block.ts_ns)
        odd = np.flatnonzero((kind == FRAGMENT) | (kind == FRAGMENT_V6) | (kind >= LINK))
        if len(odd):
            found = self._join(found, self._one_by_one(block, packets, kind, odd))
        self._count(kind)
        bad = np.flatnonzero(packets.bad_checksum)
        if len(bad):
            self.bad_checksums += len(bad)
            self.first_bad_checksum = self.first_bad_checksum or block.place(int(bad[0]))
        return found

    def _count(self, kind: Ints) -> None:
        rest = kind[kind != TCP]
        self.counts["tcp"] += len(kind) - len(rest)
        if len(rest):
            for value, count in zip(*np.unique(rest, return_counts=True), strict=True):
                self.counts[reason(int(value))] += int(count)

    def _tcp(self, packets: Packets, kind: Ints, frame: Ints, ts_ns: Ints) -> Segments:
        is_tcp = kind == TCP
        rows: Rows = slice(None) if is_tcp.all() else np.flatnonzero(is_tcp)
        header, whole = packets.header(rows, 20)
        offset = (header[:, 12] >> 4).astype(np.int64) * 4
        at, end, wire_end = packets.at[rows], packets.end[rows], packets.wire_end[rows]
        sound = whole & (offset >= 20) & (at + offset <= wire_end)
        if not sound.all():
            self.counts["tcp_cut_inside_header"] += int(np.count_nonzero(~whole))
            self.counts["tcp_bad_data_offset"] += int(np.count_nonzero(whole & ~sound))
            rows, header, offset = np.arange(len(kind))[rows][sound], header[sound], offset[sound]
            at, end, wire_end = at[sound], end[sound], wire_end[sound]
        start = at + offset
        length = np.maximum(end - start, 0)
        flags = header[:, 13].astype(np.int64)
        return Segments(
            packets.data,
            frame[rows],
            ts_ns[rows],
            packets.src[rows],
            packets.dst[rows],
            be16(header, 0),
            be16(header, 2),
            be32(header, 4),
            be32(header, 8),
            flags,
            be16(header, 14),
            start,
            length,
            wire_end - start - length,
            packets.vlan[rows],
            _window_scales(packets.data, flags, at, np.minimum(start, end)),
            at,
        )

    def _one_by_one(self, block: PacketBlock, packets: Packets, kind: Ints, odd: Ints) -> Segments | None:
        """Payloads put together here stand in a buffer of their own, walked down like a window."""
        parts: list[bytes] = []
        places: list[tuple[int, int, int]] = []  # row of the packet that completed it, length, kind
        for row in odd.tolist():
            if kind[row] >= LINK:
                made = self._by_scapy(int(kind[row]) - LINK, block, row), _RAW_LINK
            else:
                made = self._fragment(packets, row, int(kind[row]))
            if made[0] is not None:
                parts.append(made[0])
                places.append((row, len(made[0]), made[1]))
        if not places:
            return None
        rows, lengths, kinds = np.array(places, np.int64).T
        start = np.cumsum(lengths) - lengths
        inner = Packets(b"".join((*parts, PADDING)), start.copy(), start + lengths, start + lengths)
        inner.vlan, inner.src, inner.dst = packets.vlan[rows], packets.src[rows], packets.dst[rows]
        inner_kind = descend(inner, kinds.copy())
        self._count(inner_kind)
        return self._tcp(inner, inner_kind, block.frame[rows], block.ts_ns[rows])

    def _fragment(self, packets: Packets, row: int, kind: int) -> tuple[bytes | None, int]:
        data, at, end = packets.data, int(packets.at[row]), int(packets.end[row])
        if end < int(packets.wire_end[row]):
            self.counts["fragment_cut"] += 1
            return None, 0
        if kind == FRAGMENT:
            protocol = data[at + 9]
            identification = int.from_bytes(data[at + 4 : at + 6], "big")
            bits = int.from_bytes(data[at + 6 : at + 8], "big")
            offset, more = (bits & 0x1FFF) * 8, bool(bits & 0x2000)
            at += (data[at] & 15) * 4
        else:
            protocol = data[at]
            bits = int.from_bytes(data[at + 2 : at + 4], "big")
            offset, more = bits & 0xFFF8, bool(bits & 1)
            identification = int.from_bytes(data[at + 4 : at + 8], "big")
            at += 8
        key = (packets.src[row].tobytes(), packets.dst[row].tobytes(), protocol, identification)
        return self._fragments.add(key, offset, more, data[at:end]), IP_PROTOCOL + protocol

    def _by_scapy(self, link_type: int, block: PacketBlock, row: int) -> bytes | None:
        if link_type not in self._scapy_layers:
            self._scapy_layers[link_type] = _scapy_layer(link_type)
        layer = self._scapy_layers[link_type]
        if layer is None:
            self.link_types_unknown[link_type] += 1
            self.first_unknown.setdefault(link_type, block.place(row))
            return None
        self.counts["read_by_scapy"] += 1
        return layer(block.packet(row))

    def _join(self, left: Segments, right: Segments | None) -> Segments:
        if right is None or not len(right):
            return left
        right.start, right.header = right.start + len(left.data), right.header + len(left.data)
        columns = {
            f.name: np.concatenate((getattr(left, f.name), getattr(right, f.name)))
            for f in fields(left)
            if f.name != "data"
        }
        joined = Segments(left.data + right.data, **columns)
        return joined.select(np.argsort(joined.frame, kind="stable"))

    def take_problems(self) -> list[Problem]:
        """What was wrong since the last call: with one file, unless fragments of another were waiting."""
        found = [
            Problem(
                ViolationCode.CAPTURE_LINK_TYPE,
                f"{count} packets of link type {link_type} were not decoded",
                _link_type_remedy(),
                count,
                *self.first_unknown.get(link_type, ()),
            )
            for link_type, count in sorted(self.link_types_unknown.items())
        ]
        if self.bad_checksums:
            frame, ts_ns = self.first_bad_checksum or (None, None)
            found.append(
                Problem(
                    ViolationCode.CAPTURE_BAD_RECORD,
                    f"{self.bad_checksums} IPv4 headers have a wrong checksum",
                    "they were read as they are; a receiver drops such packets, so look for a damaged file, a broken "
                    "network card or a tool that rewrote addresses",
                    self.bad_checksums,
                    frame,
                    ts_ns,
                    Severity.WARNING,
                )
            )
        for name in ("fragments_evicted", "fragment_over_65535"):
            count = self._fragments.counts.pop(name, 0)
            if count:
                found.append(Problem(ViolationCode.CAPTURE_LIMIT, f"IP fragments: {name}", count=count))
        self.link_types_unknown, self.first_unknown = Counter(), {}
        self.bad_checksums, self.first_bad_checksum = 0, None
        return found


def _words(data: bytes) -> int:
    return int(np.frombuffer(data + bytes(len(data) & 1), ">u2").sum(dtype=np.int64))


def _window_scales(data: bytes, flags: Ints, header_at: Ints, options_end: Ints) -> Ints:
    scales = np.full(len(flags), -1, np.int64)
    for row in np.flatnonzero(flags & SYN).tolist():
        at, end = int(header_at[row]) + 20, int(options_end[row])
        while at < end:
            option = data[at]
            if option == 0:
                break
            if option == 1:
                at += 1
                continue
            size = data[at + 1] if at + 1 < end else 0
            if option == 3 and size == 3 and at + 3 <= end:
                scales[row] = min(data[at + 2], 14)  # RFC 7323 2.3
            at += max(size, 2)
    return scales


def _link_type_remedy() -> str:
    record = "record on an Ethernet, loopback or raw IP interface"
    known = importlib.util.find_spec("scapy") is not None
    return f"scapy does not know it either: {record}" if known else f"pip install scapy, which knows more, or {record}"


def _scapy_layer(link_type: int) -> Callable[[bytes], bytes | None] | None:
    """A function from a packet of this link type to its IP packet, or None when scapy is absent or knows it not."""
    if LINK + link_type in TABLE:
        return None
    try:
        configuration = importlib.import_module("scapy.config").conf
        importlib.import_module("scapy.layers.all")
        inet = importlib.import_module("scapy.layers.inet")
        inet6 = importlib.import_module("scapy.layers.inet6")
    except Exception:  # scapy probes the machine while it loads and may fail in many ways; then it is not there
        return None
    layer_class = configuration.l2types.num2layer.get(link_type)
    if layer_class is None:
        return None

    def ip_packet(packet: bytes) -> bytes | None:
        try:
            dissected = layer_class(packet)
            for ip in (inet.IP, inet6.IPv6):
                if ip in dissected:
                    return bytes(dissected[ip].original)
        except Exception:  # whatever a dissector of hostile bytes may raise: this packet is counted, not decoded
            return None
        return None

    return ip_packet
