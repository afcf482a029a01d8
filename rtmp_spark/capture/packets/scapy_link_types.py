"""Link types that are not decoded here: scapy removes their headers, packet by packet, if it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable

IpPacketOf = Callable[[bytes], bytes | None]


def scapy_layer(link_type: int) -> IpPacketOf | None:
    """A function from a packet of this link type to its IP packet; None if scapy is missing or does not know it."""
    try:
        configuration = importlib.import_module("scapy.config").conf
        importlib.import_module("scapy.layers.all")
        inet = importlib.import_module("scapy.layers.inet")
        inet6 = importlib.import_module("scapy.layers.inet6")
    except Exception:  # scapy probes the machine while it loads and may fail in many ways: treat it as missing
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
        except Exception:  # hostile bytes may make scapy raise anything: the packet is counted, not decoded
            return None
        return None

    return ip_packet
