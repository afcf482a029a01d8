"""Records what the endpoints of a simulation send, message by message, and reads the packets of its tap.

This is the senders' view of a capture: it does not use our decoder, so tests can compare findings with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kit.chunk_reader import read_chunks

from rtmp_relay.endpoint import Endpoint
from rtmp_spark.codec.message import Message

CLIENT, SERVER = "client", "server"


class SentMessage(NamedTuple):
    """A message, the bytes sent for it, and their offset in the byte stream of the sender."""

    message: Message
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Sender:
    """What one side of one connection sent."""

    def __init__(self) -> None:
        self.sent = 0
        self.last_write = b""
        self.messages: list[SentMessage] = []
        self.parts: dict[int, tuple[int, int]] = {}  # of the handshake: start, end

    def number(self, index: int) -> int:
        """Return how many messages were sent before the one at this index."""
        return sum(bool(sent.data) for sent in self.messages[:index])


class Senders:
    """Records what every side of every connection sends, by patching `Endpoint` while a simulation runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._of: dict[int, Sender] = {}
        self._sides: dict[str, list[Sender]] = {CLIENT: [], SERVER: []}
        begin, send, packet = Endpoint.__init__, Endpoint.send, Endpoint._send_handshake_part
        senders = self

        def recording_init(
            self: Endpoint, side: str, write: Callable[[bytes], None], *args: Any, **options: Any
        ) -> None:
            sender = senders._of[id(self)] = Sender()
            senders._sides[side].append(sender)

            def counting_write(data: bytes) -> None:
                sender.sent += len(data)
                sender.last_write = data
                write(data)

            begin(self, side, counting_write, *args, **options)

        def recording_send(self: Endpoint, message: Message) -> None:
            sender = senders._of[id(self)]
            start = sender.sent
            send(self, message)
            data = sender.last_write if sender.sent > start else b""
            sender.messages.append(SentMessage(message, start, data))

        def recording_packet(self: Endpoint, part: int, data: bytes) -> None:
            sender = senders._of[id(self)]
            start = sender.sent
            packet(self, part, data)
            sender.parts[part] = (start, sender.sent)

        monkeypatch.setattr(Endpoint, "__init__", recording_init)
        monkeypatch.setattr(Endpoint, "send", recording_send)
        monkeypatch.setattr(Endpoint, "_send_handshake_part", recording_packet)

    def of(self, side: str, connection: int = 1) -> Sender:
        return self._sides[side][connection - 1]


def first_difference(faulty: Sender, clean: Sender) -> int:
    """Return the index of the first message that differs from what a sender without fault sends."""
    for index, (one, other) in enumerate(zip(faulty.messages, clean.messages)):
        if (one.message, one.data) != (other.message, other.data):
            return index
    raise AssertionError("both sent the same")


class Packets:
    """The packets of a tap by connection and side, read from the pcap records without our reader."""

    def __init__(self, path: Path) -> None:
        self._places: dict[tuple[int, str], list[tuple[int, int, int]]] = {}  # start, end, packet number
        self._data: dict[tuple[int, str], bytearray] = {}
        self.times: dict[int, int] = {}
        data, at, number = path.read_bytes(), 24, 0
        while at < len(data):
            seconds, nanoseconds, size = struct.unpack_from("<III", data, at)
            ip = at + 16 + 14
            number += 1
            self.times[number] = seconds * 1_000_000 + nanoseconds // 1000
            tcp = ip + (data[ip] & 15) * 4
            source, target = struct.unpack_from(">HH", data, tcp)
            payload = data[tcp + (data[tcp + 12] >> 4) * 4 : at + 16 + size]
            key = (target - 40000, SERVER) if source == 1935 else (source - 40000, CLIENT)
            sent = self._data.setdefault(key, bytearray())
            if payload:
                self._places.setdefault(key, []).append((len(sent), len(sent) + len(payload), number))
            sent += payload
            at += 16 + size

    def holding(self, connection: int, side: str, start: int, end: int) -> list[int]:
        """Return the numbers of the packets that contain these bytes."""
        return [n for first, last, n in self._places[connection, side] if first < end and start < last]

    def read(self, connection: int, side: str) -> list[Any]:
        """Return the messages of an undamaged direction, read without the decoder."""
        return read_chunks(bytes(self._data[connection, side]))
