"""The handshake of a connection: its parts from both sides and what they show.

The parts are examined once all six have arrived, and their bytes are dropped then. The state is a value. What a fault
in the handshake means for the connection is decided in forensics/ending_rules.py.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.handshake import CLIENT, RTMPE_VERSIONS, SERVER, HandshakeVerdict, examine
from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.conversation.facts import HandshakeFact

_PARTS: Final = (0, 1, 2)
_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
SavedVerdict = SavedFields  # of a `HandshakeVerdict`


class PartPlace(NamedTuple):
    """The packet and time at which a part of the handshake was complete."""

    part: int
    frame: int
    ts: int


class HandshakesState(TypedDict):
    parts: dict[str, dict[str, str]]
    times: list[int]
    places: Mapping[str, Sequence[SavedFields]]
    verdicts: list[SavedVerdict] | None


class Handshakes:
    """`parts[direction][n]` are the bytes of part n, empty once all parts were examined. `places` are those of the
    parts, empty if all were examined and nothing is wrong with them."""

    __slots__ = ("_verdicts", "parts", "places", "times")

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, bytes]] = {"c2s": {}, "s2c": {}}
        self.times: list[int] = []  # first and last
        self.places: dict[str, list[PartPlace]] = {"c2s": [], "s2c": []}
        self._verdicts: tuple[HandshakeVerdict, HandshakeVerdict] | None = None

    def receive(self, direction: str, fact: HandshakeFact) -> None:
        _, ts, frame, part, data = fact
        parts = self.parts
        parts[direction][part] = data
        self.places[direction].append(_new(PartPlace, (part, frame, ts)))
        if not self.times:
            self.times = [ts, ts]
        elif ts < self.times[0]:
            self.times[0] = ts
        elif ts > self.times[1]:
            self.times[1] = ts
        if len(parts["c2s"]) == len(parts["s2c"]) == len(_PARTS):
            self._verdicts = self.verdicts()
            for own in parts.values():
                own[1] = own[2] = b""  # thousands of connections would keep 6 KB each
            if not (self._verdicts[0].violations or self._verdicts[1].violations):
                for places in self.places.values():
                    places.clear()

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

    @property
    def complete(self) -> bool:
        return all(part in parts for parts in self.parts.values() for part in _PARTS)

    @property
    def encrypted(self) -> bool:
        return any(parts.get(0, b"")[:1] and parts[0][0] in RTMPE_VERSIONS for parts in self.parts.values())

    def state(self) -> HandshakesState:
        return {
            "parts": {
                d: {str(n): base64.b64encode(data).decode() for n, data in parts.items()}
                for d, parts in self.parts.items()
            },
            "times": self.times,
            "places": self.places,
            "verdicts": self._verdicts
            and [(*v[:5], [(code.value, detail) for code, detail in v.violations]) for v in self._verdicts],
        }

    @classmethod
    def resume(cls, state: HandshakesState) -> Handshakes:
        own = cls()
        own.parts = {
            d: {int(n): base64.b64decode(data) for n, data in parts.items()} for d, parts in state["parts"].items()
        }
        own.times = list(state["times"])
        own.places = {d: [PartPlace(*place) for place in places] for d, places in state["places"].items()}
        if state["verdicts"]:
            client, server = (
                HandshakeVerdict(v[0], v[1], v[2], v[3], v[4], tuple((ViolationCode[c], text) for c, text in v[5]))
                for v in state["verdicts"]
            )
            own._verdicts = client, server
        return own
