"""What the two ends of a connection do, as words: the evidence by which software is recognised.

A fold over the handshake, the commands, the control messages and the places of the first messages. It names nothing;
fingerprint.py compares these habits with the ones on file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtmp_spark.capture.facts import CommandFact, ControlFact, HandshakeFact, Passed
from rtmp_spark.codec.message import AUDIO, DATA_AMF0, DATA_AMF3, VIDEO
from rtmp_spark.forensics.tagged import fields, text

_FIRST_MESSAGES = 400
_FIRST_WORDS = 8
_VALUE_CHARS = 120
_KINDS = {AUDIO: "audio_csid", VIDEO: "video_csid", DATA_AMF0: "data_csid", DATA_AMF3: "data_csid"}

Habits = dict[str, str]


class HabitFold:
    """`client` and `server` hold what was learned, each value a short text."""

    def __init__(self) -> None:
        self.client: Habits = {}
        self.server: Habits = {}
        self._words: dict[str, list[str]] = {"c2s": [], "s2c": []}
        self._csid: dict[str, dict[int, int]] = {"c2s": {}, "s2c": {}}
        self._packets: dict[str, str] = {}  # C1 and S1 as hex, while they are needed
        self._name: str | None = None  # of the stream: a credential, never part of a habit nor of the state

    def _of(self, direction: str) -> Habits:
        return self.client if direction == "c2s" else self.server

    def _learn(self, direction: str, habit: str, value: object) -> None:
        known = self.client if direction == "c2s" else self.server
        if habit not in known:
            known[habit] = str(value)[:_VALUE_CHARS]

    # -- what is seen -------------------------------------------------------------------------------------------

    def passed(self, direction: str, messages: Sequence[Passed]) -> None:
        known = self._csid[direction]
        if len(known) >= _FIRST_MESSAGES:
            return
        learned = self._of(direction)
        for _, _, _, _, msg_no, _, csid, type_id, stream_id in messages[: _FIRST_MESSAGES - len(known)]:
            known[msg_no] = csid
            habit = _KINDS.get(type_id)
            if habit is not None and habit not in learned:
                self._learn(direction, habit, csid)
                if habit != "data_csid":
                    self._learn(direction, "media_stream_id", stream_id)

    def handshake(self, direction: str, fact: HandshakeFact) -> None:
        if fact.part == 1:
            self._learn(direction, "packet_version", fact.data[4:8].hex())
            self._learn(direction, "packet_time", "set" if any(fact.data[:4]) else "0")
            self._learn(direction, "packet_random", fact.data[8:16].hex())
            packet = self._packets[direction] = fact.data.hex()
            if direction == "s2c" and "c2s" in self._packets:
                self._learn(direction, "copies_c1", "yes" if self._packets["c2s"] == packet else "no")
        elif fact.part == 2 and direction == "c2s":
            self._packets.clear()

    def control(self, direction: str, fact: ControlFact) -> None:
        self._word(direction, fact.kind)
        if fact.kind == "set_buffer_length":
            habit = "first_buffer" if not fact.event_stream_id else "buffer"
            self._learn(direction, habit, fact.event_value)
        elif fact.kind == "set_chunk_size":
            self._learn(direction, "chunk_size", fact.value)

    def command(self, direction: str, fact: CommandFact) -> None:
        name, args = fact.name, fact.args
        if name is None:
            return
        self._word(direction, name)
        csid = self._csid[direction].get(fact.msg_no)
        if name in ("onMetaData", "@setDataFrame"):
            self._metadata(direction, args)
        elif direction == "c2s":
            self._asked(name, fact, csid)
        elif name == "_result" and fact.transaction_id == 1:
            self._connected(args)
        elif name == "onStatus" and len(args) > 1:
            given = fields(args[1])
            self._learn(direction, "status_csid", csid)
            code = text(given.get("code")) or ""
            if code.startswith("NetStream."):
                self._learn(direction, code.removeprefix("NetStream."), self._nameless(text(given.get("description"))))

    def _nameless(self, words: str | None) -> str:
        """A server's words without the stream they are about."""
        words = words or ""
        if self._name:
            words = words.replace(self._name, "*")
        return " ".join("*" if "/" in word or "?" in word else word for word in words.split())

    def _asked(self, name: str, fact: CommandFact, csid: int | None) -> None:
        args = fact.args
        if name == "connect":
            given = fields(args[0]) if args else {}
            self._learn("c2s", "connect_fields", ",".join(given))
            for field in ("flashVer", "audioCodecs", "videoCodecs", "capabilities"):
                if field in given:
                    self._learn("c2s", field, _plain(given[field]))
        elif name == "releaseStream":
            self._learn("c2s", "release_id", _plain(fact.transaction_id))
        elif name in ("publish", "play"):
            self._name = text(args[1]) if len(args) > 1 else None
            self._learn("c2s", f"{name}_csid", csid)
            self._learn("c2s", f"{name}_id", "0" if not fact.transaction_id else "counted")
            if name == "play" and len(args) > 2:
                self._learn("c2s", "play_start", _plain(args[2]))

    def _connected(self, args: list[Any]) -> None:
        for value in args:
            given = fields(value)
            if "fmsVer" in given:
                self._learn("s2c", "fmsVer", given["fmsVer"])
                self._learn("s2c", "result_fields", ",".join(given))
                self._learn("s2c", "capabilities", _plain(given.get("capabilities")))
            if "description" in given:
                self._learn("s2c", "connect_words", given["description"])
            data = fields(given.get("data"))
            for field in ("srs_server", "srs_version", "version"):
                if field in data:
                    self._learn("s2c", field, data[field])

    def _metadata(self, direction: str, args: list[Any]) -> None:
        for value in args:
            given = fields(value)
            if direction == "c2s":
                for field in ("encoder", "metadatacreator"):
                    if text(given.get(field)):
                        self._learn(direction, "encoder", given[field])
            else:  # a server passes on what the publisher said; only its own additions tell about it
                for field in ("Server", "server", "srs_server", "server_version"):
                    if text(given.get(field)):
                        self._learn(direction, "metadata_server", given[field])

    def _word(self, direction: str, word: str) -> None:
        words = self._words[direction]
        if len(words) < _FIRST_WORDS:
            words.append(word)
            self._of(direction)["order"] = " ".join(words)

    def settle(self) -> None:
        for known in self._csid.values():
            known.clear()
        self._packets.clear()

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> list[Any]:
        csid = {d: [[number, csid] for number, csid in known.items()] for d, known in self._csid.items()}
        return [self.client, self.server, self._words, csid, self._packets]

    def resume(self, state: list[Any]) -> None:
        client, server, words, csid, packets = state
        self.client, self.server, self._packets = dict(client), dict(server), dict(packets)
        self._words = {d: list(known) for d, known in words.items()}
        self._csid = {d: dict(known) for d, known in csid.items()}


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
