"""What the two ends of a connection do, as words: the evidence by which software is recognised.

A fold over the handshake, the commands, the control messages and the places of the first messages. It names nothing;
fingerprint.py compares these habits with the ones on file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rtmp_spark.capture.arguments import fields, text
from rtmp_spark.capture.facts import CommandFact, ControlFact, HandshakeFact, Place, noted
from rtmp_spark.codec.message import AUDIO, DATA_AMF0, DATA_AMF3, VIDEO

_FIRST_WORDS = 8
_VALUE_CHARS = 120
_MOST_FORESEEN = 64
_PIECES = re.compile(r"\w+|\W")
_REDACTED = re.compile(r"key-[a-z2-7]{16}")  # a secret as tables and saved states call it
_TELLING = frozenset("onMetaData @setDataFrame connect releaseStream publish play _result onStatus".split())
_KINDS = {AUDIO: "audio_csid", VIDEO: "video_csid", DATA_AMF0: "data_csid", DATA_AMF3: "data_csid"}

Habits = dict[str, str]
Taught = list[tuple[str, str]]  # habits and their values


class HabitFold:
    """`client` and `server` hold what was learned, each value a short text; `sealed` is the keyed hash of a secret."""

    __slots__ = ("_foreseen", "_name", "_packets", "_sealed", "_words", "client", "server")

    def __init__(self, sealed: Callable[[str], str]) -> None:
        self._sealed = sealed
        self.client: Habits = {}
        self.server: Habits = {}
        self._words: dict[str, list[str]] = {"c2s": [], "s2c": []}
        self._packets: dict[str, bytes] = {}  # C1 and S1, while they are needed
        self._foreseen: dict[str, tuple[str, int]] = {}  # names by what a saved state calls them
        self._name: tuple[str, int] | None = None  # of the stream, a credential: its hash, and of how many pieces it is

    def _of(self, direction: str) -> Habits:
        return self.client if direction == "c2s" else self.server

    def _learn(self, direction: str, habit: str, value: object) -> None:
        known = self.client if direction == "c2s" else self.server
        if habit not in known:
            known[habit] = str(value)[:_VALUE_CHARS]

    def _learn_all(self, direction: str, taught: Taught) -> None:
        known = self._of(direction)
        for habit, value in taught:
            known.setdefault(habit, value)

    # -- what is seen -------------------------------------------------------------------------------------------

    def began(self, direction: str, firsts: Sequence[Place]) -> None:
        """The first message of each type."""
        for place in firsts:
            habit = _KINDS.get(place[7])
            if habit is not None:
                self._learn(direction, habit, place[6])
                if habit != "data_csid":
                    self._learn(direction, "media_stream_id", place[8])

    def handshake(self, direction: str, fact: HandshakeFact) -> None:
        if fact.part == 1:
            self._learn(direction, "packet_version", fact.data[4:8].hex())
            self._learn(direction, "packet_time", "set" if any(fact.data[:4]) else "0")
            self._learn(direction, "packet_random", fact.data[8:16].hex())
            self._packets[direction] = fact.data
            if len(self._packets) == 2:  # recorded in whatever order
                self._learn("s2c", "copies_c1", "yes" if self._packets["c2s"] == self._packets["s2c"] else "no")
                self._packets.clear()

    def control(self, direction: str, fact: ControlFact) -> None:
        self._word(direction, fact.kind)
        if fact.kind == "set_buffer_length":
            habit = "first_buffer" if not fact.event_stream_id else "buffer"
            self._learn(direction, habit, fact.event_value)
        elif fact.kind == "set_chunk_size":
            self._learn(direction, "chunk_size", fact.value)

    def command(self, direction: str, fact: CommandFact) -> None:
        name = fact.name
        if name is None:
            return
        self._word(direction, name)
        if name not in _TELLING:
            return
        if name == "onMetaData" or name == "@setDataFrame":
            self._learn_all(direction, (_published if direction == "c2s" else _passed_on)(fact.args))
        elif direction == "c2s":
            self._asked(name, fact)
        elif name == "_result" and fact.transaction_id == 1:
            self._learn_all(direction, _connected(fact.args))
        elif name == "onStatus" and len(fact.args) > 1:
            given = fields(fact.args[1])
            self._learn(direction, "status_csid", fact.csid)
            code = text(given.get("code")) or ""
            if code.startswith("NetStream."):
                words = (text(given.get("description")) or "")[: 4 * _VALUE_CHARS]
                self._learn(direction, code.removeprefix("NetStream."), _nameless(words, self._name, self._sealed))

    def _asked(self, name: str, fact: CommandFact) -> None:
        args = fact.args
        if name == "connect":
            self._learn_all("c2s", _connects(args))
        elif name == "releaseStream":
            self._learn("c2s", "release_id", _plain(fact.transaction_id))
        elif name in ("publish", "play"):
            named = _base(text(args[1]) or "") if len(args) > 1 else None
            self._name = (self._foreseen.get(named) or self._known_by(named)) if named else None
            self._learn("c2s", f"{name}_csid", fact.csid)
            self._learn("c2s", f"{name}_id", "0" if not fact.transaction_id else "counted")
            if name == "play" and len(args) > 2:
                self._learn("c2s", "play_start", _plain(args[2]))

    def _known_by(self, name: str) -> tuple[str, int]:
        return self._sealed(name), len(_PIECES.findall(name))

    def foresee(self, name: str, redacted: str) -> None:
        if len(self._foreseen) < _MOST_FORESEEN:
            self._foreseen.setdefault(_base(redacted), self._known_by(_base(name)))

    def _word(self, direction: str, word: str) -> None:
        words = self._words[direction]
        if len(words) < _FIRST_WORDS:
            words.append(word)

    def known(self, direction: str) -> Habits:
        """What was learned, the order of the first words included."""
        words = self._words[direction]
        return self._of(direction) | {"order": " ".join(words)} if words else self._of(direction)

    def settle(self) -> None:
        self._packets.clear()

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> list[Any]:
        packets = {direction: packet.hex() for direction, packet in self._packets.items()}
        known = self.known("c2s"), self.known("s2c")
        return [*known, self._words, packets, self._name, list(self._foreseen.items())]

    def resume(self, state: list[Any]) -> None:
        client, server, words, packets, name, foreseen = state
        self.client, self.server = dict(client), dict(server)
        self._words = {d: list(known) for d, known in words.items()}
        self._packets = {direction: bytes.fromhex(packet) for direction, packet in packets.items()}
        self._name = None if name is None else (name[0], name[1])
        self._foreseen = {redacted: (known[0], known[1]) for redacted, known in foreseen}


# -- what commands teach, whoever sends them --------------------------------------------------------------------------


@noted
def _connects(args: list[Any]) -> Taught:
    given = fields(args[0]) if args else {}
    taught = [("connect_fields", _short(",".join(given)))]
    for field in ("flashVer", "audioCodecs", "videoCodecs", "capabilities"):
        if field in given:
            taught.append((field, _short(_plain(given[field]))))
    return taught


@noted
def _connected(args: list[Any]) -> Taught:
    taught: Taught = []
    for value in args:
        given = fields(value)
        if "fmsVer" in given:
            taught.append(("fmsVer", _short(given["fmsVer"])))
            taught.append(("result_fields", _short(",".join(given))))
            taught.append(("capabilities", _short(_plain(given.get("capabilities")))))
        if "description" in given:
            taught.append(("connect_words", _short(given["description"])))
        data = fields(given.get("data"))
        taught += [(field, _short(data[field])) for field in ("srs_server", "srs_version", "version") if field in data]
    return taught


@noted
def _published(args: list[Any]) -> Taught:
    """From the metadata of a publisher."""
    return _named(args, "encoder", ("encoder", "metadatacreator"))


@noted
def _passed_on(args: list[Any]) -> Taught:
    """A server passes on what the publisher said; only its own additions tell about it."""
    return _named(args, "metadata_server", ("Server", "server", "srs_server", "server_version"))


def _named(args: list[Any], habit: str, names: Sequence[str]) -> Taught:
    found = [given[name] for given in map(fields, args) for name in names if text(given.get(name))]
    return [(habit, _short(value)) for value in found]


@lru_cache(256)  # a server says the same to all
def _nameless(words: str, named: tuple[str, int] | None, sealed: Callable[[str], str]) -> str:
    """A server's words without the stream they are about."""
    pieces = _PIECES.findall(_REDACTED.sub("*", words))
    if named is not None:
        name, length = named
        for start in range(len(pieces) - length, -1, -1):
            if sealed("".join(pieces[start : start + length])) == name:
                pieces[start : start + length] = "*"
    return " ".join("*" if "/" in word or "?" in word else word for word in "".join(pieces).split())


def _base(name: str) -> str:
    """A stream name without its query, which is how others speak of it."""
    return name.partition("?")[0]


def _short(value: object) -> str:
    return str(value)[:_VALUE_CHARS]


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
