"""IPv4 and IPv6 headers, over columns of packets like link_layers.py; and the fields of fragment headers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.capture.packet_block import Bytes, Ints
from rtmp_spark.capture.packets.packet_columns import (
    BAD_IP,
    FRAGMENT,
    FRAGMENT_V6,
    IP_PROTOCOL,
    IPV4,
    IPV6,
    SHORT,
    PacketColumns,
    Rows,
    Step,
    be16,
    followed_by,
)

_MAPPED = np.frombuffer(bytes(10) + b"\xff\xff", np.uint32)  # before an IPv4 address that is mapped into IPv6


def _ipv4(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 20)
    at = packets.at[rows]
    header_bytes = (header[:, 0] & 15).astype(np.int64) * 4
    total = be16(header, 2)
    fragment = be16(header, 6) & 0x3FFF
    sound = (header[:, 0] >> 4 == 4) & (header_bytes >= 20) & ((total == 0) | (total >= header_bytes))
    sound &= at + header_bytes <= packets.end[rows]
    # Total length 0: the packet was captured before the network card divided it (TSO), so all of it counts.
    wire_end = np.where(total == 0, packets.wire_end[rows], at + total)
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)
    packets.ip_id[rows] = be16(header, 4)
    words = header.view(np.uint32)
    _map_into_v6(packets.src, rows, words[:, 3])
    _map_into_v6(packets.dst, rows, words[:, 4])
    # The sum of all 16-bit words is 0 modulo 0xFFFF, in any byte order and also of 32 bits at a time (RFC 1071 2).
    total_words = sum(words[:, n].astype(np.int64) for n in range(5))
    wrong = whole & sound & (header_bytes == 20) & (total_words % 0xFFFF != 0) & (be16(header, 10) != 0)
    packets.bad_checksum[rows] |= wrong
    kind = np.where(fragment != 0, FRAGMENT, IP_PROTOCOL + header[:, 9].astype(np.int64))
    packets.at[rows] = np.where(fragment != 0, at, at + header_bytes)
    return np.where(whole, np.where(sound, kind, BAD_IP), SHORT)


def _map_into_v6(addresses: Bytes, rows: Rows, v4: npt.NDArray[np.uint32]) -> None:
    """Write ::ffff:a.b.c.d, also over the address of an outer header."""
    columns = addresses.view(np.uint32)
    for place, word in enumerate(_MAPPED):
        columns[rows, place] = word
    columns[rows, 3] = v4


def _ipv6(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 40)
    at = packets.at[rows]
    length = be16(header, 4)
    wire_end = np.where(length == 0, packets.wire_end[rows], at + 40 + length)
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)
    packets.ip_id[rows] = 0
    packets.src[rows] = header[:, 8:24]
    packets.dst[rows] = header[:, 24:40]
    packets.at[rows] = at + 40
    sound = header[:, 0] >> 4 == 6
    return np.where(whole, np.where(sound, IP_PROTOCOL + header[:, 6].astype(np.int64), BAD_IP), SHORT)


def _ipv6_extension(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 2)
    packets.at[rows] += (header[:, 1].astype(np.int64) + 1) * 8
    return np.where(whole, IP_PROTOCOL + header[:, 0].astype(np.int64), SHORT)


def _authentication(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 2)
    packets.at[rows] += (header[:, 1].astype(np.int64) + 2) * 4
    return np.where(whole, IP_PROTOCOL + header[:, 0].astype(np.int64), SHORT)


def _ipv6_fragment(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    in_pieces = (be16(header, 2) & 0xFFF9) != 0  # an "atomic fragment" is a complete packet (RFC 6946)
    packets.at[rows] += np.where(in_pieces, 0, 8)
    return np.where(whole, np.where(in_pieces, FRAGMENT_V6, IP_PROTOCOL + header[:, 0].astype(np.int64)), SHORT)


IP_VERSIONS: dict[int, Step] = {IPV4: _ipv4, IPV6: _ipv6}

# By the number of the IP protocol, or of the IPv6 extension header.
IP_PROTOCOLS: dict[int, Step] = {
    0: _ipv6_extension,
    4: followed_by(IPV4),
    41: followed_by(IPV6),
    43: _ipv6_extension,
    44: _ipv6_fragment,
    51: _authentication,
    60: _ipv6_extension,
    135: _ipv6_extension,
}


class Fragment(NamedTuple):
    protocol: int
    identification: int
    offset: int  # of its payload in the datagram
    more: bool
    start: int  # of its payload in the data


def parse_fragment(data: bytes, at: int) -> Fragment:
    """The fragment with this IPv4 header (RFC 791 3.1)."""
    bits = int.from_bytes(data[at + 6 : at + 8], "big")
    identification = int.from_bytes(data[at + 4 : at + 6], "big")
    return Fragment(data[at + 9], identification, (bits & 0x1FFF) * 8, bool(bits & 0x2000), at + (data[at] & 15) * 4)


def parse_fragment_v6(data: bytes, at: int) -> Fragment:
    """The fragment with this IPv6 fragment header (RFC 8200 4.5)."""
    bits = int.from_bytes(data[at + 2 : at + 4], "big")
    identification = int.from_bytes(data[at + 4 : at + 8], "big")
    return Fragment(data[at], identification, bits & 0xFFF8, bool(bits & 1), at + 8)
