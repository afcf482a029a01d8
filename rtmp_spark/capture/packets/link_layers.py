"""Link-layer headers: one function per protocol, each over columns of packets.

A function takes the rows of its kind, moves `at` after its header and returns the kind of the next header. No
function reads beyond the captured end of a packet. To add a link type, write its function and add it to `LINK_TYPES`.
"""

from __future__ import annotations

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.packets.packet_columns import (
    BAD_IP,
    BAD_TUNNEL,
    ETHERNET,
    IPV4,
    IPV6,
    LLC,
    NO_SNAP,
    SHORT,
    PacketColumns,
    Rows,
    Step,
    be16,
    followed_by,
)


def _ethernet(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 14)
    packets.at[rows] += 14
    kind = be16(header, 12)
    return np.where(whole, np.where(kind < 0x600, LLC, kind), SHORT)


def _llc(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    snap = whole & (header[:, 0] == 0xAA) & (header[:, 1] == 0xAA) & (header[:, 2] == 3)
    packets.at[rows] += np.where(snap, 8, 0)
    return np.where(snap, be16(header, 6), NO_SNAP)


def _vlan(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    outermost = packets.vlan[rows]
    packets.vlan[rows] = np.where(outermost < 0, be16(header, 0) & 0x0FFF, outermost)
    return np.where(whole, be16(header, 2), SHORT)


def _mpls(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 5)
    packets.at[rows] += 4
    bottom = (header[:, 2] & 1) == 1
    version = header[:, 4] >> 4
    inner = np.select([version == 4, version == 6], [IPV4, IPV6], ETHERNET)
    # A first nibble of 0 is the control word of a pseudowire (RFC 4385); Ethernet follows it.
    packets.at[rows] += np.where(bottom & (version == 0), 4, 0)
    return np.where(whole, np.where(bottom, inner, 0x8847), SHORT)


def _ppp_protocol(value: Ints) -> Ints:
    return np.select([value == 0x0021, value == 0x0057, value == 0x0281], [IPV4, IPV6, 0x8847], BAD_TUNNEL)


def _pppoe(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, _ppp_protocol(be16(header, 6)), SHORT)


def _ppp(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    framed = (header[:, 0] == 0xFF) & (header[:, 1] == 0x03)
    packets.at[rows] += np.where(framed, 4, 2)
    return np.where(whole, _ppp_protocol(np.where(framed, be16(header, 2), be16(header, 0))), SHORT)


def _cisco_hdlc(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    return np.where(whole, be16(header, 2), SHORT)


def _sll(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 16)
    packets.at[rows] += 16
    return np.where(whole, be16(header, 14), SHORT)


def _sll2(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 20)
    packets.at[rows] += 20
    return np.where(whole, be16(header, 0), SHORT)


def _loopback(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    # The address family is in the byte order of the capturing machine, and its value depends on the system.
    family = np.maximum(header[:, 0], header[:, 3]).astype(np.int64)
    kind = np.where(family == 2, IPV4, np.where(np.isin(family, (10, 23, 24, 28, 30)), IPV6, BAD_IP))
    return np.where(whole, kind, SHORT)


def _raw_ip(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 1)
    version = header[:, 0] >> 4
    return np.where(whole, np.select([version == 4, version == 6], [IPV4, IPV6], BAD_IP), SHORT)


# By the number of the link type (https://www.tcpdump.org/linktypes.html).
LINK_TYPES: dict[int, Step] = {
    0: _loopback,  # NULL (BSD)
    1: _ethernet,
    9: _ppp,
    12: _raw_ip,  # RAW as OpenBSD numbers it
    14: _raw_ip,  # RAW as others number it
    50: _ppp,  # PPP in HDLC-like framing
    51: _pppoe,
    101: _raw_ip,
    104: _cisco_hdlc,
    108: _loopback,  # LOOP (OpenBSD)
    113: _sll,  # Linux cooked
    228: followed_by(IPV4),
    229: followed_by(IPV6),
    276: _sll2,  # Linux cooked, version 2
}

# By Ethernet type.
ETHERNET_TYPES: dict[int, Step] = {
    0x8100: _vlan,
    0x88A8: _vlan,
    0x9100: _vlan,
    0x8847: _mpls,
    0x8848: _mpls,
    0x8864: _pppoe,
    LLC: _llc,
}
