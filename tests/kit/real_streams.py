"""Directed byte streams of real programs, and the same messages cut into chunks in other ways.

A reassembler of a few lines reads the streams from clean pcap files with Ethernet and IPv4; it imports nothing of the
project. chunk_reader.py finds the messages of each stream.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit.chunk_reader import HANDSHAKE, Read, read_chunks
from kit.chunk_writer import ChunkWriter, Sent

SAMPLES = Path(__file__).parents[2] / "sample_pcaps"
LONGEST = 400_000  # of a stream; enough of it for any question asked here


class Stream(NamedTuple):
    name: str
    data: bytes
    messages: list[Read]


def directions(path: Path) -> Iterator[tuple[str, bytes]]:
    """The bytes of every direction that begins with a SYN, up to its first gap."""
    capture = path.read_bytes()
    if capture[:4] != b"\xd4\xc3\xb2\xa1" or struct.unpack_from("<I", capture, 20)[0] != 1:
        return
    flows: dict[bytes, dict[int, bytes]] = {}
    first: dict[bytes, int] = {}
    at = 24
    while at + 16 <= len(capture):
        length = struct.unpack_from("<I", capture, at + 8)[0]
        frame = capture[at + 16 : at + 16 + length]
        at += 16 + length
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        tcp = 14 + (frame[14] & 15) * 4
        payload = frame[tcp + (frame[tcp + 12] >> 4) * 4 : 14 + struct.unpack_from(">H", frame, 16)[0]]
        flow = frame[26:34] + frame[tcp : tcp + 4]
        sequence = struct.unpack_from(">I", frame, tcp + 4)[0]
        if frame[tcp + 13] & 2:  # SYN
            first[flow], flows[flow] = sequence + 1, {}
        elif payload and flow in first:
            offset = sequence - first[flow] & 0xFFFFFFFF
            if len(payload) > len(flows[flow].get(offset, b"")):
                flows[flow][offset] = payload
    for flow, segments in flows.items():
        data = bytearray()
        for offset, payload in sorted(segments.items()):
            if offset > len(data):
                break
            data += payload[len(data) - offset :]
        source, target = struct.unpack_from(">HH", flow, 8)
        yield f"{path.stem} {source}>{target}", bytes(data)


def real_streams(directory: Path = SAMPLES, least: int = 15_000) -> list[Stream]:
    """Directions of plain RTMP with at least `least` bytes."""
    streams = []
    for path in sorted(directory.glob("*.pcap")):
        for name, data in directions(path):
            if len(data) < least or data[0] != 3:
                continue
            try:
                streams.append(Stream(name, data[:LONGEST], read_chunks(data[:LONGEST])))
            except ValueError:
                continue  # encrypted, or no RTMP
    return streams


def rechunked(stream: Stream, chunk_size: int, later: int = 0) -> Stream:
    """The audio and video of a stream, with randomly interleaved chunks and timestamps increased by `later` ms."""
    writer = ChunkWriter(random.Random(5))
    writer.wire += stream.data[:HANDSHAKE]
    writer.set_chunk_size(chunk_size)
    for message in stream.messages:
        if message.type_id in (8, 9):
            csid = 4 if message.type_id == 8 else 6
            writer.queue(Sent(csid, message.timestamp + later, message.type_id, 1, message.payload))
            while sum(len(channel.queue) for channel in writer.channels.values()) > 6:
                writer.step()
    writer.flush()
    data = bytes(writer.wire)[:LONGEST]
    name = f"{stream.name} interleaved at {chunk_size}" + (", extended" if later else "")
    return Stream(name, data, read_chunks(data))
