"""Every bound in one place: memory follows these, never a length field from the wire."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    # RTMP, per direction
    message_bytes: int = 0xFFFFFF  # all that a 24-bit length can say; the relay sets 10 MiB
    partial_bytes: int = 64 * MIB  # all unfinished messages together, grown as bytes arrive
    # AMF; a count may also never exceed the bytes that remain
    amf_depth: int = 64
    amf_nodes: int = 65_536
    # capture files
    pcap_record_bytes: int = 262_144  # libpcap's MAXIMUM_SNAPLEN
    pcapng_block_bytes: int = 16 * MIB
    decompress_ratio: int = 200
    decompress_bytes: int = 1 << 40
    # TCP: bytes held behind a hole, per direction and in all, before the hole is declared a gap
    tcp_hold_bytes: int = 10 * MIB
    tcp_hold_bytes_total: int = 256 * MIB
    half_open_flows: int = 100_000


DEFAULT_LIMITS = Limits()
