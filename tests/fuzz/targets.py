"""What is fuzzed: each target takes any bytes and fails if the code under test breaks its contract.

`run_atheris.py` fuzzes with coverage and starts from the saved corpus (`corpus.py`); `test_corpus.py` replays the
corpus and some mutations of it.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fuzz import seeds
from fuzz.parsers import parser
from kit.hostile_captures import Record, Wire, connected, pcap

from rtmp_spark.analysis.recording import ALL_TABLES, Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.unwrap.tls.keylog import KeyLog
from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.events import Event
from rtmp_spark.redact import Redactor

_MOST_BYTES = 1 << 16  # of an input: longer ones only take longer


class Target(NamedTuple):
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    mutations: int  # that a test tries


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


def streams(data: bytes) -> None:
    """A TCP connection. The first byte chooses what it carries (RTMP, TLS, RTMPT), and whether a handshake precedes the
    packets of the input. Each of these is a byte (the side, whether it is sent again or after a gap), the length of its
    payload in two bytes, and the payload."""
    if not data:
        return
    records: list[Record] = []
    wire = Wire(records, port=seeds.PORTS[data[0] % 3])
    if not data[0] & 0x80:
        wire.open()
    elif data[0] % 3 == 0:
        connected(wire)
    else:
        wire.open()
        for side, payload in seeds.openings()[data[0] % 3]:
            wire.say(side, payload)
    at = 1
    while at + 3 <= min(len(data), _MOST_BYTES):
        flags, length = struct.unpack_from(">BH", data, at)
        payload, side = data[at + 3 : at + 3 + min(length, 1400)], flags & 1
        at += 3 + length
        moved = {0: 0, 1: -100, 2: 100, 3: -1}[flags >> 1 & 3] if flags & 8 else 0
        wire.packet(side, max(wire.sent[side] + moved, 0), payload)
        wire.sent[side] = max(wire.sent[side], wire.sent[side] + moved + len(payload))
    wire.close()
    _analyze(pcap(records), seeds.tls_keys())


def captures(data: bytes) -> None:
    """Any bytes as a capture file: damage becomes rows and findings."""
    _analyze(data[: 4 * _MOST_BYTES], b"")


def _analyze(data: bytes, keys: bytes) -> None:
    keylog = KeyLog()
    keylog.add(keys)
    settings = Settings(redactor=Redactor(b"fuzz"), keylog=keylog, keep_payloads=True)
    path = _scratch_file()
    path.write_bytes(data)
    for table, batch in Recording([str(path)], settings, (*ALL_TABLES, "payloads")).batches():
        batch.validate(full=True)
        if table == "connections":
            for row in batch.to_pylist():
                _check_bytes(row)


@lru_cache(maxsize=1)
def _scratch_file() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-")) / "input.pcap"


def _check_bytes(row: dict[str, object]) -> None:
    """Every captured byte of a direction is delivered, or counted with the reason why not."""
    for way in ("c2s", "s2c"):
        kinds = ("captured", "delivered", "duplicate", "conflict", "skipped")
        captured, *parts = (row[f"{kind}_bytes_{way}"] for kind in kinds)
        assert captured == sum(part for part in parts if isinstance(part, int)), row


TARGETS = {
    "decoder": Target(decoder, seeds.decoder, 400),
    "parsers": Target(parser, seeds.parsers, 12_000),
    "streams": Target(streams, seeds.streams, 100),
    "captures": Target(captures, seeds.captures, 150),
}
