"""Make the large captures of the benchmarks out of one small real one.

    python bench/make_captures.py DIRECTORY [NAME ...] [--source FILE.pcap] [--scale 1.0] [--force]

    c128, c4096, c60000   15 publishers at once, about 300 MB: the same messages at three chunk sizes
    huge                  one publisher, about 550 MB; its sequence numbers pass 2^32
    tiny10k               10,000 connections of 40 packets

The dialogue is that of the real publisher (handshake, commands, answers); its media are repeated with growing
timestamps, and its video frames are filled up with filler NAL units to some 5 Mbit/s. `--source` takes another
capture of one clean publish, and uses its media as they are. Everything is written here, from the specification and
without `rtmp_spark`, so that a count that the benchmarks compare with is not our own. DIRECTORY/captures.json
keeps packets, connections and messages of each capture. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
SEGMENT = 1448
SERVER_PORT = 1935
SET_CHUNK_SIZE, AUDIO, VIDEO = 1, 8, 9
FIN, SYN, PSH, ACK = 1, 2, 8, 16
VIDEO_FILL = 22_000  # bytes added to an inter frame; four times that to a key frame
START = 1_700_000_000.0
TINY_PACKETS = 40
HANDSHAKE = 1 + 1536 + 1536


@dataclass(frozen=True)
class Message:
    at: float  # seconds since the connection began
    csid: int
    type_id: int
    stream_id: int
    timestamp: int
    payload: bytes


@dataclass(frozen=True)
class Session:
    """One real publish: what the server said, and the publisher's messages before, during and after the media."""

    client_handshake: list[tuple[float, bytes]]
    server: list[tuple[float, bytes]]
    opening: list[Message]
    media: list[Message]
    closing: list[Message]

    @property
    def duration_ms(self) -> int:
        """After how long the media can be repeated: one more step of each kind after its last frame."""
        ends = []
        for kind in {m.type_id for m in self.media}:
            *_, before, last = sorted(m.timestamp for m in self.media if m.type_id == kind)
            ends.append(2 * last - before)
        return max(ends) - min(m.timestamp for m in self.media)


# --- reading the source -----------------------------------------------------------------------------------------------


def read_segments(path: Path) -> Iterator[tuple[float, bool, int, int, bytes]]:
    """(time, from the client, sequence number, flags, payload) of each packet: little-endian pcap, Ethernet, IPv4."""
    data = path.read_bytes()
    magic, link = struct.unpack_from("<I16xI", data)
    if magic != 0xA1B2C3D4 or link != 1:
        raise SystemExit(f"{path}: the source must be a classic little-endian microsecond pcap with Ethernet frames.")
    at = 24
    while at < len(data):
        seconds, micros, length = struct.unpack_from("<III", data, at)
        packet = data[at + 16 : at + 16 + length]
        at += 16 + length
        ip = 14
        tcp = ip + (packet[ip] & 15) * 4
        end = ip + int.from_bytes(packet[ip + 2 : ip + 4], "big")
        _, destination, sequence = struct.unpack_from(">HHI", packet, tcp)
        payload = packet[tcp + (packet[tcp + 12] >> 4) * 4 : end]
        yield seconds + micros / 1e6, destination == SERVER_PORT, sequence, packet[tcp + 13], payload


def read_session(path: Path, fill: bool, rng: random.Random) -> Session:
    sides: dict[bool, list[tuple[float, bytes]]] = {True: [], False: []}
    following: dict[bool, int] = {}
    start: float | None = None
    for time, from_client, sequence, flags, payload in read_segments(path):
        start = time if start is None else start
        if flags & SYN:
            following[from_client] = (sequence + 1) & 0xFFFFFFFF
        elif payload:
            if sequence != following[from_client]:
                raise SystemExit(f"{path}: the source must be one connection without loss or reordering.")
            following[from_client] = (sequence + len(payload)) & 0xFFFFFFFF
            sides[from_client].append((time - start, payload))
    messages = list(read_messages(sides[True]))
    stream = b"".join(payload for _, payload in sides[True])
    c0_c1, c2 = stream[:1537], stream[1537:HANDSHAKE]
    first, *_, last = [i for i, m in enumerate(messages) if is_frame(m)]
    media = [m for m in messages[first : last + 1] if is_frame(m)]
    return Session(
        [(sides[True][0][0], c0_c1), (sides[True][1][0], c2)],
        sides[False],
        messages[:first],
        [filled(m, rng) for m in media] if fill else media,
        messages[last + 1 :],
    )


