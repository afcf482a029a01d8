"""Packets as columns while their headers are read, and the kinds of headers.

Every packet has a *kind*: the protocol of the header at its position `at`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtmp_spark.capture.packet_block import Bytes, Flags, Ints, rows_at

Rows = Ints | slice  # of packets; a slice means all of them, which saves a copy in every step

# Kinds below 0x10000 are Ethernet types; IP protocols, UDP ports and link types have ranges of their own.
IP_PROTOCOL, UDP_PORT, LLC, LINK = 0x1_0000, 0x2_0000, 0x3_0000, 0x4_0000
IPV4, IPV6 = 0x0800, 0x86DD
TCP = IP_PROTOCOL + 6
ETHERNET = LINK + 1
RAW_IP = LINK + 101
# Kinds of packets that are not read further.
SHORT, BAD_IP, FRAGMENT, FRAGMENT_V6, BAD_TUNNEL, TOO_DEEP, NO_SNAP = -1, -2, -3, -4, -5, -6, -7

REASONS = {
    SHORT: "cut_inside_headers",
    BAD_IP: "bad_ip_header",
    FRAGMENT: "fragment",
    FRAGMENT_V6: "fragment",
    BAD_TUNNEL: "bad_tunnel_header",
    TOO_DEEP: "too_many_layers",
    NO_SNAP: "llc",
}


def reason(kind: int) -> str:
    """The name under which packets of a kind that is not read further are counted."""
    if kind in REASONS:
        return REASONS[kind]
    if kind >= LINK:
        return f"link_type_{kind - LINK}"
    if kind >= UDP_PORT:
        return "udp"
    if kind >= IP_PROTOCOL:
        return f"ip_protocol_{kind - IP_PROTOCOL}"
    return f"ethertype_{kind:04x}"


class PacketColumns:
    """Columns of packets: `at` moves from header to header, `end` is captured, `wire_end` was sent."""

    def __init__(self, data: bytes, at: Ints, end: Ints, wire_end: Ints) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.wire_end = wire_end
        count = len(at)
        self.vlan = np.full(count, -1, np.int64)
        self.src = np.zeros((count, 16), np.uint8)
        self.dst = np.zeros((count, 16), np.uint8)
        self.bad_checksum = np.zeros(count, bool)
        self.ip_id = np.zeros(count, np.int64)  # 0 also where there is none (IPv6)

    def header(self, rows: Rows, width: int) -> tuple[Bytes, Flags]:
        """`width` bytes at the position of each row, and which rows have all of them."""
        at = self.at[rows]
        return rows_at(self.data, np.minimum(at, len(self.data) - width), width), at + width <= self.end[rows]


def be16(header: Bytes, at: int) -> Ints:
    return header[:, at : at + 2].view(">u2")[:, 0].astype(np.int64)


def be32(header: Bytes, at: int) -> Ints:
    return header[:, at : at + 4].view(">u4")[:, 0].astype(np.int64)


Step = Callable[[PacketColumns, Rows], Ints]  # moves rows after a header and returns the kinds of the next headers


def followed_by(kind: int) -> Step:
    """A step over no bytes to a header of this kind."""

    def step(packets: PacketColumns, rows: Rows) -> Ints:
        return np.full(len(packets.at[rows]), kind, np.int64)

    return step
