"""From a link-layer header to TCP: one small function per protocol, each over columns.

Every packet has a *kind*: the protocol that stands at its position `at`. A function takes the rows of its kind,
moves `at` behind its header and says the next kind. What is in no table stays where it is and is counted by its
kind. Tunnels are protocols like any other. No function looks beyond the captured end of a packet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtmp_spark.capture.block import Bytes, Ints, rows_at

Rows = Ints | slice  # of packets; a slice is all of them, which spares a copy at every step

# Kinds below 0x10000 are Ethernet types; IP protocols, UDP ports and link types follow in ranges of their own.
IP_PROTOCOL, UDP_PORT, LINK = 0x1_0000, 0x2_0000, 0x4_0000
IPV4, IPV6 = 0x0800, 0x86DD
TCP = IP_PROTOCOL + 6
_UDP = IP_PROTOCOL + 17
ETHERNET = LINK + 1
_RAW_IP = LINK + 101
_PPP = LINK + 9
_LLC = 0x3_0000
_TRANSPARENT_ETHERNET = 0x6558
SHORT, BAD_IP, FRAGMENT, FRAGMENT_V6, BAD_TUNNEL, TOO_DEEP, _NO_SNAP = -1, -2, -3, -4, -5, -6, -7

REASONS = {
    SHORT: "cut_inside_headers",
    BAD_IP: "bad_ip_header",
    FRAGMENT: "fragment",
    FRAGMENT_V6: "fragment",
    BAD_TUNNEL: "bad_tunnel_header",
    TOO_DEEP: "too_many_layers",
    _NO_SNAP: "llc",
}


def reason(kind: int) -> str:
    """A word for a kind that is not decoded further."""
    if kind in REASONS:
        return REASONS[kind]
    if kind >= LINK:
        return f"link_type_{kind - LINK}"
    if kind >= UDP_PORT:
        return "udp"
    if kind >= IP_PROTOCOL:
        return f"ip_protocol_{kind - IP_PROTOCOL}"
    return f"ethertype_{kind:04x}"


class Packets:
    """Columns of packets on their way down: `at` moves, `end` is captured, `wire_end` was sent."""

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

    def header(self, rows: Rows, width: int) -> tuple[Bytes, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """`width` bytes at each row's position, and which rows have them all."""
        at = self.at[rows]
        return rows_at(self.data, np.minimum(at, len(self.data) - width), width), at + width <= self.end[rows]


def be16(header: Bytes, at: int) -> Ints:
    return header[:, at : at + 2].view(">u2")[:, 0].astype(np.int64)


def be32(header: Bytes, at: int) -> Ints:
    return header[:, at : at + 4].view(">u4")[:, 0].astype(np.int64)


def _ethernet(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 14)
    packets.at[rows] += 14
    kind = be16(header, 12)
    return np.where(whole, np.where(kind < 0x600, _LLC, kind), SHORT)


