"""Tunnel headers inside IP, over columns of packets like link_layers.py: GRE, ERSPAN, VXLAN, Geneve, GTP-U."""

from __future__ import annotations

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.packets.packet_columns import (
    BAD_TUNNEL,
    ETHERNET,
    RAW_IP,
    SHORT,
    UDP_PORT,
    PacketColumns,
    Rows,
    Step,
    be16,
    followed_by,
)


def _gre(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 4)
    flags = be16(header, 0)
    optional = ((flags & 0x8000) != 0).astype(np.int64) + ((flags & 0x2000) != 0) + ((flags & 0x1000) != 0)
    packets.at[rows] += 4 + 4 * optional
    plain = (flags & 0x4007) == 0  # no source routing, version 0
    return np.where(whole, np.where(plain, be16(header, 2), BAD_TUNNEL), SHORT)


def _erspan(packets: PacketColumns, rows: Rows) -> Ints:
    packets.at[rows] += 8
    return np.full(len(packets.at[rows]), ETHERNET, np.int64)


def _udp(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, UDP_PORT + be16(header, 2), SHORT)


def _vxlan(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8
    return np.where(whole, np.where(header[:, 0] & 0x08, ETHERNET, BAD_TUNNEL), SHORT)


def _geneve(packets: PacketColumns, rows: Rows) -> Ints:
    header, whole = packets.header(rows, 8)
    packets.at[rows] += 8 + (header[:, 0] & 0x3F).astype(np.int64) * 4
    return np.where(whole, np.where(header[:, 0] >> 6 == 0, be16(header, 2), BAD_TUNNEL), SHORT)


def _gtp_u(packets: PacketColumns, rows: Rows) -> Ints:
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
    return np.where(whole, np.where(user_data, RAW_IP, BAD_TUNNEL), SHORT)


GRE, UDP = 47, 17

IP_TUNNELS: dict[int, Step] = {GRE: _gre, UDP: _udp}

# By Ethernet type, inside GRE and Geneve.
TUNNELED_ETHERNET: dict[int, Step] = {
    0x6558: followed_by(ETHERNET),
    0x88BE: _erspan,
}

UDP_TUNNELS: dict[int, Step] = {
    2152: _gtp_u,
    4789: _vxlan,
    6081: _geneve,
    8472: _vxlan,  # the number Linux used before the registration
}
