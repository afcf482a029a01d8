"""What is fuzzed: each target takes any bytes and fails if the code under test breaks its contract.

The saved corpus of a target consists of the golden vectors of its layer, small captures made by tests/kit, and the
files in corpus/TARGET/, where inputs that once failed are kept. `run_atheris.py` fuzzes with coverage;
`test_corpus.py` replays the corpus and some mutations of it.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kit import capture_rewriting
from kit.hostile_captures import CONNECT, CONNECTED, FAMILIES, HANDSHAKE, LARGE_CHUNKS, Record, Wire, pcap

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec import amf, amf0, amf3, flv
from rtmp_spark.codec.command import parse_command
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.errors import DecodeError
from rtmp_spark.codec.events import Event
from rtmp_spark.codec.media.tag import parse_tag
from rtmp_spark.codec.message import parse_aggregate, parse_control
from rtmp_spark.redact import Redactor
from rtmp_spark.vectors import BUNDLED
from rtmp_spark.vectors.layers import pieces_of
from rtmp_spark.vectors.run import load

HERE = Path(__file__).parent
SAMPLES = HERE.parent.parent / "sample_pcaps"
_PORTS = (1935, 443, 80)
_MOST_BYTES = 1 << 16  # of an input: longer ones only take longer


class Target(NamedTuple):
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    mutations: int  # that a test tries


# -- codec ------------------------------------------------------------------------------------------------------------


def decoder(data: bytes) -> None:
    """Decode data in one go, then in pieces with a saved and resumed decoder between them: the events are equal.
    The first two bytes choose the length of the pieces and where bytes are missing."""
    if len(data) < 3:
        return
    gap, stream = data[1] * 64, data[2 : 2 + _MOST_BYTES // 4]
    size = max(1 + data[0], len(stream) // 32)  # resuming takes longer than decoding
    parts = [stream] if not gap or gap >= len(stream) else [stream[:gap], stream[gap:]]

    def events(size: int | None, phase: str) -> list[Event]:
        found, state = [], RtmpDecoder(phase=phase)
        for number, part in enumerate(parts):
            if number:
                found += state.receive_gap(100)
            step = size or len(part) or 1
            for at in range(0, len(part), step):
                found += state.receive_data(part[at : at + step])
                if size is not None:
                    state = RtmpDecoder.resume(state.state())
        return found + state.receive_eof()

    for phase in ("handshake", "chunks"):
        assert repr(events(None, phase)) == repr(events(size, phase))


def amf0_values(data: bytes) -> None:
    """Reading never raises, parsing raises only DecodeError, and the tagged JSON names the same values again."""
    _check_values(amf0.read_values(data).values)
    with contextlib.suppress(DecodeError):
        amf0.parse_values(data)


def amf3_values(data: bytes) -> None:
    _check_values(amf3.read_values(data).values)
    with contextlib.suppress(DecodeError):
        amf3.parse_values(data)


def _check_values(values: list[amf.Value]) -> None:
    tagged = amf.to_json_values(values)
    again = [amf.from_json(one) for one in tagged]
    assert len(again) == len(values)


def command(data: bytes) -> None:
    """The first byte chooses the type of the message."""
    if data:
        amf.to_json_values(parse_command(15 + data[0] % 6, data[1:]).args)


def tag(data: bytes) -> None:
    if data:
        with contextlib.suppress(DecodeError):
            parse_tag(8 + data[0] % 2, data[1:])


def control(data: bytes) -> None:
    if data:
        with contextlib.suppress(DecodeError):
            parse_control(1 + data[0] % 6, data[1:])
        with contextlib.suppress(DecodeError):
            parse_aggregate(data[1:], 0)


def flv_file(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        flv.parse_file(data)


# -- captures ---------------------------------------------------------------------------------------------------------


def capture(data: bytes) -> None:
    """Any bytes as a capture file: damage becomes rows and findings."""
    _analyze(data[: 4 * _MOST_BYTES], KeyLog())


def streams(data: bytes) -> None:
    """A TCP connection: the first byte chooses the port (RTMP, TLS, RTMPT). Each packet is a byte (the side, whether it
    is sent again or after a gap), the length of its payload in two bytes, and the payload."""
    if not data:
        return
    records: list[Record] = []
    wire = Wire(records, port=_PORTS[data[0] % 3]).open()
    at = 1
    while at + 3 <= min(len(data), _MOST_BYTES):
        flags, length = struct.unpack_from(">BH", data, at)
        payload, side = data[at + 3 : at + 3 + min(length, 1400)], flags & 1
        at += 3 + length
        moved = {0: 0, 1: -100, 2: 100, 3: -1}[flags >> 1 & 3] if flags & 8 else 0
        wire.packet(side, max(wire.sent[side] + moved, 0), payload)
        wire.sent[side] = max(wire.sent[side], wire.sent[side] + moved + len(payload))
    wire.close()
    _analyze(pcap(records), _keylog())


def _analyze(data: bytes, keylog: KeyLog) -> None:
    settings = Settings(redactor=Redactor(b"fuzz"), keylog=keylog, keep_payloads=True)
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(data)
        file.flush()
        for _, batch in Recording([file.name], settings, (*ALL_TABLES, "payloads")).batches():
            batch.validate(full=True)


def _keylog() -> KeyLog:
    log = KeyLog()
    log.add((SAMPLES / "rtmps_tls13_ffmpeg_publish.keylog").read_bytes())
    return log


# -- seeds ------------------------------------------------------------------------------------------------------------


def _saved(target: str) -> Iterator[bytes]:
    for path in sorted((HERE / "corpus" / target).glob("*")):
        yield path.read_bytes()


def _vectors(layer: str) -> Iterator[bytes]:
    for path in sorted(BUNDLED.rglob("*.json")):
        vector = load(path)
        if vector.get("layer") == layer:
            pieces = [piece for piece in pieces_of(vector["input"]) if isinstance(piece, bytes)]
            yield b"".join(pieces)[:_MOST_BYTES]


def _of_layer(layer: str, prefixes: tuple[bytes, ...] = (b"",)) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for data in _vectors(layer):
            for prefix in prefixes:
                yield prefix + data

    return seeds


def _captures() -> Iterator[bytes]:
    for family in FAMILIES.values():
        yield family.make(3)
    for name in ("rtmpgo_publish_on_stream_0.pcap", "garbage_on_1935.pcap"):
        yield (SAMPLES / name).read_bytes()


def _packet(flags: int, payload: bytes) -> bytes:
    return struct.pack(">BH", flags, len(payload)) + payload


def _streams() -> Iterator[bytes]:
    rtmp = [(0, HANDSHAKE), (1, HANDSHAKE + HANDSHAKE[1:]), (0, HANDSHAKE[1:] + LARGE_CHUNKS + CONNECT), (1, CONNECTED)]
    pieces = [(side, data[at : at + 1400]) for side, data in rtmp for at in range(0, len(data), 1400)]
    for extra in (0, 8, 10, 12, 14):
        last = [_packet(side | (extra if place == 5 else 0), data) for place, (side, data) in enumerate(pieces)]
        yield b"\x00" + b"".join(last)
    yield b"\x02" + _tunnelled(rtmp)
    packets = capture_rewriting.read(SAMPLES / "rtmps_tls13_ffmpeg_publish.pcap")
    client = packets[0].sender
    yield b"\x01" + b"".join(_packet(packet.sender != client, packet.payload) for packet in packets[:40])


def _tunnelled(said: list[tuple[int, bytes]]) -> bytes:
    """RTMP in the bodies of HTTP requests and responses, one packet for each."""
    parts = [_http(0, b"POST /open/1 HTTP/1.1", b"\x00"), _http(1, b"HTTP/1.1 200 OK", b"S0000000\n")]
    pieces = [(side, data[at : at + 1200]) for side, data in said for at in range(0, len(data), 1200)]
    for number, (side, data) in enumerate(pieces, 1):
        action = b"idle" if side else b"send"
        parts.append(_http(0, b"POST /%s/S0000000/%d HTTP/1.1" % (action, number), b"\x00" if side else data))
        parts.append(_http(1, b"HTTP/1.1 200 OK", b"\x01" + data if side else b"\x01"))
    return b"".join(parts)


def _http(side: int, start: bytes, body: bytes) -> bytes:
    head = b"\r\nContent-Type: application/x-fcs\r\nContent-Length: %d\r\n\r\n" % len(body)
    return _packet(side, start + head + body)


def _with_saved(name: str, seeds: Callable[[], Iterator[bytes]]) -> Callable[[], Iterator[bytes]]:
    def all_of_them() -> Iterator[bytes]:
        yield from seeds()
        yield from _saved(name)

    return all_of_them


_TARGETS = {
    "decoder": Target(decoder, _of_layer("chunk", (b"\x04\x00", b"\x00\x01")), 400),
    "amf0": Target(amf0_values, _of_layer("amf0"), 3000),
    "amf3": Target(amf3_values, _of_layer("amf3"), 3000),
    "command": Target(command, _of_layer("command", (b"\x05", b"\x02")), 3000),
    "tag": Target(tag, _of_layer("tag", (b"\x00", b"\x01")), 3000),
    "control": Target(control, _of_layer("control", (b"\x00", b"\x03")), 3000),
    "flv": Target(flv_file, _of_layer("flv"), 2000),
    "capture": Target(capture, _captures, 150),
    "streams": Target(streams, _streams, 100),
}
TARGETS = {name: target._replace(seeds=_with_saved(name, target.seeds)) for name, target in _TARGETS.items()}
