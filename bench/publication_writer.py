"""Writes synthetic publications as chunks, TCP packets and pcap files, by the specification."""

from __future__ import annotations

import heapq
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from own_handshake import with_own_handshake
from real_publication import ACK, FIN, PSH, SERVER_PORT, SET_CHUNK_SIZE, SYN, VIDEO, Message, Session

SEGMENT = 1448
_RNG = random.Random(1935)


class ChunkWriter:
    """Writes messages as chunks with the smallest possible header (RTMP 1.0 5.3.1.2)."""

    def __init__(self) -> None:
        self.chunk_size = 128
        self.last: dict[int, tuple[int, int, int, int, int]] = {}  # timestamp, delta, length, type, stream
        self.bodies: dict[tuple[int, int, int], bytes] | None = None  # None: payloads do not repeat

    def write(self, message: Message) -> bytes:
        csid, timestamp, length = message.csid, message.timestamp, len(message.payload)
        kind = (length, message.type_id)
        before = self.last.get(csid)
        delta = timestamp - before[0] if before else 0
        if timestamp >= 0xFFFFFF:
            raise SystemExit("The media is too long: timestamps would need the extended field. Use a smaller --scale.")
        if before is None or delta < 0 or before[4] != message.stream_id:
            header = struct.pack(">BHB", csid, timestamp >> 8, timestamp & 255) + length.to_bytes(3, "big")
            header += bytes([message.type_id]) + message.stream_id.to_bytes(4, "little")
            delta = 0
        elif kind != before[2:4]:
            header = bytes([0x40 | csid]) + delta.to_bytes(3, "big") + length.to_bytes(3, "big")
            header += bytes([message.type_id])
        elif delta != before[1]:
            header = bytes([0x80 | csid]) + delta.to_bytes(3, "big")
        else:
            header = bytes([0xC0 | csid])
        self.last[csid] = (timestamp, delta, *kind, message.stream_id)
        wire = header + self.body(message)
        if message.type_id == SET_CHUNK_SIZE:
            self.chunk_size = int.from_bytes(message.payload, "big")
        return wire

    def body(self, message: Message) -> bytes:
        size, payload = self.chunk_size, message.payload
        if len(payload) <= size:
            return payload
        key = (id(payload), message.csid, size)  # payloads are referenced until the session ends
        known = self.bodies.get(key) if self.bodies is not None else None
        if known is None:
            pieces = (payload[i : i + size] for i in range(0, len(payload), size))
            known = bytes([0xC0 | message.csid]).join(pieces)
            if self.bodies is not None:
                self.bodies[key] = known
        return known


Write = tuple[float, bool, bytes]  # time, from the client, bytes


class Script:
    """Produces what both sides write during a session at one chunk size; counts the publisher's messages."""

    def __init__(
        self,
        session: Session,
        chunk_size: int,
        bodies: dict[tuple[int, int, int], bytes] | None = None,
        mark: int | None = None,
    ) -> None:
        """`bodies`: chunked payloads, shared by scripts that repeat the same media. `mark`: a number that makes the
        content of every frame unique."""
        self.session = with_own_handshake(session, _RNG)
        self.chunk_size = chunk_size
        self.writer = ChunkWriter()
        self.writer.bodies = bodies if mark is None else None
        self.mark = mark
        self.period_ms = session.duration_ms
        self.messages = 0

    def write(self, message: Message, at: float) -> Write:
        if message.type_id == SET_CHUNK_SIZE:
            message = replace(message, payload=struct.pack(">I", self.chunk_size))
        self.messages += 1
        return at, True, self.writer.write(message)

    def opening(self) -> Iterator[Write]:
        begin = self.session.media[0].at
        client: list[tuple[float, bytes | Message]] = [*self.session.client_handshake]
        client += [(message.at, message) for message in self.session.opening]
        server = [(time, data) for time, data in self.session.server if time < begin]
        lines = [(at, True, data) for at, data in client] + [(at, False, data) for at, data in server]
        for at, from_client, data in sorted(lines, key=lambda line: line[0]):
            yield self.write(data, at) if isinstance(data, Message) else (at, from_client, data)

    def frame(self, number: int) -> Message:
        """One of the frames, which repeat the media of the session; `at` is when it is sent."""
        media = self.session.media
        loop, index = divmod(number, len(media))
        frame = media[index]
        timestamp = frame.timestamp + loop * self.period_ms
        payload = frame.payload
        if self.mark is not None:  # at the end of a video frame is filler; an audio frame may be very short
            kept = payload[:-8] if frame.type_id == VIDEO else payload
            payload = kept + struct.pack(">II", self.mark, number)
        at = media[0].at + (timestamp - media[0].timestamp) / 1000
        return replace(frame, at=at, timestamp=timestamp, payload=payload)

    def media(self, frames: int) -> Iterator[Write]:
        for number in range(frames):
            frame = self.frame(number)
            yield self.write(frame, frame.at)

    def closing(self, at: float) -> Iterator[Write]:
        for message in self.session.closing:
            yield self.write(replace(message, timestamp=self.writer.last[message.csid][0]), at)
        for time, data in self.session.server:
            if time >= self.session.media[0].at:
                yield at + 0.001, False, data

    def whole_session(self, frames: int) -> Iterator[Write]:
        yield from self.opening()
        at = 0.0
        for write in self.media(frames):
            at = write[0]
            yield write
        yield from self.closing(at + 0.001)


