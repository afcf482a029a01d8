"""Writes publishers and players of a relay as packets, by the specification and without rtmp_spark."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

from publication_writer import Connection, Write

COMMAND, AUDIO = 20, 8
Packets = Iterator[tuple[float, bytes]]  # of one connection: time, Ethernet frame
AAC_CONFIG = b"\xaf\x00\x12\x10"  # sequence header: AAC LC, 44.1 kHz, stereo
FRAME_MS = 23  # of AAC at 44.1 kHz


def amf0(*values: object) -> bytes:
    out = b""
    for value in values:
        if isinstance(value, str):
            out += b"\x02" + struct.pack(">H", len(value)) + value.encode()
        elif isinstance(value, (int, float)):
            out += b"\0" + struct.pack(">d", value)
        elif isinstance(value, dict):
            pairs = (struct.pack(">H", len(k)) + k.encode() + amf0(v) for k, v in value.items())
            out += b"\x03" + b"".join(pairs) + b"\0\0\x09"
        else:
            out += b"\x05"
    return out


def message(csid: int, type_id: int, stream_id: int, timestamp: int, payload: bytes) -> bytes:
    """One chunk of fmt 0; longer payloads than 128 bytes continue in chunks of fmt 3."""
    header = struct.pack(">BHB", csid, timestamp >> 8, timestamp & 255) + len(payload).to_bytes(3, "big")
    pieces = [payload[i : i + 128] for i in range(0, len(payload), 128)] or [b""]
    return header + bytes([type_id]) + stream_id.to_bytes(4, "little") + bytes([0xC0 | csid]).join(pieces)


def command(stream_id: int, *values: object) -> bytes:
    return message(3, COMMAND, stream_id, 0, amf0(*values))


def frames(rng: random.Random, count: int, size: int = 90) -> list[bytes]:
    """Raw AAC frames with random content."""
    return [b"\xaf\x01" + rng.randbytes(size) for _ in range(count)]


def session(role: str, name: str, media: Sequence[bytes], begin: float = 0.1) -> Iterator[Write]:
    """A whole publication or play; the media begins after so many seconds."""
    zeros = bytes(1536)
    success = {"level": "status", "code": "NetConnection.Connect.Success"}
    start = {"level": "status", "code": f"NetStream.{role.capitalize()}.Start"}
    yield 0.001, True, b"\x03" + zeros
    yield 0.002, False, b"\x03" + zeros + zeros
    yield 0.003, True, zeros + command(0, "connect", 1, {"app": "live", "tcUrl": "rtmp://10.0.0.1/live"})
    yield 0.004, False, command(0, "_result", 1, None, success)
    yield 0.005, True, command(0, "createStream", 2, None)
    yield 0.006, False, command(0, "_result", 2, None, 1)
    yield 0.007, True, command(1, role, 0, None, name, *(["live"] if role == "publish" else []))
    yield 0.008, False, command(1, "onStatus", 0, None, start)
    yield begin - 0.001, role == "publish", message(4, AUDIO, 1, 0, AAC_CONFIG)
    at = begin
    for number, frame in enumerate(media):
        at = begin + number * FRAME_MS / 1000
        yield at, role == "publish", message(4, AUDIO, 1, number * FRAME_MS, frame)
    yield at + 0.001, True, command(1, "deleteStream", 0, None, 1)


def connection(number: int, start: float, role: str, name: str, media: Sequence[bytes], begin: float) -> Packets:
    return Connection(number, start, 9_000 * number + 5, False).packets(session(role, name, media, begin))


def fan_out(players: int, start: float) -> list[Packets]:
    """One publisher; each player joins at another time and receives the next 40 frames 5 ms after they are sent."""
    rng = random.Random(1)
    sent = frames(rng, max(400, players // 2))
    flows = [connection(0, start, "publish", "cam", sent, 0.1)]
    for number in range(1, players + 1):
        first = number * (len(sent) - 40) // players
        joined = start + first * FRAME_MS / 1000
        flows.append(connection(number, joined, "play", "cam", sent[first : first + 40], 0.105))
    return flows


def few_names(publishers: int, players: int, start: float, same_content: bool = False) -> list[Packets]:
    """Publishers and plays of three names at once; a play receives one of the publications, or all are the same."""
    rng = random.Random(2)
    every = frames(rng, 30)
    sent = [every if same_content else frames(rng, 30) for _ in range(publishers)]
    flows = [
        connection(number, start + number * 0.0005, "publish", f"cam{number % 3}", media, 0.1)
        for number, media in enumerate(sent)
    ]
    for number in range(players):
        source = number % publishers
        flows.append(
            connection(publishers + number, start + source * 0.0005, "play", f"cam{source % 3}", sent[source], 0.105)
        )
    return flows
