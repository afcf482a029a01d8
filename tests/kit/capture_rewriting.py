"""Rewrite captures without changing the bytes of their streams, for metamorphic tests.

Reads the TCP packets of a classic Ethernet pcap over IPv4 or IPv6 into plain values, changes segments, order,
duplicates or sequence numbers, and writes them in another file format, link layer, IP version or tunnel.
It uses only `struct` and nothing of rtmp_spark, so it is independent of the code under test.
"""

from __future__ import annotations

import gzip
import ipaddress
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Packet:
    ts_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    seq: int
    ack: int
    flags: int
    window: int = 65535
    payload: bytes = b""
    options: bytes = b""

    @property
    def sender(self) -> tuple[str, int]:
        return self.src, self.sport

    @property
    def ends(self) -> frozenset[tuple[str, int]]:
        return frozenset(((self.src, self.sport), (self.dst, self.dport)))


# Reading


def records(data: bytes) -> list[tuple[int, bytes]]:
    """(time in ns, bytes) of a classic pcap of either byte order and resolution."""
    order = "<" if data[0] in (0xD4, 0x4D) else ">"
    scale = 1 if struct.unpack(order + "I", data[:4])[0] == 0xA1B23C4D else 1000
    found, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, size, _ = struct.unpack_from(order + "IIII", data, at)
        found.append((seconds * 1_000_000_000 + fraction * scale, data[at + 16 : at + 16 + size]))
        at += 16 + size
    return found


def read(path: Path) -> list[Packet]:
    return [parse(ts_ns, frame) for ts_ns, frame in records(path.read_bytes())]


def parse(ts_ns: int, frame: bytes) -> Packet:
    if frame[12:14] == b"\x08\x00":
        ip = frame[14:]
        ip = ip[: int.from_bytes(ip[2:4], "big")]
        src, dst = (str(ipaddress.IPv4Address(ip[a : a + 4])) for a in (12, 16))
        tcp = ip[(ip[0] & 15) * 4 :]
    else:
        ip = frame[14:]
        src, dst = (str(ipaddress.IPv6Address(ip[a : a + 16])) for a in (8, 24))
        tcp = ip[40 : 40 + int.from_bytes(ip[4:6], "big")]
    sport, dport, seq, ack, offset, flags, window = struct.unpack_from(">HHIIBBH", tcp)
    header = (offset >> 4) * 4
    return Packet(ts_ns, src, sport, dst, dport, seq, ack, flags, window, tcp[header:], tcp[20:header])


# Other ways to the same bytes


def resegment(packets: Sequence[Packet], size: int) -> list[Packet]:
    """Cut every payload into pieces of at most `size` bytes."""
    cut: list[Packet] = []
    for packet in packets:
        pieces = [packet.payload[a : a + size] for a in range(0, len(packet.payload), size)] or [b""]
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            flags = packet.flags if last else packet.flags & ~(FIN | PSH)
            if number:
                flags &= ~SYN
            phantom = 1 if number and packet.flags & SYN else 0
            seq = (packet.seq + number * size + phantom) & MASK
            cut.append(replace(packet, seq=seq, flags=flags, payload=piece))
    return cut


def shuffle(packets: Sequence[Packet], seed: int, reach: int | None = None) -> list[Packet]:
    """Shuffle packets; with `reach`, no packet moves further than that many places."""
    dice = random.Random(seed)
    if reach is None:
        mixed = list(packets)
        dice.shuffle(mixed)
        return mixed
    return [p for _, p in sorted(((n + dice.uniform(0, reach), p) for n, p in enumerate(packets)), key=lambda e: e[0])]


def duplicate(packets: Sequence[Packet]) -> list[Packet]:
    return [packet for packet in packets for _ in (1, 2)]


def shift_sequence(packets: Sequence[Packet], shift: Callable[[tuple[str, int]], int]) -> list[Packet]:
    """Change the initial sequence numbers; `shift` gives the change for each sender."""
    return [
        replace(
            packet,
            seq=(packet.seq + shift(packet.sender)) & MASK,
            ack=(packet.ack + shift((packet.dst, packet.dport))) & MASK if packet.flags & ACK else packet.ack,
        )
        for packet in packets
    ]


def wrap_soon(packets: Sequence[Packet], after: int) -> list[Packet]:
    """Make sequence numbers pass 2^32 `after` bytes into every direction."""
    first: dict[tuple[str, int], int] = {}
    for packet in packets:
        first.setdefault(packet.sender, packet.seq)
    for packet in packets:  # a side that never spoke first is known by the acknowledgements of its peer
        first.setdefault((packet.dst, packet.dport), packet.ack)
    return shift_sequence(packets, lambda sender: (MASK - after - first[sender]) & MASK)


# Writing