def _llc(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    snap = whole & (header[:, 0] == 0xAA) & (header[:, 1] == 0xAA) & (header[:, 2] == 3)
    packets.at[rows] += np.where(snap, 8, 0)
    return np.where(snap, be16(header, 6), _NO_SNAP)


def _vlan(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    outermost = packets.vlan[rows]
    packets.vlan[rows] = np.where(outermost < 0, be16(header, 0) & 0x0FFF, outermost)
    return np.where(whole, be16(header, 2), SHORT)


def _mpls(packets: Packets, rows: Rows) -> Ints:
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


def _pppoe(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, _ppp_protocol(be16(header, 6)), SHORT)


def _ppp(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    framed = (header[:, 0] == 0xFF) & (header[:, 1] == 0x03)
    packets.at[rows] += np.where(framed, 4, 2)
    return np.where(whole, _ppp_protocol(np.where(framed, be16(header, 2), be16(header, 0))), SHORT)


def _cisco_hdlc(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    return np.where(whole, be16(header, 2), SHORT)


def _sll(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 16)
    packets.at[rows] += 16
    return np.where(whole, be16(header, 14), SHORT)


def _sll2(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 20)
    packets.at[rows] += 20
    return np.where(whole, be16(header, 0), SHORT)


def _loopback(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    packets.at[rows] += 4
    # The address family stands in the byte order of the recording machine, and its value depends on the system.
    family = np.maximum(header[:, 0], header[:, 3]).astype(np.int64)
    kind = np.where(family == 2, IPV4, np.where(np.isin(family, (10, 23, 24, 28, 30)), IPV6, BAD_IP))
    return np.where(whole, kind, SHORT)


def _raw_ip(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 1)
    version = header[:, 0] >> 4
    return np.where(whole, np.select([version == 4, version == 6], [IPV4, IPV6], BAD_IP), SHORT)


def _ipv4(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 20)
    at = packets.at[rows]
    header_bytes = (header[:, 0] & 15).astype(np.int64) * 4
    total = be16(header, 2)
    fragment = be16(header, 6) & 0x3FFF
    sound = (header[:, 0] >> 4 == 4) & (header_bytes >= 20) & ((total == 0) | (total >= header_bytes))
    sound &= at + header_bytes <= packets.end[rows]
    # Total length 0: the recorder saw the packet before the network card cut it (TSO), so all of it counts.
    wire_end = np.where(total == 0, packets.wire_end[rows], at + total)
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)
    packets.src[rows, 10:12] = 0xFF
    packets.dst[rows, 10:12] = 0xFF
    packets.src[rows, 12:] = header[:, 12:16]
    packets.dst[rows, 12:] = header[:, 16:20]
    words = header.view(">u2").sum(axis=1, dtype=np.int64)
    folded = (words & 0xFFFF) + (words >> 16)
    wrong = whole & sound & (header_bytes == 20) & (folded % 0xFFFF != 0) & (be16(header, 10) != 0)
    packets.bad_checksum[rows] |= wrong
    kind = np.where(fragment != 0, FRAGMENT, IP_PROTOCOL + header[:, 9].astype(np.int64))
    packets.at[rows] = np.where(fragment != 0, at, at + header_bytes)
    return np.where(whole, np.where(sound, kind, BAD_IP), SHORT)


def _ipv6(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 40)
    at = packets.at[rows]
    length = be16(header, 4)
    wire_end = np.where(length == 0, packets.wire_end[rows], at + 40 + length)
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)
    packets.src[rows] = header[:, 8:24]
    packets.dst[rows] = header[:, 24:40]
    packets.at[rows] = at + 40
    sound = header[:, 0] >> 4 == 6
    return np.where(whole, np.where(sound, IP_PROTOCOL + header[:, 6].astype(np.int64), BAD_IP), SHORT)


def _ipv6_extension(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 2)
    packets.at[rows] += (header[:, 1].astype(np.int64) + 1) * 8
    return np.where(whole, IP_PROTOCOL + header[:, 0].astype(np.int64), SHORT)


def _authentication(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 2)
    packets.at[rows] += (header[:, 1].astype(np.int64) + 2) * 4
    return np.where(whole, IP_PROTOCOL + header[:, 0].astype(np.int64), SHORT)


def _ipv6_fragment(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    in_pieces = (be16(header, 2) & 0xFFF9) != 0  # an "atomic fragment" is a whole packet (RFC 6946)
    packets.at[rows] += np.where(in_pieces, 0, 8)
    return np.where(whole, np.where(in_pieces, FRAGMENT_V6, IP_PROTOCOL + header[:, 0].astype(np.int64)), SHORT)


def _ip_in_ip(packets: Packets, rows: Rows) -> Ints:
    return np.full(len(packets.at[rows]), IPV4, np.int64)


def _ipv6_in_ip(packets: Packets, rows: Rows) -> Ints:
    return np.full(len(packets.at[rows]), IPV6, np.int64)


def _gre(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    flags = be16(header, 0)
    optional = ((flags & 0x8000) != 0).astype(np.int64) + ((flags & 0x2000) != 0) + ((flags & 0x1000) != 0)
    packets.at[rows] += 4 + 4 * optional
    plain = (flags & 0x4007) == 0  # no source routing, version 0
    return np.where(whole, np.where(plain, be16(header, 2), BAD_TUNNEL), SHORT)


def _erspan(packets: Packets, rows: Rows) -> Ints:
    packets.at[rows] += 8
    return np.full(len(packets.at[rows]), ETHERNET, np.int64)


def _transparent_ethernet(packets: Packets, rows: Rows) -> Ints:
    return np.full(len(packets.at[rows]), ETHERNET, np.int64)


def _udp(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, UDP_PORT + be16(header, 2), SHORT)


def _vxlan(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, np.where(header[:, 0] & 0x08, ETHERNET, BAD_TUNNEL), SHORT)


def _geneve(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8 + (header[:, 0] & 0x3F).astype(np.int64) * 4
    return np.where(whole, np.where(header[:, 0] >> 6 == 0, be16(header, 2), BAD_TUNNEL), SHORT)


def _gtp_u(packets: Packets, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 12)
    flags = header[:, 0]
    user_data = (flags >> 4 == 3) & (header[:, 1] == 0xFF)  # version 1, GTP, G-PDU
    packets.at[rows] += np.where(flags & 0x07, 12, 8)
    following = np.where((flags & 0x04) != 0, header[:, 11], 0)
    numbers = np.arange(len(packets.at))[rows]
    for _ in range(4):  # extension headers: length in words first, the next type last
        extended = numbers[following != 0]
        if not len(extended):
            break
        length, _whole = packets.header(extended, 1)
        packets.at[extended] += np.maximum(length[:, 0].astype(np.int64) * 4, 4)
        packets.at[extended] -= 1
        next_type, _whole = packets.header(extended, 1)
        packets.at[extended] += 1
        following[following != 0] = next_type[:, 0]
    return np.where(whole, np.where(user_data, _RAW_IP, BAD_TUNNEL), SHORT)


TABLE: dict[int, Callable[[Packets, Rows], Ints]] = {
    ETHERNET: _ethernet,
    LINK + 113: _sll,
    LINK + 276: _sll2,
    LINK + 0: _loopback,
    LINK + 108: _loopback,
    _RAW_IP: _raw_ip,
    LINK + 12: _raw_ip,
    LINK + 14: _raw_ip,
    LINK + 228: _ip_in_ip,
    LINK + 229: _ipv6_in_ip,
    _PPP: _ppp,
    LINK + 50: _ppp,
    LINK + 51: _pppoe,
    LINK + 104: _cisco_hdlc,
    _LLC: _llc,
    0x8100: _vlan,
    0x88A8: _vlan,
    0x9100: _vlan,
    0x8847: _mpls,
    0x8848: _mpls,
    0x8864: _pppoe,
    0x88BE: _erspan,
    _TRANSPARENT_ETHERNET: _transparent_ethernet,
    IPV4: _ipv4,
    IPV6: _ipv6,
    IP_PROTOCOL + 0: _ipv6_extension,
    IP_PROTOCOL + 43: _ipv6_extension,
    IP_PROTOCOL + 44: _ipv6_fragment,
    IP_PROTOCOL + 51: _authentication,
    IP_PROTOCOL + 60: _ipv6_extension,
    IP_PROTOCOL + 135: _ipv6_extension,
    IP_PROTOCOL + 4: _ip_in_ip,
    IP_PROTOCOL + 41: _ipv6_in_ip,
    IP_PROTOCOL + 47: _gre,
    _UDP: _udp,
    UDP_PORT + 4789: _vxlan,
    UDP_PORT + 8472: _vxlan,
    UDP_PORT + 6081: _geneve,
    UDP_PORT + 2152: _gtp_u,
}
_MOST_LAYERS = 24


def descend(packets: Packets, kind: Ints) -> Ints:
    """Walk all packets down until TCP or something that is in no table; gives the kind each one ended at."""
    active: Rows = slice(None)
    for _ in range(_MOST_LAYERS):
        standing = kind[active]
        if not len(standing):
            return kind
        if (standing == standing[0]).all():
            step = TABLE.get(int(standing[0]))
            if step is None:
                return kind
            kind[active] = step(packets, active)
            continue
        numbers = np.arange(len(kind))[active]
        moved = [(one, numbers[standing == one]) for one in np.unique(standing).tolist() if one in TABLE]
        for one, rows in moved:
            kind[rows] = TABLE[one](packets, rows)
        active = np.concatenate([rows for _, rows in moved]) if moved else numbers[:0]
    kind[active] = TOO_DEEP
    return kind
