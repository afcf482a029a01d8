"""Compares the transition table of codec/phase.py with the transitions of decoders."""

from __future__ import annotations

import random

import pytest

from rtmp_spark.codec.decoder import RtmpDecoder
from rtmp_spark.codec.phase import (
    BRIDGE,
    CHUNKS,
    HANDSHAKE,
    MIDSTREAM,
    OPAQUE,
    PART1,
    PART2,
    SEARCH,
    TRANSITIONS,
    Phase,
)

PACKET = bytes(1536)
HANDSHAKE_BYTES = b"\3" + PACKET + PACKET


def messages(count: int) -> bytes:
    """Video messages of 300 bytes in chunks of 128."""
    header = bytes.fromhex("06 000010 00012c 09 01000000")
    body = b"\x17\1\0\0\0" + bytes(295)
    return (header + body[:128] + b"\xc6" + body[128:256] + b"\xc6" + body[256:]) * count


def observed(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Phase, Phase]]:
    """Collects every change of phase of every decoder from now on."""
    changes: set[tuple[Phase, Phase]] = set()
    enter = RtmpDecoder._enter

    def recorded(self: RtmpDecoder, phase: Phase) -> None:
        if phase is not self.phase:
            changes.add((self.phase, phase))
        enter(self, phase)

    monkeypatch.setattr(RtmpDecoder, "_enter", recorded)
    return changes


def test_every_row_of_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = observed(monkeypatch)
    stream = messages(12)
    RtmpDecoder().receive_data(HANDSHAKE_BYTES)
    RtmpDecoder().receive_data(b"GET / HTTP/1.1")
    RtmpDecoder().receive_data(b"\6" + PACKET)
    RtmpDecoder().receive_gap(1 + 1536 + 10)
    for received in (0, 1, 1 + 1536):  # inside C0, C1 and C2
        for lost in (len(HANDSHAKE_BYTES) - received, len(HANDSHAKE_BYTES) - received + 5):
            decoder = RtmpDecoder()
            decoder.receive_data(HANDSHAKE_BYTES[:received])
            decoder.receive_gap(lost)
        decoder = RtmpDecoder()
        decoder.receive_data(HANDSHAKE_BYTES[:received])
        decoder.receive_gap(10, exact=False)
    decoder = RtmpDecoder(phase="chunks")
    decoder.receive_data(b"\xff" * 40)  # not a header
    decoder = RtmpDecoder(phase="chunks")
    decoder.receive_data(stream[:50])
    decoder.receive_gap(20)
    decoder.receive_data(stream[70:])
    decoder = RtmpDecoder(phase="chunks")
    decoder.receive_data(stream[:50])
    decoder.receive_gap(20)
    decoder.receive_data(b"\xff" * 3000)  # not the rest of the message
    decoder = RtmpDecoder(phase=MIDSTREAM)
    decoder.receive_data(stream[5:])
    decoder.receive_eof()
    assert changes == {(before, after) for before, reached in TRANSITIONS.items() for after in reached}


@pytest.mark.parametrize("seed", range(20))
def test_random_losses_follow_the_table(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = observed(monkeypatch)
    rng = random.Random(seed)
    stream = HANDSHAKE_BYTES + messages(40)
    decoder = RtmpDecoder()
    at = 0
    while at < len(stream):
        length = rng.choice((1, 7, 100, 1000))
        if rng.random() < 0.2:
            decoder.receive_gap(length, exact=rng.random() < 0.8)
        else:
            decoder.receive_data(stream[at : at + length])
        at += length
    decoder.receive_eof()
    assert all(after in TRANSITIONS[before] for before, after in changes)


def test_phases_are_strings() -> None:
    assert [HANDSHAKE, PART1, PART2, CHUNKS, SEARCH, BRIDGE, OPAQUE] == [
        "handshake", "part1", "part2", "chunks", "search", "bridge", "opaque",
    ]  # fmt: skip
    with pytest.raises(ValueError):
        RtmpDecoder(phase="nonsense")