Wrap = Callable[[Packet], bytes]


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp_bytes(packet: Packet, pseudo: bytes) -> bytes:
    options = packet.options + b"\0" * (-len(packet.options) % 4)
    offset = (20 + len(options)) // 4 << 4

    def header(check: int) -> bytes:
        fields = (packet.sport, packet.dport, packet.seq, packet.ack, offset, packet.flags, packet.window, check, 0)
        return struct.pack(">HHIIBBHHH", *fields) + options

    size = len(header(0)) + len(packet.payload)
    whole = pseudo + struct.pack(">I", size) + b"\0\0\0\6" + header(0) + packet.payload
    return header(checksum(whole)) + packet.payload


def ipv4(
    src: str, dst: str, protocol: int, body: bytes, *, ident: int = 0, bits: int = 0x4000, options: bytes = b""
) -> bytes:
    addresses = ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed
    size = 20 + len(options)

    def header(check: int) -> bytes:
        total = size + len(body) if size + len(body) <= 0xFFFF else 0  # as a card with offload records it
        fields = (0x40 | size // 4, 0, total, ident, bits, 64, protocol, check)
        return struct.pack(">BBHHHBBH", *fields) + addresses + options

    return header(checksum(header(0))) + body


def ipv6(src: str, dst: str, protocol: int, body: bytes) -> bytes:
    size = len(body) if len(body) <= 0xFFFF else 0
    return struct.pack(">IHBB", 6 << 28, size, protocol, 64) + _six(src) + _six(dst) + body


def _six(address: str) -> bytes:
    given = ipaddress.ip_address(address)
    return given.packed if given.version == 6 else bytes.fromhex("fd00" + "00" * 10) + given.packed


def as_ip(packet: Packet) -> bytes:
    if ":" in packet.src:
        return as_ipv6(packet)
    pseudo = ipaddress.IPv4Address(packet.src).packed + ipaddress.IPv4Address(packet.dst).packed
    return ipv4(packet.src, packet.dst, 6, tcp_bytes(packet, pseudo))


def as_ipv6(packet: Packet) -> bytes:
    return ipv6(packet.src, packet.dst, 6, tcp_bytes(packet, _six(packet.src) + _six(packet.dst)))


MACS = b"\2\0\0\0\0\1\2\0\0\0\0\2"


def ether_type(ip: bytes) -> bytes:
    return b"\x08\x00" if ip[0] >> 4 == 4 else b"\x86\xdd"


def ethernet(ip: bytes) -> bytes:
    return MACS + ether_type(ip) + ip


def udp(body: bytes, port: int) -> bytes:
    return struct.pack(">HHHH", 40000, port, 8 + len(body), 0) + body


def _outer(protocol: int, body: bytes) -> bytes:
    return ethernet(ipv4("192.0.2.1", "192.0.2.2", protocol, body))


GTP_EXTENSION = b"\0\0\0\x85\x01\x10\x09\0"  # sequence, N-PDU, then one PDU session container


def _llc_length(ip: bytes) -> bytes:
    return struct.pack(">H", min(len(ip) + 8, 1500))


# name -> (link type, IP packet -> link-layer packet)
LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "ethernet": (1, ethernet),
    "vlan": (1, lambda ip: MACS + b"\x81\x00\x00\x64" + ether_type(ip) + ip),
    "qinq": (1, lambda ip: MACS + b"\x88\xa8\x00\x07\x81\x00\x00\x64" + ether_type(ip) + ip),
    "mpls": (1, lambda ip: MACS + b"\x88\x47" + b"\x00\x01\x00\x40" + b"\x00\x02\x01\x40" + ip),
    "pppoe": (1, lambda ip: MACS + b"\x88\x64\x11\x00\x00\x01" + struct.pack(">H", len(ip) + 2) + _ppp(ip) + ip),
    "llc_snap": (1, lambda ip: MACS + _llc_length(ip) + b"\xaa\xaa\x03\0\0\0" + ether_type(ip) + ip),
    "padded": (1, lambda ip: ethernet(ip) + b"\xee" * max(46 - len(ip), 6)),
    "sll": (113, lambda ip: struct.pack(">HHH8s", 0, 1, 6, b"\2\0\0\0\0\1") + ether_type(ip) + ip),
    "sll2": (276, lambda ip: ether_type(ip) + struct.pack(">HIHBB8s", 0, 1, 1, 0, 6, b"\2\0\0\0\0\1") + ip),
    "null": (0, lambda ip: struct.pack("<I", 2 if ip[0] >> 4 == 4 else 30) + ip),
    "null_other_endian": (0, lambda ip: struct.pack(">I", 2 if ip[0] >> 4 == 4 else 24) + ip),
    "loop": (108, lambda ip: struct.pack(">I", 2 if ip[0] >> 4 == 4 else 28) + ip),
    "raw": (101, lambda ip: ip),
    "ppp": (9, lambda ip: b"\xff\x03" + _ppp(ip) + ip),
    "gre": (1, lambda ip: _outer(47, b"\xb0\0" + ether_type(ip) + bytes(12) + ip)),
    "gre_ethernet": (1, lambda ip: _outer(47, b"\0\0\x65\x58" + ethernet(ip))),
    "ip_in_ip": (1, lambda ip: _outer(4 if ip[0] >> 4 == 4 else 41, ip)),
    "vxlan": (1, lambda ip: _outer(17, udp(b"\x08\0\0\0\0\0\x07\0" + ethernet(ip), 4789))),
    "geneve": (1, lambda ip: _outer(17, udp(b"\x01\0\x65\x58\0\0\x07\0" + b"\x01\x02\x03\x00" + ethernet(ip), 6081))),
    "gtp_u": (1, lambda ip: _outer(17, udp(b"\x30\xff" + struct.pack(">HI", len(ip), 7) + ip, 2152))),
    "gtp_u_extension": (
        1,
        lambda ip: _outer(17, udp(b"\x34\xff" + struct.pack(">HI", len(ip) + 8, 7) + GTP_EXTENSION + ip, 2152)),
    ),
}


