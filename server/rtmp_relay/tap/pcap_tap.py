"""Writes bytes that crossed a socket as a pcap, without root privileges, inside synthetic but valid TCP/IP packets.

Every tapped connection gets addresses, a three-way handshake, MSS-sized segments with correct sequence numbers,
acknowledgements, both checksums, and FIN or RST at its end. Times and bytes are real. The tap cannot see
retransmissions, windows and round trips, and does not invent them.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import struct
from pathlib import Path
from typing import BinaryIO, Protocol

log = logging.getLogger(__name__)

MSS = 1460  # what a 1500-byte Ethernet frame leaves for TCP over IPv4
_FIN, _SYN, _RST, _PSH, _ACK = 1, 2, 4, 8, 16
_SEGMENTS_PER_ACK = 2  # RFC 1122 4.2.3.2: at least every second full-sized segment
_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)  # nanoseconds, Ethernet
_RECORD = struct.Struct("<IIII")
_TCP = struct.Struct(">HHIIBBHHH")
_MSS_OPTION = bytes((2, 4, MSS >> 8, MSS & 0xFF))


class Observer(Protocol):
    """Receives every byte of every connection: a tap or a validator."""

    def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None: ...

    def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None: ...

    def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None: ...


class PacketWriter(Protocol):
    """Takes the packets of tapped connections: a `Tap`, or any other writer."""

    def write_packet(self, packet: bytes, time_ns: int) -> None: ...


def _checksum(data: bytes) -> int:
    """Return the RFC 1071 checksum. The one's complement sum of 16-bit words equals the whole number modulo 65535."""
    if len(data) & 1:
        data += b"\0"
    total = int.from_bytes(data, "big")
    folded = total % 0xFFFF
    if folded == 0 and total:
        folded = 0xFFFF
    return folded ^ 0xFFFF


class _Side:
    """Builds the packets of one endpoint: the constant parts of its headers, its sequence number and counters."""

    __slots__ = ("acked", "address", "ethernet", "packet_id", "peer_address", "port", "seq", "unacked_segments")

    def __init__(self, address: bytes, peer_address: bytes, port: int, mac: int, seq: int) -> None:
        self.address = address
        self.peer_address = peer_address
        self.port = port
        kind = b"\x08\x00" if len(address) == 4 else b"\x86\xdd"
        self.ethernet = bytes((2, 0, 0, 0, 0, 3 - mac, 2, 0, 0, 0, 0, mac)) + kind
        self.seq = seq
        self.acked = 0  # the next sequence number expected from the peer
        self.packet_id = 0
        self.unacked_segments = 0

    def packet(self, to_port: int, flags: int, payload: bytes = b"", options: bytes = b"") -> bytes:
        ack = self.acked if flags & _ACK else 0
        offset = (20 + len(options)) // 4 << 4
        header = _TCP.pack(self.port, to_port, self.seq, ack, offset, flags, 65535, 0, 0)
        segment = header + options + payload
        pseudo = self.address + self.peer_address + struct.pack(">II", len(segment), 6)
        checksum = _checksum(pseudo + segment)
        segment = segment[:16] + checksum.to_bytes(2, "big") + segment[18:]
        self.seq = (self.seq + len(payload) + (1 if flags & (_SYN | _FIN) else 0)) & 0xFFFFFFFF
        return self.ethernet + self._ip_header(len(segment)) + segment

    def _ip_header(self, length: int) -> bytes:
        if len(self.address) == 16:
            return struct.pack(">IHBB", 6 << 28, length, 6, 64) + self.address + self.peer_address
        self.packet_id = (self.packet_id + 1) & 0xFFFF
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, self.packet_id, 0x4000, 64, 6, 0)
        checksum = _checksum(head + self.address + self.peer_address)
        return head[:10] + checksum.to_bytes(2, "big") + self.address + self.peer_address


def _addresses(client: str, server: str) -> tuple[bytes, bytes]:
    pair = []
    for text in (client, server):
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            address = ipaddress.ip_address("127.0.0.1")
        pair.append(getattr(address, "ipv4_mapped", None) or address)
    if pair[0].version != pair[1].version:
        pair = [ipaddress.ip_address(f"::ffff:{a}") if a.version == 4 else a for a in pair]
    return pair[0].packed, pair[1].packed