def read_messages(segments: list[tuple[float, bytes]]) -> Iterator[Message]:
    """The messages of a clean stream (RTMP 1.0 5.3); no extended timestamps, csid below 64."""
    stream = b"".join(payload for _, payload in segments)
    ends: list[tuple[int, float]] = []
    total = 0
    for time, payload in segments:
        total += len(payload)
        ends.append((total, time))
    at, size, segment = HANDSHAKE, 128, 0
    headers: dict[int, list[int]] = {}  # csid -> [timestamp, delta, length, type, stream]
    partial: dict[int, bytearray] = {}
    while at < len(stream):
        fmt, csid = stream[at] >> 6, stream[at] & 63
        if csid < 2:
            raise SystemExit("The source uses a csid above 63; choose another.")
        at += 1
        header = headers.setdefault(csid, [0, 0, 0, 0, 0])
        if fmt < 3:
            field = int.from_bytes(stream[at : at + 3], "big")
            if field == 0xFFFFFF:
                raise SystemExit("The source uses extended timestamps; choose another.")
            header[1] = field
            if fmt < 2:
                header[2], header[3] = int.from_bytes(stream[at + 3 : at + 6], "big"), stream[at + 6]
            if fmt == 0:
                header[0], header[1] = field, 0
                header[4] = int.from_bytes(stream[at + 7 : at + 11], "little")
            at += (11, 7, 3)[fmt]
        if csid not in partial:
            partial[csid] = bytearray()
            header[0] += header[1] if fmt else 0
        body = partial[csid]
        take = min(size, header[2] - len(body))
        body += stream[at : at + take]
        at += take
        if len(body) == header[2]:
            del partial[csid]
            if header[3] == SET_CHUNK_SIZE:
                size = int.from_bytes(body, "big")
            while ends[segment][0] < at:
                segment += 1
            yield Message(ends[segment][1], csid, header[3], header[4], header[0], bytes(body))


def is_frame(message: Message) -> bool:
    """Audio or video other than configurations and the end of sequence."""
    body = message.payload
    if message.type_id == AUDIO:
        return len(body) > 2 and not (body[0] >> 4 == 10 and body[1] == 0)
    return message.type_id == VIDEO and len(body) > 5 and not (body[0] & 15 == 7 and body[1] != 1)


def filled(message: Message, rng: random.Random) -> Message:
    """A video frame with a filler NAL unit behind its own (H.264 7.4.2.7; lengths of four bytes)."""
    if message.type_id != VIDEO or message.payload[0] & 15 != 7:
        return message
    size = int(VIDEO_FILL * rng.uniform(0.5, 1.5)) * (4 if message.payload[0] >> 4 == 1 else 1)
    return replace(message, payload=message.payload + struct.pack(">IB", size + 1, 12) + rng.randbytes(size))


# --- writing --------------------------------------------------------------------------------------------------------


class ChunkWriter:
    """Messages into chunks, with the smallest header that says it (RTMP 1.0 5.3.1.2)."""

    def __init__(self) -> None:
        self.chunk_size = 128
        self.last: dict[int, tuple[int, int, int, int, int]] = {}  # timestamp, delta, length, type, stream
        self.bodies: dict[tuple[int, int, int], bytes] = {}

    def write(self, message: Message) -> bytes:
        csid, timestamp, length = message.csid, message.timestamp, len(message.payload)
        kind = (length, message.type_id)
        before = self.last.get(csid)
        delta = timestamp - before[0] if before else 0
        if timestamp >= 0xFFFFFF:
            raise SystemExit("The media are too long: timestamps would need the extended field.")
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
        key = (id(payload), message.csid, size)  # payloads of a session live as long as it does
        if key not in self.bodies:
            pieces = (payload[i : i + size] for i in range(0, len(payload), size))
            self.bodies[key] = bytes([0xC0 | message.csid]).join(pieces)
        return self.bodies[key]


