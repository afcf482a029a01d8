"""Walk from the link-layer header to TCP, for all packets of a window at once."""

from __future__ import annotations

import numpy as np

from rtmp_spark.capture.packet_block import Ints
from rtmp_spark.capture.packets.ip_layers import IP_PROTOCOLS, IP_VERSIONS
from rtmp_spark.capture.packets.link_layers import ETHERNET_TYPES, LINK_TYPES
from rtmp_spark.capture.packets.packet_columns import IP_PROTOCOL, LINK, TOO_DEEP, UDP_PORT, PacketColumns, Rows, Step
from rtmp_spark.capture.packets.tunnels import IP_TUNNELS, TUNNELED_ETHERNET, UDP_TUNNELS
from rtmp_spark.codec.limits import LAYERS_PER_PACKET

FIRST_HEADERS: dict[int, Step] = {LINK + number: step for number, step in LINK_TYPES.items()}
_STEPS = {
    **FIRST_HEADERS,
    **ETHERNET_TYPES,
    **TUNNELED_ETHERNET,
    **IP_VERSIONS,
    **{IP_PROTOCOL + number: step for number, step in (*IP_PROTOCOLS.items(), *IP_TUNNELS.items())},
    **{UDP_PORT + number: step for number, step in UDP_TUNNELS.items()},
}


def walk_headers(packets: PacketColumns, kind: Ints) -> Ints:
    """Move all packets to their TCP header, or to a header that is not known here; returns the final kind of each."""
    active: Rows = slice(None)
    for _ in range(LAYERS_PER_PACKET):
        now = kind[active]
        if not len(now):
            return kind
        if (now == now[0]).all():
            step = _STEPS.get(int(now[0]))
            if step is None:
                return kind
            kind[active] = step(packets, active)
            continue
        numbers = np.arange(len(kind))[active]
        moved = [(one, numbers[now == one]) for one in np.unique(now).tolist() if one in _STEPS]
        for one, rows in moved:
            kind[rows] = _STEPS[one](packets, rows)
        active = np.concatenate([rows for _, rows in moved]) if moved else numbers[:0]
    kind[active] = TOO_DEEP
    return kind