class TapConnection:
    """Writes the packets of one connection; the constructor writes the TCP handshake."""

    def __init__(
        self, tap: PacketWriter, client: tuple[str, int], server: tuple[str, int], time_ns: int, seed: int
    ) -> None:
        self._tap = tap
        client_address, server_address = _addresses(client[0], server[0])
        # Any initial sequence number is valid; different ones make connections easier to distinguish.
        self._client = _Side(client_address, server_address, client[1], 1, seed * 0x9E3779B1 & 0xFFFFFFFF)
        self._server = _Side(server_address, client_address, server[1], 2, (seed * 0x85EBCA6B + 1) & 0xFFFFFFFF)
        self._closed = False
        self._write(self._client, self._server, _SYN, time_ns, options=_MSS_OPTION)
        self._write(self._server, self._client, _SYN | _ACK, time_ns, options=_MSS_OPTION)
        self._write(self._client, self._server, _ACK, time_ns)

    def _write(
        self, source: _Side, target: _Side, flags: int, time_ns: int, payload: bytes = b"", options: bytes = b""
    ) -> None:
        self._tap.write_packet(source.packet(target.port, flags, payload, options), time_ns)
        target.acked = source.seq
        target.unacked_segments = 0  # every packet of the source acknowledges the target

    def data(self, from_client: bool, data: bytes, time_ns: int) -> None:
        source, target = (self._client, self._server) if from_client else (self._server, self._client)
        for start in range(0, len(data), MSS):
            piece = data[start : start + MSS]
            last = start + MSS >= len(data)
            self._write(source, target, _ACK | _PSH if last else _ACK, time_ns, piece)
            source.unacked_segments += 1
            if source.unacked_segments >= _SEGMENTS_PER_ACK or last:
                source.unacked_segments = 0
                self._write(target, source, _ACK, time_ns)

    def close(self, by_client: bool, time_ns: int, reset: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        first, second = (self._client, self._server) if by_client else (self._server, self._client)
        if reset:
            self._write(first, second, _RST | _ACK, time_ns)
            return
        self._write(first, second, _FIN | _ACK, time_ns)
        self._write(second, first, _FIN | _ACK, time_ns)
        self._write(first, second, _ACK, time_ns)


class Tap:
    """An `Observer` that writes a pcap file, or several if `rotate_bytes` is given (`name-00001.pcap`, ...).

    A failed write ends the tap but never the tapped traffic.
    """

    def __init__(self, path: str | Path, rotate_bytes: int | None = None) -> None:
        self._path = Path(path)
        self._rotate_bytes = rotate_bytes
        self._files = 0
        self._written = 0
        self._connections: dict[int, TapConnection] = {}
        self._seed = 0
        self.failed: str | None = None
        self._file: BinaryIO | None = self._open()

    def _open(self) -> BinaryIO:
        path = self._path
        if self._rotate_bytes is not None:
            path = path.with_name(f"{path.stem}-{self._files:05d}{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("wb")
        file.write(_FILE_HEADER)
        self._written = len(_FILE_HEADER)
        self._files += 1
        return file

    def write_packet(self, packet: bytes, time_ns: int) -> None:
        if self._file is None:
            return
        try:
            if self._rotate_bytes is not None and self._written >= self._rotate_bytes:
                self._file.close()
                self._file = self._open()
            seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
            self._file.write(_RECORD.pack(seconds, nanoseconds, len(packet), len(packet)) + packet)
            self._written += 16 + len(packet)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.failed = f"{error.strerror or error}"
        log.error("tap stopped, the traffic continues: %s", self.failed)
        file, self._file = self._file, None
        if file is not None:
            try:
                os.close(file.fileno())  # without flushing, which has just failed
            except OSError:
                pass

    def flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def opened(self, number: int, client: tuple[str, int], server: tuple[str, int], time_ns: int) -> None:
        self._seed += 1
        self._connections[number] = TapConnection(self, client, server, time_ns, self._seed)

    def data(self, number: int, from_client: bool, data: bytes, time_ns: int) -> None:
        self._connections[number].data(from_client, data, time_ns)

    def closed(self, number: int, by_client: bool, reset: bool, time_ns: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.close(by_client, time_ns, reset)
