"""Reads one real publication from a small capture, by the specification and without rtmp_spark, for benchmarks."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_pcaps" / "ffmpeg_publish_h264_aac.pcap"
SERVER_PORT = 1935
SET_CHUNK_SIZE, AUDIO, VIDEO = 1, 8, 9
FIN, SYN, PSH, ACK = 1, 2, 8, 16
VIDEO_FILL = 22_000  # bytes added to an inter frame; four times that to a key frame
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
    """One real publication: the server's bytes, and the publisher's messages before, during and after the media."""

    client_handshake: list[tuple[float, bytes]]
    server: list[tuple[float, bytes]]
    opening: list[Message]
    media: list[Message]
    closing: list[Message]

    @property
    def duration_ms(self) -> int:
        """Return the period for repeating the media: until one frame duration after the last frame of each kind."""
        ends = []
        for kind in {m.type_id for m in self.media}:
            *_, before, last = sorted(m.timestamp for m in self.media if m.type_id == kind)
            ends.append(2 * last - before)
        return max(ends) - min(m.timestamp for m in self.media)


def read_segments(path: Path) -> Iterator[tuple[float, bool, int, int, bytes]]:
    """Yield (time, from the client, sequence number, flags, payload) per packet of an Ethernet IPv4 pcap."""
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
    """Yield the messages of an undamaged stream (RTMP 1.0 5.3) without extended timestamps and with csid below 64."""
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
    """True for audio and video except configurations and end of sequence."""
    body = message.payload
    if message.type_id == AUDIO:
        return len(body) > 2 and not (body[0] >> 4 == 10 and body[1] == 0)
    return message.type_id == VIDEO and len(body) > 5 and not (body[0] & 15 == 7 and body[1] != 1)


def filled(message: Message, rng: random.Random) -> Message:
    """Return a video frame with a filler NAL unit appended (H.264 7.4.2.7; four-byte lengths)."""
    if message.type_id != VIDEO or message.payload[0] & 15 != 7:
        return message
    size = int(VIDEO_FILL * rng.uniform(0.5, 1.5)) * (4 if message.payload[0] >> 4 == 1 else 1)
    return replace(message, payload=message.payload + struct.pack(">IB", size + 1, 12) + rng.randbytes(size))