class Connection:
    """One TCP connection: turns writes into packets with correct sequence numbers and checksums."""

    def __init__(self, number: int, begin: float, client_isn: int, acknowledge: bool = True) -> None:
        self.client = bytes((10, 1 + (number >> 14), number >> 7 & 127, 1 + (number & 127)))
        self.server = bytes((10, 0, 0, 1))
        self.port = 20000 + number % 40000
        self.begin = begin
        self.next = {True: client_isn, False: (client_isn * 7 + 12345) & 0xFFFFFFFF}
        self.acknowledge = acknowledge
        self.identification = 0

    def packets(self, writes: Iterator[Write]) -> Iterator[tuple[float, bytes]]:
        yield self.packet(0.0, True, SYN)
        yield self.packet(0.00001, False, SYN | ACK)
        yield self.packet(0.00002, True, ACK)
        now, unacknowledged = 0.00002, {True: 0, False: 0}
        for at, from_client, data in writes:
            now = max(at, now + 0.000001)
            for start in range(0, len(data), SEGMENT):
                piece = data[start : start + SEGMENT]
                yield self.packet(now, from_client, (PSH if start + SEGMENT >= len(data) else 0) | ACK, piece)
                now += 0.000001
                unacknowledged[from_client] += 1
                if self.acknowledge and unacknowledged[from_client] >= 2:
                    yield self.packet(now, not from_client, ACK)
                    now, unacknowledged[from_client] = now + 0.000001, 0
        yield self.packet(now + 0.0001, True, FIN | ACK)
        yield self.packet(now + 0.0002, False, FIN | ACK)
        yield self.packet(now + 0.0003, True, ACK)

    def packet(self, at: float, from_client: bool, flags: int, payload: bytes = b"") -> tuple[float, bytes]:
        source, destination = (self.client, self.server) if from_client else (self.server, self.client)
        ports = (self.port, SERVER_PORT) if from_client else (SERVER_PORT, self.port)
        acknowledged = self.next[not from_client] if flags & ACK else 0
        numbers = self.next[from_client], acknowledged, 0x80 << 8 | flags, 65535
        ticks = int((self.begin + at) * 1000) & 0xFFFFFFFF
        options = struct.pack(">HBBII", 0x0101, 8, 10, ticks, ticks if flags & ACK else 0)
        pseudo = source + destination + struct.pack(">HH", 6, 32 + len(payload))
        tcp = struct.pack(">HHIIHHHH", *ports, *numbers, 0, 0)
        checksum = internet_checksum(pseudo + tcp + options + payload)
        tcp = tcp[:16] + checksum + tcp[18:]
        self.identification = (self.identification + 1) & 0xFFFF
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 52 + len(payload), self.identification, 0x4000, 64, 6, 0)
        ip = ip[:10] + internet_checksum(ip + source + destination) + source + destination
        advance = len(payload) + (1 if flags & (SYN | FIN) else 0)
        self.next[from_client] = (self.next[from_client] + advance) & 0xFFFFFFFF
        ethernet = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" if from_client else b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02"
        return self.begin + at, ethernet + b"\x08\0" + ip + tcp + options + payload


def internet_checksum(data: bytes) -> bytes:
    """Return the RFC 1071 checksum, added in native byte order, which the one's complement sum allows."""
    total = sum(memoryview(data if len(data) % 2 == 0 else data + b"\0").cast("H"))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, sys.byteorder)


def write_pcap(path: Path, connections: list[Iterator[tuple[float, bytes]]]) -> tuple[int, int]:
    """Write all packets in order of time. Returns the number of packets and bytes."""
    packets, size = 0, 24
    part = path.with_name(path.name + ".part")
    with part.open("wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for at, packet in heapq.merge(*connections, key=lambda pair: pair[0]):
            micros = round(at * 1e6)
            out.write(struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(packet), len(packet)))
            out.write(packet)
            packets += 1
            size += 16 + len(packet)
    part.replace(path)
    return packets, size
