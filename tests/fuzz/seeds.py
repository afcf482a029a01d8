"""Inputs to begin with, made from the golden vectors, the sample captures and the captures of tests/kit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from kit import capture_rewriting
from kit.hostile_captures import CONNECT, CONNECTED, FAMILIES, HANDSHAKE, LARGE_CHUNKS
from kit.hostile_kinds import FURTHER_FAMILIES

from rtmp_spark.vectors import BUNDLED
from rtmp_spark.vectors.layers import pieces_of
from rtmp_spark.vectors.run import load

Said = list[tuple[int, bytes]]  # side, bytes

PORTS = (1935, 443, 80)
RTMP, TLS, RTMPT = range(3)
PREPARED = 0x80  # of the first byte of a stream: a handshake precedes its packets
_SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_pcaps"
_TLS_SAMPLE = _SAMPLES / "rtmps_tls13_ffmpeg_publish.pcap"
_TLS_HANDSHAKE_PACKETS = 6
_LONGEST = 1 << 14
# The parsers whose input is the bytes of golden vectors: their number in PARSERS, the layer, bytes that select.
_VECTORS = (
    (0, "amf0", (b"",)), (1, "amf3", (b"",)), (2, "command", (b"\x05", b"\x02")), (4, "tag", (b"\x00", b"\x01")),
    (6, "control", (b"\x00", b"\x03")), (7, "flv", (b"",)), (8, "handshake", (b"",)),
)  # fmt: skip


def decoder() -> Iterator[bytes]:
    for data in _vectors("chunk"):
        yield b"\x04\x00" + data
        yield b"\x00\x01" + data


def parsers() -> Iterator[bytes]:
    for number, layer, prefixes in _VECTORS:
        for data in _vectors(layer):
            for prefix in prefixes:
                yield bytes((number,)) + prefix + data
    yield b"\x03\x01\x00\x02so" + bytes(12) + b"\x04\x00\x00\x00\x07\x00\x02ab\x02\x00\x01c\x01\x00\x00\x00\x00"
    for data in _vectors("tag"):
        if len(data) < 256:
            yield b"\x05" + b"".join(bytes((kind, len(data))) + data for kind in (0, 1))
    for _, data in openings()[TLS]:
        yield b"\x09" + data[5:]
    for _, data in openings()[RTMPT]:
        yield b"\x0a\x10" + data
    yield b"\x0b" + tls_keys()
    yield b"\x0cshow1 rtmp://bob:pw@h/live/show1?token=abc Playing live/show1."


def streams() -> Iterator[bytes]:
    for extra in (0, 8, 10, 12, 14):
        last = [_packet(side | (extra if place == 5 else 0), data) for place, (side, data) in enumerate(_cut(_rtmp()))]
        yield bytes((RTMP,)) + b"".join(last)
    yield bytes((RTMPT,)) + b"".join(_packet(side, data) for side, data in _tunnelled(_rtmp()))
    frame = b"\x44\x00\x00\x00\x00\x00\x05\x09\x01\x00\x00\x00\x27\x01\x00\x00\x00"
    yield bytes((RTMP | PREPARED,)) + _packet(0, CONNECT) + _packet(8, frame) + _packet(1, CONNECTED)
    yield bytes((RTMPT | PREPARED,)) + b"".join(
        _packet(*said) for said in _tunnelled([(0, CONNECT), (1, CONNECTED)], 9)
    )
    packets = _tls_packets()
    yield bytes((TLS,)) + b"".join(_packet(side, data) for side, data in packets)
    yield bytes((TLS | PREPARED,)) + b"".join(_packet(side, data) for side, data in packets[_TLS_HANDSHAKE_PACKETS:])


def captures() -> Iterator[bytes]:
    for family in (*FAMILIES.values(), *FURTHER_FAMILIES.values()):
        yield family.make(3)
    for name in ("rtmpgo_publish_on_stream_0.pcap", "garbage_on_1935.pcap"):
        yield (_SAMPLES / name).read_bytes()


@lru_cache(maxsize=1)
def openings() -> tuple[Said, Said, Said]:
    """What precedes the packets of a prepared connection, for each kind."""
    rtmp = [(0, HANDSHAKE), (1, HANDSHAKE + HANDSHAKE[1:]), (0, HANDSHAKE[1:] + LARGE_CHUNKS)]
    return rtmp, _tls_packets()[:_TLS_HANDSHAKE_PACKETS], _tunnelled(rtmp)


@lru_cache(maxsize=1)
def tls_keys() -> bytes:
    return _TLS_SAMPLE.with_suffix(".keylog").read_bytes()


def _rtmp() -> Said:
    return [(0, HANDSHAKE), (1, HANDSHAKE + HANDSHAKE[1:]), (0, HANDSHAKE[1:] + LARGE_CHUNKS + CONNECT), (1, CONNECTED)]


@lru_cache(maxsize=1)
def _tls_packets() -> Said:
    packets = [packet for packet in capture_rewriting.read(_TLS_SAMPLE) if packet.payload][:40]
    client = packets[0].sender
    return [(int(packet.sender != client), packet.payload) for packet in packets]


def _vectors(layer: str) -> Iterator[bytes]:
    for path in sorted(BUNDLED.rglob("*.json")):
        vector = load(path)
        if vector.get("layer") == layer:
            pieces = [piece for piece in pieces_of(vector["input"]) if isinstance(piece, bytes)]
            yield b"".join(pieces)[:_LONGEST]


def _packet(flags: int, payload: bytes) -> bytes:
    return struct.pack(">BH", flags, len(payload)) + payload


def _cut(said: Said, size: int = 1400) -> Said:
    return [(side, data[at : at + size]) for side, data in said for at in range(0, len(data), size)]


def _tunnelled(said: Said, first: int = 0) -> Said:
    """RTMP in the bodies of HTTP requests and responses, one packet for each."""
    parts = []
    if not first:
        parts = [(0, _http(b"POST /open/1 HTTP/1.1", b"\x00")), (1, _http(b"HTTP/1.1 200 OK", b"S0000000\n"))]
    for number, (side, data) in enumerate(_cut(said, 1200), first + 1):
        action = b"idle" if side else b"send"
        parts.append((0, _http(b"POST /%s/S0000000/%d HTTP/1.1" % (action, number), b"\x00" if side else data)))
        parts.append((1, _http(b"HTTP/1.1 200 OK", b"\x01" + data if side else b"\x01")))
    return parts


def _http(start: bytes, body: bytes) -> bytes:
    return start + b"\r\nContent-Type: application/x-fcs\r\nContent-Length: %d\r\n\r\n" % len(body) + body
