"""Packets of a window in, TCP segments as columns out.

The headers are read for whole columns at once (header_walk.py). Only IP fragments and link types that are left to
scapy are taken one by one. Packets that are not TCP, or that cannot be read, are counted with the reason; nothing
raises.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from rtmp_spark.capture.files.file_facts import Occurrences, UndecodedPackets
from rtmp_spark.capture.packet_block import PADDING, Ints, PacketBlock
from rtmp_spark.capture.packets.header_walk import FIRST_HEADERS, walk_headers
from rtmp_spark.capture.packets.ip_fragments import Fragments
from rtmp_spark.capture.packets.ip_fragments import Key as FragmentKey
from rtmp_spark.capture.packets.ip_layers import parse_fragment, parse_fragment_v6
from rtmp_spark.capture.packets.packet_columns import (
    FRAGMENT,
    FRAGMENT_V6,
    IP_PROTOCOL,
    LINK,
    RAW_IP,
    TCP,
    PacketColumns,
    Rows,
    be16,
    be32,
    reason,
)
from rtmp_spark.capture.packets.scapy_link_types import IpPacketOf, scapy_layer
from rtmp_spark.capture.packets.tcp_segments import SYN, Segments
from rtmp_spark.capture.problem import Problem
from rtmp_spark.codec.errors import ViolationCode

_FRAGMENT_LIMITS = {
    "fragments_evicted": "incomplete IP datagrams were dropped: too many fragments waited for the rest",
    "fragment_over_65535": "IP fragments reach beyond the largest datagram and were dropped",
}


class Dissector:
    """Decodes window after window; IP fragments may continue in the next one."""

    def __init__(self) -> None:
        self._fragments = Fragments()
        self._scapy_layers: dict[int, IpPacketOf | None] = {}
        self.counts: Counter[str] = Counter()
        self.undecoded = UndecodedPackets()
        self.fragment_keys: set[FragmentKey] | None = None  # of all fragments, for a caller that sets it
        self.fragments: list[int] = []  # rows of the last window that are IP fragments
        self.completed: dict[int, list[int]] = {}  # frames of the IP packets completed there, by the last of them

    def segments(self, block: PacketBlock) -> Segments:
        self.fragments, self.completed = [], {}
        packets = PacketColumns(block.data, block.start.copy(), block.start + block.caplen, block.start + block.origlen)
        kind = walk_headers(packets, LINK + block.link_type)
        found = self._tcp(packets, kind, block.frame, block.ts_ns)
        odd = np.flatnonzero((kind == FRAGMENT) | (kind == FRAGMENT_V6) | (kind >= LINK))
        if len(odd):
            others = self._one_by_one(block, packets, kind, odd)
            if others is not None and len(others):
                found = found.joined(others)
        self._count(kind)
        bad = np.flatnonzero(packets.bad_checksum)
        if len(bad):
            self.undecoded.bad_checksums.add(len(bad), *block.place(int(bad[0])))
        return found

    def _count(self, kind: Ints) -> None:
        rest = kind[kind != TCP]
        self.counts["tcp"] += len(kind) - len(rest)
        if len(rest):
            for value, count in zip(*np.unique(rest, return_counts=True), strict=True):
                self.counts[reason(int(value))] += int(count)

    def _tcp(self, packets: PacketColumns, kind: Ints, frame: Ints, ts_ns: Ints) -> Segments:
        is_tcp = kind == TCP
        rows: Rows = slice(None) if is_tcp.all() else np.flatnonzero(is_tcp)
        header, whole = packets.header(rows, 20)
        offset = (header[:, 12] >> 4).astype(np.int64) * 4
        at, end, wire_end = packets.at[rows], packets.end[rows], packets.wire_end[rows]
        sound = whole & (offset >= 20) & (at + offset <= wire_end)
        if not sound.all():
            self.counts["tcp_cut_inside_header"] += int(np.count_nonzero(~whole))
            bad = np.flatnonzero(whole & ~sound)
            if len(bad):
                self.counts["tcp_bad_data_offset"] += len(bad)
                first = np.arange(len(kind))[rows][bad[0]]
                self.undecoded.bad_offsets.add(len(bad), int(frame[first]), int(ts_ns[first]))
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
            packets.ip_id[rows],
        )

    def _one_by_one(self, block: PacketBlock, packets: PacketColumns, kind: Ints, odd: Ints) -> Segments | None:
        """Segments from fragments and from scapy: their IP packets get a new buffer, which is walked like a window."""
        parts: list[bytes] = []
        places: list[tuple[int, int, int]] = []  # row of the packet that completes it, length, kind
        for row in odd.tolist():
            if kind[row] >= LINK:
                made = self._by_scapy(int(kind[row]) - LINK, block, row), RAW_IP
            else:
                made = self._fragment(packets, row, int(kind[row]), int(block.frame[row]))
            if made[0] is not None:
                parts.append(made[0])
                places.append((row, len(made[0]), made[1]))
        if not places:
            return None
        rows, lengths, kinds = np.array(places, np.int64).T
        start = np.cumsum(lengths) - lengths
        inner = PacketColumns(b"".join((*parts, PADDING)), start.copy(), start + lengths, start + lengths)
        inner.vlan, inner.src, inner.dst = packets.vlan[rows], packets.src[rows], packets.dst[rows]
        inner.ip_id = packets.ip_id[rows]
        inner_kind = walk_headers(inner, kinds.copy())
        self._count(inner_kind)
        return self._tcp(inner, inner_kind, block.frame[rows], block.ts_ns[rows])

    def _fragment(self, packets: PacketColumns, row: int, kind: int, frame: int) -> tuple[bytes | None, int]:
        """The datagram that a fragment completes, and its kind; None if more fragments are missing."""
        if int(packets.end[row]) < int(packets.wire_end[row]):
            self.counts["fragment_cut"] += 1
            return None, 0
        parse = parse_fragment if kind == FRAGMENT else parse_fragment_v6
        fragment = parse(packets.data, int(packets.at[row]))
        key = (packets.src[row].tobytes(), packets.dst[row].tobytes(), fragment.protocol, fragment.identification)
        payload = packets.data[fragment.start : int(packets.end[row])]
        whole = self._fragments.add(key, fragment.offset, fragment.more, payload, frame)
        if self.fragment_keys is not None:
            self.fragment_keys.add(key)
        self.fragments.append(row)
        if whole is not None:
            self.completed[frame] = self._fragments.completed
        return whole, IP_PROTOCOL + fragment.protocol

    def _by_scapy(self, link_type: int, block: PacketBlock, row: int) -> bytes | None:
        if link_type not in self._scapy_layers:
            known = LINK + link_type in FIRST_HEADERS
            self._scapy_layers[link_type] = None if known else scapy_layer(link_type)
        layer = self._scapy_layers[link_type]
        if layer is None:
            self.undecoded.link_types.setdefault(link_type, Occurrences()).add(1, *block.place(row))
            return None
        self.counts["read_by_scapy"] += 1
        return layer(block.packet(row))

    @property
    def waiting_fragments(self) -> dict[FragmentKey, list[int]]:
        """The incomplete IP packets, with the frames that hold parts of them."""
        return self._fragments.waiting

    @property
    def dropped_fragments(self) -> bool:
        """Whether a limit of fragments was reached; it depends on everything that came before."""
        return any(self._fragments.counts[name] for name in _FRAGMENT_LIMITS)

    def take_problems(self) -> list[Problem]:
        """The problems since the last call. They concern one file, unless fragments of an earlier one were waiting."""
        undecoded, self.undecoded = self.undecoded, UndecodedPackets()
        found = undecoded.problems()
        for name, text in _FRAGMENT_LIMITS.items():
            count = self._fragments.counts.pop(name, 0)
            if count:
                found.append(Problem(ViolationCode.CAPTURE_LIMIT, text, count=count))
        return found


def _window_scales(data: bytes, flags: Ints, header_at: Ints, options_end: Ints) -> Ints:
    """The window scale option of each SYN; -1 without one."""
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