Write = tuple[float, bool, bytes]  # time, from the client, bytes


class Script:
    """What both sides write during a session, at one chunk size; counts the publisher's messages."""

    def __init__(self, session: Session, chunk_size: int, bodies: dict[tuple[int, int, int], bytes]) -> None:
        self.session = session
        self.chunk_size = chunk_size
        self.writer = ChunkWriter()
        self.writer.bodies = bodies
        self.messages = 0

    def say(self, message: Message, at: float) -> Write:
        if message.type_id == SET_CHUNK_SIZE:
            message = replace(message, payload=struct.pack(">I", self.chunk_size))
        self.messages += 1
        return at, True, self.writer.write(message)

    def opening(self) -> Iterator[Write]:
        begin = self.session.media[0].at
        client: list[tuple[float, bytes | Message]] = [*self.session.client_handshake]
        client += [(message.at, message) for message in self.session.opening]
        server = [(time, data) for time, data in self.session.server if time < begin]
        lines = [(at, True, said) for at, said in client] + [(at, False, said) for at, said in server]
        for at, from_client, said in sorted(lines, key=lambda line: line[0]):
            yield self.say(said, at) if isinstance(said, Message) else (at, from_client, said)

    def media(self, frames: int) -> Iterator[Write]:
        session = self.session
        begin, period = session.media[0].at, session.duration_ms
        for number in range(frames):
            loop, index = divmod(number, len(session.media))
            frame = session.media[index]
            shifted = replace(frame, timestamp=frame.timestamp + loop * period)
            yield self.say(shifted, begin + (shifted.timestamp - session.media[0].timestamp) / 1000)

    def closing(self, at: float) -> Iterator[Write]:
        for message in self.session.closing:
            yield self.say(replace(message, timestamp=self.writer.last[message.csid][0]), at)
        for time, data in self.session.server:
            if time >= self.session.media[0].at:
                yield at + 0.001, False, data

    def play(self, frames: int) -> Iterator[Write]:
        yield from self.opening()
        at = 0.0
        for write in self.media(frames):
            at = write[0]
            yield write
        yield from self.closing(at + 0.001)


class Connection:
    """One TCP connection: turns writes into packets with correct numbers and checksums."""

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
        now, unacknowledged = 0.00002, 0
        for at, from_client, data in writes:
            now = max(at, now + 0.000001)
            for start in range(0, len(data), SEGMENT):
                piece = data[start : start + SEGMENT]
                yield self.packet(now, from_client, (PSH if start + SEGMENT >= len(data) else 0) | ACK, piece)
                now += 0.000001
                unacknowledged += from_client
                if self.acknowledge and unacknowledged >= 2:
                    yield self.packet(now, False, ACK)
                    now, unacknowledged = now + 0.000001, 0
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
    """RFC 1071; added up in the machine's own byte order, which the ones' complement sum allows."""
    total = sum(memoryview(data if len(data) % 2 == 0 else data + b"\0").cast("H"))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, sys.byteorder)


def write_pcap(path: Path, connections: list[Iterator[tuple[float, bytes]]]) -> tuple[int, int]:
    """All packets in the order of time; returns packets and bytes."""
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


# --- the captures ---------------------------------------------------------------------------------------------------


def media_frames(session: Session, wanted_bytes: float) -> int:
    mean = sum(len(m.payload) for m in session.media) / len(session.media)
    return max(1, int(wanted_bytes / (mean * 1.07)))