def _ppp(ip: bytes) -> bytes:
    return b"\x00\x21" if ip[0] >> 4 == 4 else b"\x00\x57"


def build(packets: Sequence[Packet], link: str = "ethernet", ip: Wrap = as_ip) -> list[tuple[int, bytes]]:
    wrap = LINKS[link][1]
    return [(packet.ts_ns, wrap(ip(packet))) for packet in packets]


def pcap(
    frames: Sequence[tuple[int, bytes]], link_type: int = 1, *, order: str = "<", nano: bool = False, snaplen: int = 0
) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen or 262_144, link_type)]
    for ts_ns, frame in frames:
        seconds, rest = divmod(ts_ns, 1_000_000_000)
        kept = frame[:snaplen] if snaplen else frame
        parts.append(struct.pack(order + "IIII", seconds, rest if nano else rest // 1000, len(kept), len(frame)) + kept)
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += b"\0" * (-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def interface(link_type: int = 1, options: bytes = b"", order: str = "<", snaplen: int = 0) -> bytes:
    end = b"\0" * 4 if options else b""
    return block(1, struct.pack(order + "HHI", link_type, 0, snaplen) + options + end, order)


def enhanced(ticks: int, frame: bytes, number: int = 0, order: str = "<", origlen: int | None = None) -> bytes:
    size = len(frame)
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & MASK, size, size if origlen is None else origlen)
    return block(6, head + frame, order)


def pcapng(frames: Sequence[tuple[int, bytes]], link_type: int = 1, *, order: str = "<") -> bytes:
    """One section, one interface with nanoseconds."""
    parts = [section(order), interface(link_type, option(9, b"\x09", order), order)]
    parts += [enhanced(ts_ns, frame, 0, order) for ts_ns, frame in frames]
    return b"".join(parts)


def gzipped(data: bytes, members: int = 1) -> bytes:
    step = len(data) // members + 1
    return b"".join(gzip.compress(data[a : a + step], 1) for a in range(0, len(data), step))


# Conversations made up for a test


class Talk:
    """Two endpoints of a connection; every method appends the packets that a capture tool would record."""

    def __init__(
        self,
        client: tuple[str, int] = ("10.0.0.1", 40000),
        server: tuple[str, int] = ("10.0.0.2", 1935),
        *,
        isn: tuple[int, int] = (1000, 5000),
        start_ns: int = 1_700_000_000_000_000_000,
        step_ns: int = 1_000_000,
    ) -> None:
        self.ends = (client, server)
        self.isn = isn
        self.seq = list(isn)
        self.now_ns = start_ns
        self.step_ns = step_ns
        self.packets: list[Packet] = []

    def add(
        self,
        side: int,
        flags: int,
        payload: bytes = b"",
        *,
        seq: int | None = None,
        ack: int | None = None,
        window: int = 65535,
        options: bytes = b"",
    ) -> Talk:
        """Append a packet of one side with any field set; it does not advance the sequence number."""
        (src, sport), (dst, dport) = self.ends[side], self.ends[1 - side]
        seq = (self.seq[side] if seq is None else seq) & MASK
        ack = (self.seq[1 - side] if ack is None else ack) & MASK
        self.packets.append(Packet(self.now_ns, src, sport, dst, dport, seq, ack, flags, window, payload, options))
        self.now_ns += self.step_ns
        return self

    def open(self) -> Talk:
        self.add(0, SYN, ack=0)
        self.seq[0] = (self.seq[0] + 1) & MASK
        self.add(1, SYN | ACK)
        self.seq[1] = (self.seq[1] + 1) & MASK
        return self.add(0, ACK)

    def say(self, side: int, payload: bytes, size: int = 1000, *, ack: bool = True) -> Talk:
        for at in range(0, len(payload), size):
            piece = payload[at : at + size]
            self.add(side, ACK | PSH, piece)
            self.seq[side] = (self.seq[side] + len(piece)) & MASK
            if ack:
                self.add(1 - side, ACK)
        return self

    def close(self, side: int = 0) -> Talk:
        for one in (side, 1 - side):
            self.add(one, FIN | ACK)
            self.seq[one] = (self.seq[one] + 1) & MASK
        return self.add(side, ACK)
