"""The handshake of a connection: its parts from both sides, what they show, and its row.

A part is judged once all six are there, and its bytes are let go of then. Its state is a value. What a fault in it
means for the connection is told by closing.py.
"""

from __future__ import annotations

import base64
from typing import Any

from rtmp_spark.capture.facts import HandshakeFact, Row
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.handshake import CLIENT, RTMPE_VERSIONS, SERVER, HandshakeVerdict, examine

_PARTS = (0, 1, 2)


class Handshakes:
    __slots__ = ("_verdicts", "parts", "places", "times")

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, bytes]] = {"c2s": {}, "s2c": {}}
        self.times: list[int] = []  # first and last
        self.places: dict[str, list[list[int]]] = {"c2s": [], "s2c": []}  # part, packet, time
        self._verdicts: tuple[HandshakeVerdict, HandshakeVerdict] | None = None

    def receive(self, direction: str, fact: HandshakeFact) -> None:
        _, ts, frame, part, data = fact
        self.parts[direction][part] = data
        self.places[direction].append([part, frame, ts])
        if not self.times:
            self.times = [ts, ts]
        elif ts < self.times[0]:
            self.times[0] = ts
        elif ts > self.times[1]:
            self.times[1] = ts
        if len(self.parts["c2s"]) == len(self.parts["s2c"]) == len(_PARTS):
            self._verdicts = self.verdicts()
            for parts in self.parts.values():
                parts[1] = parts[2] = b""  # judged; thousands of connections would keep 6 KB each

    def verdicts(self) -> tuple[HandshakeVerdict, HandshakeVerdict]:
        """Of client and server."""
        if self._verdicts is not None:
            return self._verdicts
        ours, theirs = self.parts["c2s"], self.parts["s2c"]
        client, server = (
            examine(side, own[0][0] if own.get(0) else None, own.get(1), own.get(2), peer.get(1))
            for side, own, peer in ((CLIENT, ours, theirs), (SERVER, theirs, ours))
        )
        return client, server

    def rows(self, uid: str) -> list[Row]:
        if not self.times:
            return []
        client, server = self.verdicts()
        whole = all(part in parts for parts in self.parts.values() for part in _PARTS)
        start, end = self.times
        row = (
            uid, client.version, server.version, client.time, server.time, client.packet_version,
            server.packet_version, client.scheme, server.scheme, client.kind, server.kind, whole, start,
            (end - start) / 1000,
        )  # fmt: skip
        return [row]

    @property
    def encrypted(self) -> bool:
        return any(parts.get(0, b"")[:1] and parts[0][0] in RTMPE_VERSIONS for parts in self.parts.values())

    def state(self) -> dict[str, Any]:
        return {
            "parts": {
                d: {str(n): base64.b64encode(data).decode() for n, data in parts.items()}
                for d, parts in self.parts.items()
            },
            "handshake_ts": self.times,
            "handshake_places": self.places,
            "verdicts": self._verdicts
            and [[*v[:5], [[code.value, detail] for code, detail in v.violations]] for v in self._verdicts],
        }

    @classmethod
    def resume(cls, state: dict[str, Any]) -> Handshakes:
        handshake = cls()
        handshake.parts = {
            d: {int(n): base64.b64decode(data) for n, data in parts.items()} for d, parts in state["parts"].items()
        }
        handshake.times = list(state["handshake_ts"])
        handshake.places = dict(state["handshake_places"])
        if state["verdicts"]:
            client, server = (
                HandshakeVerdict(v[0], v[1], v[2], v[3], v[4], tuple((ViolationCode[c], text) for c, text in v[5]))
                for v in state["verdicts"]
            )
            handshake._verdicts = client, server
        return handshake
