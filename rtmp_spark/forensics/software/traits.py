"""Traits of the two ends of a connection: what is characteristic of their software, as short texts.

Traits come from the handshake, commands, control messages and the first message of each type. fingerprint.py compares
them with those of known programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.codec.limits import REDACTED_NAMES, TRAIT_CHARS, TRAIT_FIRST_MESSAGES
from rtmp_spark.codec.message import AUDIO, DATA_AMF0, DATA_AMF3, VIDEO
from rtmp_spark.codec.shared_arguments import noted
from rtmp_spark.conversation.command_arguments import PLAIN_CODE, fields, text
from rtmp_spark.conversation.facts import CommandFact, ControlFact, HandshakeFact, Place

_DESCRIPTION_CHARS: Final = 4 * TRAIT_CHARS  # of a status, before the stream name is removed
_STREAM_CODE: Final = "NetStream."
_PIECES: Final = re.compile(r"\w+|\W")
_REDACTED: Final = re.compile(r"key-[a-z2-7]{16}")  # a secret in tables and saved states
_TEXT: Final = re.compile(rb"[ -~]{16,64}")  # no accident in random bytes
_COMMANDS_WITH_TRAITS: Final = frozenset(
    "onMetaData @setDataFrame connect releaseStream publish play _result onStatus".split()
)
_CSID_TRAITS: Final = {AUDIO: "audio_csid", VIDEO: "video_csid", DATA_AMF0: "data_csid", DATA_AMF3: "data_csid"}

Traits = dict[str, str]
NamedTraits = list[tuple[str, str]]


class _HiddenName(NamedTuple):
    """A stream name, which may be a credential: its keyed hash, and the number of pieces that it consists of."""

    sealed: str
    pieces: int


TraitState = SavedFields  # in the order of `TraitCollector.state`


class TraitCollector:
    """`client` and `server` hold the traits so far; `sealed` is the keyed hash of a secret, and `hide` replaces the
    secrets in a text that are known when it is called."""

    __slots__ = ("_first_messages", "_handshakes", "_hide", "_name", "_redacted_names", "_sealed", "client", "server")

    def __init__(self, sealed: Callable[[str], str], hide: Callable[[str], str] = str) -> None:
        self._sealed = sealed
        self._hide = hide
        self.client: Traits = {}
        self.server: Traits = {}
        self._first_messages: dict[str, list[str]] = {"c2s": [], "s2c": []}
        self._handshakes: dict[str, bytes] = {}  # C1 and S1, until both are known
        self._redacted_names: dict[str, _HiddenName] = {}  # by their redacted form
        self._name: _HiddenName | None = None  # of the stream that was last published or played

    def _of(self, direction: str) -> Traits:
        return self.client if direction == "c2s" else self.server

    def _add(self, direction: str, trait: str, value: object) -> None:
        """Keep a trait; the first value of a trait stays."""
        known = self.client if direction == "c2s" else self.server
        if trait not in known:
            known[trait] = _shortened(value)

    def _add_all(self, direction: str, traits: NamedTraits) -> None:
        known = self._of(direction)
        for trait, value in traits:
            known.setdefault(trait, value)

    # -- facts --------------------------------------------------------------------------------------------------

    def began(self, direction: str, firsts: Iterable[Place]) -> None:
        """The first message of each type."""
        known = self._of(direction)
        for _, _, _, _, _, _, csid, type_id, stream_id in firsts:
            trait = _CSID_TRAITS.get(type_id)
            if trait is not None:
                known.setdefault(trait, str(csid))
                if trait != "data_csid":
                    known.setdefault("media_stream_id", str(stream_id))

    def handshake(self, direction: str, fact: HandshakeFact) -> None:
        """C1 or S1."""
        known = self._of(direction)
        known.setdefault("packet_version", fact.data[4:8].hex())
        known.setdefault("packet_time", "set" if any(fact.data[:4]) else "0")
        known.setdefault("packet_random", fact.data[8:16].hex())
        words = _TEXT.match(fact.data, 8)
        if words:
            self._add(direction, "handshake_text", words[0].decode("ascii"))
        self._handshakes[direction] = fact.data
        if len(self._handshakes) == 2:  # in whichever order they were captured
            same = self._handshakes["c2s"] == self._handshakes["s2c"]
            self._add("s2c", "copies_c1", "yes" if same else "no")
            self._handshakes.clear()

    def control(self, direction: str, fact: ControlFact) -> None:
        first = self._first_messages[direction]
        if len(first) < TRAIT_FIRST_MESSAGES:
            first.append(fact.kind)
        if fact.kind == "set_buffer_length":
            trait = "first_buffer" if not fact.event_stream_id else "buffer"
            self._add(direction, trait, fact.event_value)
        elif fact.kind == "set_chunk_size":
            self._add(direction, "chunk_size", fact.value)

    def command(self, direction: str, fact: CommandFact) -> None:
        name = fact.name
        if name is None:
            return
        first = self._first_messages[direction]
        if len(first) < TRAIT_FIRST_MESSAGES:
            first.append(name)
        if name in _COMMANDS_WITH_TRAITS:
            self._command_with_traits(direction, name, fact)

    def _command_with_traits(self, direction: str, name: str, fact: CommandFact) -> None:
        if name == "onMetaData" or name == "@setDataFrame":
            read = _publisher_metadata if direction == "c2s" else _server_metadata
            self._add_all(direction, read(fact.args))
        elif direction == "c2s":
            self._client_command(name, fact)
        elif name == "_result" and fact.transaction_id == 1:
            self._add_all(direction, _connect_response(fact.args))
        elif name == "onStatus" and len(fact.args) > 1:
            self._add(direction, "status_csid", fact.csid)
            for trait, description in _status(fact.args):
                self._add(direction, trait, _without_name(description, self._name, self._sealed))

    def _client_command(self, name: str, fact: CommandFact) -> None:
        args = fact.args
        if name == "connect":
            self._add_all("c2s", _connect_request(args))
        elif name == "releaseStream":
            self._add("c2s", "release_id", _plain(fact.transaction_id))
        elif name in ("publish", "play"):
            stream = _without_query(text(args[1]) or "") if len(args) > 1 else None
            self._name = (self._redacted_names.get(stream) or _hidden(stream, self._sealed)) if stream else None
            self.client.setdefault(f"{name}_csid", str(fact.csid))
            self.client.setdefault(f"{name}_id", "0" if not fact.transaction_id else "counted")
            if name == "play" and len(args) > 2:
                self._add("c2s", "play_start", _plain(args[2]))

    def add_redacted_name(self, name: str, redacted: str) -> None:
        """Recognise a stream name by its redacted form, which commands in a resumed connection contain."""
        if len(self._redacted_names) < REDACTED_NAMES:
            self._redacted_names.setdefault(_without_query(redacted), _hidden(_without_query(name), self._sealed))

    def found(self, direction: str) -> Traits:
        """All traits of the sender of a direction, including the order of its first messages."""
        names = self._first_messages[direction]
        return {**self._of(direction), "order": " ".join(names)} if names else self._of(direction)

    def known(self, direction: str) -> Traits:
        """What `found` returns, without secrets."""
        return {trait: self._hide(value) for trait, value in self.found(direction).items()}

    def settle(self) -> None:
        """Free memory: no more messages will come."""
        self._handshakes.clear()

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> TraitState:
        handshakes = {direction: packet.hex() for direction, packet in self._handshakes.items()}
        names = list(self._redacted_names.items())
        first = {direction: [*map(self._hide, known)] for direction, known in self._first_messages.items()}
        return self.known("c2s"), self.known("s2c"), first, handshakes, self._name, names

    def resume(self, state: TraitState) -> None:
        client, server, first_messages, handshakes, name, names = state
        self.client, self.server = dict(client), dict(server)
        self._first_messages = {direction: list(known) for direction, known in first_messages.items()}
        self._handshakes = {direction: bytes.fromhex(packet) for direction, packet in handshakes.items()}
        self._name = None if name is None else _HiddenName(*name)
        self._redacted_names = {redacted: _HiddenName(*hidden) for redacted, hidden in names}


# -- traits of commands -----------------------------------------------------------------------------------------------


@noted
def _connect_request(args: list[Json]) -> NamedTraits:
    given = fields(args[0]) if args else {}
    traits = [("connect_fields", _shortened(",".join(given)))]
    for field in ("flashVer", "audioCodecs", "videoCodecs", "capabilities"):
        if field in given:
            traits.append((field, _shortened(_plain(given[field]))))
    for more in map(fields, args[1:]):
        traits += [(field, _shortened(more[field])) for field in ("srs_server", "srs_version") if field in more]
    return traits


@noted
def _connect_response(args: list[Json]) -> NamedTraits:
    traits: NamedTraits = []
    for value in args:
        given = fields(value)
        if "fmsVer" in given:
            traits.append(("fmsVer", _shortened(given["fmsVer"])))
            traits.append(("result_fields", _shortened(",".join(given))))
            traits.append(("capabilities", _shortened(_plain(given.get("capabilities")))))
        if "description" in given:
            traits.append(("connect_words", _shortened(given["description"])))
        data = fields(given.get("data"))
        for field in ("srs_server", "srs_version", "version"):
            if field in data:
                traits.append((field, _shortened(data[field])))
    return traits


@noted
def _status(args: list[Json]) -> NamedTraits:
    """The code of an onStatus and its description, in which a stream name may be."""
    given = fields(args[1])
    code = text(given.get("code")) or ""
    if not code.startswith(_STREAM_CODE) or not PLAIN_CODE.fullmatch(code):
        return []
    return [(code.removeprefix(_STREAM_CODE), (text(given.get("description")) or "")[:_DESCRIPTION_CHARS])]


@noted
def _publisher_metadata(args: list[Json]) -> NamedTraits:
    return _named_in(args, "encoder", ("encoder", "metadatacreator"))


@noted
def _server_metadata(args: list[Json]) -> NamedTraits:
    """Only fields that servers add: the others are forwarded from the publisher."""
    return _named_in(args, "metadata_server", ("Server", "server", "srs_server", "server_version"))


def _named_in(args: list[Json], trait: str, names: Sequence[str]) -> NamedTraits:
    """The values of these fields in any object among the arguments, as values of one trait."""
    found = [given[name] for given in map(fields, args) for name in names if text(given.get(name))]
    return [(trait, _shortened(value)) for value in found]


@lru_cache(256)  # many connections publish or play the same few streams
def _hidden(name: str, sealed: Callable[[str], str]) -> _HiddenName:
    return _HiddenName(sealed(name), len(_PIECES.findall(name)))


@lru_cache(256)  # a server sends the same texts to all clients
def _without_name(description: str, name: _HiddenName | None, sealed: Callable[[str], str]) -> str:
    """The description of a status, with `*` for the stream name and for words that look like a path or query."""
    pieces = _PIECES.findall(_REDACTED.sub("*", description))
    if name is not None:
        for start in range(len(pieces) - name.pieces, -1, -1):
            if sealed("".join(pieces[start : start + name.pieces])) == name.sealed:
                pieces[start : start + name.pieces] = "*"
    return " ".join("*" if "/" in word or "?" in word else word for word in "".join(pieces).split())


def _without_query(name: str) -> str:
    """A stream name without its query, as servers write it in descriptions."""
    return name.partition("?")[0]


def _shortened(value: object) -> str:
    return str(value)[:TRAIT_CHARS]


def _plain(value: object) -> str:
    """A number without superfluous decimals, or any other value as text."""
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
