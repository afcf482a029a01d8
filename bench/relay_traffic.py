"""Writes publishers and players of a relay as packets, by the specification and without rtmp_spark."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from publication_writer import ChunkWriter, Connection, Script, Write
from real_publication import AUDIO, SET_CHUNK_SIZE, VIDEO, Message, Session

COMMAND = 20
FEW_FRAMES = 30  # of each publication of `few_names`
PLAY_MESSAGES = 4  # from a player: connect, createStream, play, deleteStream
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


def opening(role: str, name: str) -> Iterator[Write]:
    """Handshake and commands, until the stream starts."""
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


def session(role: str, name: str, media: Sequence[bytes], begin: float = 0.1) -> Iterator[Write]:
    """A whole publication or play; the media begins after so many seconds."""
    yield from opening(role, name)
    yield begin - 0.001, role == "publish", message(4, AUDIO, 1, 0, AAC_CONFIG)
    at = begin
    for number, frame in enumerate(media):
        at = begin + number * FRAME_MS / 1000
        yield at, role == "publish", message(4, AUDIO, 1, number * FRAME_MS, frame)
    yield at + 0.001, True, command(1, "deleteStream", 0, None, 1)


def connection(number: int, start: float, role: str, name: str, media: Sequence[bytes], begin: float) -> Packets:
    return Connection(number, start, 9_000 * number + 5, False).packets(session(role, name, media, begin))


def fan_out_frames(players: int) -> int:
    return max(400, players // 2)


def fan_out(players: int, start: float) -> list[Packets]:
    """One publisher; each player joins at another time and receives the next 40 frames 5 ms after they are sent."""
    rng = random.Random(1)
    sent = frames(rng, fan_out_frames(players))
    flows = [connection(0, start, "publish", "cam", sent, 0.1)]
    for number in range(1, players + 1):
        first = number * (len(sent) - 40) // players
        joined = start + first * FRAME_MS / 1000
        flows.append(connection(number, joined, "play", "cam", sent[first : first + 40], 0.105))
    return flows


def few_names(publishers: int, players: int, start: float, same_content: bool = False) -> list[Packets]:
    """Publishers and plays of three names at once; a play receives one of the publications, or all are the same."""
    rng = random.Random(2)
    every = frames(rng, FEW_FRAMES)
    sent = [every if same_content else frames(rng, FEW_FRAMES) for _ in range(publishers)]
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


def renamed(source: Session, name: str) -> Session:
    """The same publication with another stream name of the same length."""
    (command_,) = (m.payload for m in source.opening if m.payload[3:10] == b"publish")
    at = 20  # after the name of the command, the transaction id and null
    old = command_[at : at + 3 + int.from_bytes(command_[at + 1 : at + 3], "big")]
    new = old[:3] + name.zfill(len(old) - 3)[-len(old) + 3 :].encode()
    changed = (
        [replace(m, payload=m.payload.replace(old, new)) for m in part] for part in (source.opening, source.closing)
    )
    return replace(source, opening=next(changed), closing=next(changed))


def relay(source: Session, publishers: int, players: int, frames: int, start: float) -> tuple[list[Packets], int]:
    """Real publications with unique frames, and so many players of each, which join at different times and receive the
    frames 5 ms after they were sent. Returns the connections and the number of messages from clients."""
    keyframe = next(n for n, m in enumerate(source.media) if m.type_id == VIDEO and m.payload[0] >> 4 == 1)
    flows: list[Packets] = []
    messages = 0
    for number in range(publishers):
        own = renamed(source, str(number))
        begun = start + number * 0.731
        publisher = Script(own, 4096, mark=number)
        first = number * (players + 1)
        flows.append(
            Connection(first, begun, 1_000_000_007 * first & 0xFFFFFFFF).packets(publisher.whole_session(frames))
        )
        messages += len(own.opening) + frames + len(own.closing)
        for player in range(players):
            loops = frames // len(own.media) * player // max(players, 1)
            joined = keyframe + loops * len(own.media)
            sent = Script(own, 4096, mark=number)
            at = sent.frame(joined).at - 0.1
            media = relayed(own, sent, range(joined, frames), at)
            connection = Connection(first + 1 + player, begun + at, 1_000_000_007 * (first + 1 + player) & 0xFFFFFFFF)
            flows.append(connection.packets(media))
            messages += PLAY_MESSAGES
    return flows, messages


def relayed(source: Session, sent: Script, numbers: range, joined: float) -> Iterator[Write]:
    """A play of some frames of a publication; `joined` is the time of its beginning in that of the publication."""
    (name,) = (m.payload[23:].split(b"\x02")[0].decode() for m in source.opening if m.payload[3:10] == b"publish")
    writer = ChunkWriter()
    yield from opening("play", name)
    yield 0.009, False, writer.write(Message(0, 2, SET_CHUNK_SIZE, 0, 0, struct.pack(">I", sent.chunk_size)))
    for message_ in source.opening:
        if message_.type_id in (AUDIO, VIDEO):
            yield 0.01, False, writer.write(replace(message_, timestamp=0))
    at = 0.01
    for number in numbers:
        frame = sent.frame(number)
        at = frame.at - joined + 0.005
        yield at, False, writer.write(frame)
    yield at + 0.01, True, command(1, "deleteStream", 0, None, 1)