def make_publishers(path: Path, session: Session, chunk_size: int, count: int, each_bytes: float) -> dict[str, int]:
    """Publishers at the same time; the sequence numbers of the first one pass 2^32 after a third of its bytes."""
    bodies: dict[tuple[int, int, int], bytes] = {}
    scripts = [Script(session, chunk_size, bodies) for _ in range(count)]
    frames = media_frames(session, each_bytes)
    first = (1 << 32) - int(each_bytes / 3)
    flows = [
        Connection(n, START + n * 0.731, (first + 1_000_000_007 * n) & 0xFFFFFFFF).packets(script.play(frames))
        for n, script in enumerate(scripts)
    ]
    packets, size = write_pcap(path, flows)
    return summary(size, packets, count, scripts)


def tiny_connections(session: Session, count: int) -> tuple[list[Script], list[Iterator[tuple[float, bytes]]]]:
    """Connections of exactly TINY_PACKETS packets: as many audio frames as there is room for."""
    short = replace(session, media=[m for m in session.media if m.type_id == AUDIO])
    fixed = sum(1 for _ in Connection(0, START, 0, False).packets(Script(short, 4096, {}).play(0)))
    if fixed >= TINY_PACKETS:
        raise SystemExit(f"The source's dialogue alone takes {fixed} packets; tiny10k needs fewer than {TINY_PACKETS}.")
    scripts = [Script(short, 4096, {}) for _ in range(count)]
    return scripts, [
        Connection(n, START + n * 0.003, 9_000 * n + 5, False).packets(script.play(TINY_PACKETS - fixed))
        for n, script in enumerate(scripts)
    ]


def make_tiny(path: Path, session: Session, count: int) -> dict[str, int]:
    scripts, flows = tiny_connections(session, count)
    packets, size = write_pcap(path, flows)
    return summary(size, packets, count, scripts)


def make_files(directory: Path, session: Session, count: int) -> dict[str, int]:
    """The same, each in a file of its own."""
    directory.mkdir(exist_ok=True)
    scripts, flows = tiny_connections(session, count)
    written = [write_pcap(directory / f"{n:06}.pcap", [flow]) for n, flow in enumerate(flows)]
    return summary(sum(size for _, size in written), sum(packets for packets, _ in written), count, scripts)


def summary(size: int, packets: int, connections: int, scripts: list[Script]) -> dict[str, int]:
    return {
        "bytes": size,
        "packets": packets,
        "connections": connections,
        "client_messages": sum(script.messages for script in scripts),
    }


def size_of(path: Path) -> int:
    """Of a file, or of all in a directory."""
    return sum(p.stat().st_size for p in (path.iterdir() if path.is_dir() else [path]) if p.exists())


NAMES = ("c128", "c4096", "c60000", "huge", "tiny10k", "files10k")


def make(name: str, path: Path, session: Session, scale: float) -> dict[str, int]:
    if name == "tiny10k":
        return make_tiny(path, session, max(1, int(10_000 * scale)))
    if name == "files10k":
        return make_files(path, session, max(1, int(10_000 * scale)))
    if name == "huge":
        return make_publishers(path, session, 4096, 1, 550e6 * scale)
    return make_publishers(path, session, int(name[1:]), 15, 20e6 * scale)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the large captures of the benchmarks out of one small real one.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--source", type=Path, help="a capture of one clean publish, used with its media as they are")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes (0.01 for a quick look)")
    parser.add_argument("--force", action="store_true", help="make them again when they are there")
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"no such capture: {', '.join(sorted(unknown))}")
    session = read_session(args.source or SAMPLE, args.source is None, random.Random(1935))
    args.directory.mkdir(parents=True, exist_ok=True)
    ledger = args.directory / "captures.json"
    made = json.loads(ledger.read_text()) if ledger.exists() else {}
    for name in args.names or NAMES:
        path = args.directory / (name if name == "files10k" else f"{name}.pcap")
        if name in made and not args.force and made[name]["bytes"] == size_of(path):
            print(f"{path}: there already")
            continue
        made[name] = make(name, path, session, args.scale)
        ledger.write_text(json.dumps(made, indent=1) + "\n")
        print(f"{path}: " + ", ".join(f"{value} {key}" for key, value in made[name].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
