"""What the ends of a laboratory say they sent: every message at the moment it is written, and the packets of the tap.

This is the other side's account of a capture: it comes from the senders and from the records of the file, and knows
nothing of our reading of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chunkreader import read_chunks

from rtmp_relay.endpoint import Endpoint
from rtmp_spark.codec.message import Message

CLIENT, SERVER = "client", "server"


class Said(NamedTuple):
    """A message, the bytes that went out for it, and where they stand in what its sender sent."""

    message: Message
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Account:
    """Of one end of one connection."""

    def __init__(self) -> None:
        self.sent = 0
        self.last = b""  # that was written
        self.said: list[Said] = []
        self.parts: dict[int, tuple[int, int]] = {}  # of the handshake: from, to

    def number(self, index: int) -> int:
        """How many messages went out before this one."""
        return sum(bool(said.data) for said in self.said[:index])


class Accounts:
    """Of all ends, by the number of their connection (from 1) and side; kept while the laboratory runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._of: dict[int, Account] = {}
        self._sides: dict[str, list[Account]] = {CLIENT: [], SERVER: []}
        begin, send, packet = Endpoint.__init__, Endpoint.send, Endpoint._send_packet
        accounts = self

        def kept_begin(self: Endpoint, side: str, write: Callable[[bytes], None], *args: Any, **options: Any) -> None:
            account = accounts._of[id(self)] = Account()
            accounts._sides[side].append(account)

            def counted(data: bytes) -> None:
                account.sent += len(data)
                account.last = data
                write(data)

            begin(self, side, counted, *args, **options)

        def kept_send(self: Endpoint, message: Message) -> None:
            account = accounts._of[id(self)]
            start = account.sent
            send(self, message)
            data = account.last if account.sent > start else b""
            account.said.append(Said(message, start, data))

        def kept_packet(self: Endpoint, part: int, data: bytes) -> None:
            account = accounts._of[id(self)]
            start = account.sent
            packet(self, part, data)
            account.parts[part] = (start, account.sent)

        monkeypatch.setattr(Endpoint, "__init__", kept_begin)
        monkeypatch.setattr(Endpoint, "send", kept_send)
        monkeypatch.setattr(Endpoint, "_send_packet", kept_packet)

    def of(self, side: str, connection: int = 1) -> Account:
        return self._sides[side][connection - 1]


def first_difference(spoilt: Account, clean: Account) -> int:
    """The first thing that was said otherwise than by a sender without fault."""
    for index, (one, other) in enumerate(zip(spoilt.said, clean.said)):
        if (one.message, one.data) != (other.message, other.data):
            return index
    raise AssertionError("both said the same")


class Packets:
    """The packets of a tap by the connection and side that sent them, straight from the records of the file."""

    def __init__(self, path: Path) -> None:
        self._places: dict[tuple[int, str], list[tuple[int, int, int]]] = {}  # from, to, number
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
        """The packets that hold these bytes."""
        return [n for first, last, n in self._places[connection, side] if first < end and start < last]

    def read(self, connection: int, side: str) -> list[Any]:
        """The messages of an undamaged direction, read without the decoder."""
        return read_chunks(bytes(self._data[connection, side]))
