"""A connection that may go on after the last file, as bytes: reassembly, decoders, folds, all of it.

Plain JSON, compressed, with a version and a header that the driver can read alone; never pickle, because a lake is
shared. A state of another version is never guessed at. What is kept is what decoding needs to go on, no more: names
that are secrets are kept by their hashes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rtmp_spark.capture import facts as facts_module
from rtmp_spark.capture.conversation import Conversation
from rtmp_spark.capture.direction import DirectionDecoder
from rtmp_spark.capture.facts import CommandFact, Facts
from rtmp_spark.capture.findings import FindingFold
from rtmp_spark.capture.items import Conflict, End, Gap, Item, Lost, Run
from rtmp_spark.capture.seconds import Seconds
from rtmp_spark.capture.service import Start
from rtmp_spark.capture.session import Session
from rtmp_spark.codec.errors import Severity, UserError, ViolationCode

from .ledger import Superseded

if TYPE_CHECKING:
    from rtmp_spark.capture.connection import Connection
    from rtmp_spark.capture.rtmpt import Tunnels
    from rtmp_spark.capture.settings import Settings

STATE_VERSION = 8
SavedFlow = tuple[str, int, bytes]  # a row of `open_flows`: uid, version, state
CONNECTION_TABLES = ("connections", "handshakes", "streams", "findings", "intervals")
_FACTS = {
    kind.__name__: kind
    for kind in (
        facts_module.CommandFact,
        facts_module.ControlFact,
        facts_module.FaultFact,
        facts_module.GapFact,
        facts_module.LagFact,
        facts_module.ConflictFact,
        facts_module.HandshakeFact,
    )
}
_ITEMS: dict[str, Any] = {kind.__name__: kind for kind in (Run, Gap, Conflict, Lost, End)}
_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode  # states are trees
_PLAIN_SLOTS = ("service", "refusal", "accepted", "client", "uid", "bytes_in", "_sequence", "_at")


@dataclass
class OpenFlow:
    """The header of a saved connection."""

    uid: str  # of the rows it gave; its key when it gave none
    key: str  # endpoints, hex
    ts_last_ns: int
    over_ns: int  # later packets between its endpoints are not its own
    has_rows: bool
    messages: tuple[int, int]  # c2s, s2c: rows from these numbers on are provisional
    commands: tuple[int, int]
    second: int
    tables: tuple[str, ...]  # message tables that hold provisional rows
    files: dict[str, str]  # captures it was in, by number
    tunnel: bool = False  # carries RTMPT
    tls: bool = False  # may carry it inside

    def superseded(self) -> Superseded:
        tables = ("open_flows", *(CONNECTION_TABLES if self.has_rows else ()), *self.tables)
        return Superseded(self.uid, *self.messages, self.second, tables, *self.commands)


def freeze(state: dict[str, Any]) -> bytes:
    """At once: a state shares its lists with the connection it was taken from."""
    text = _json(state).encode()
    compressed: bytes = pa.compress(text, "zstd", asbytes=True)
    return len(text).to_bytes(8, "big") + compressed


def pack(header: OpenFlow, frozen: bytes) -> bytes:
    return _json(vars(header)).encode() + b"\n" + frozen


def header_of(packed: bytes) -> OpenFlow:
    values = json.loads(packed[: packed.index(b"\n")])
    for name in ("messages", "commands", "tables"):
        values[name] = tuple(values[name])
    return OpenFlow(**values)


def state_of(packed: bytes) -> dict[str, Any]:
    at = packed.index(b"\n") + 1
    size = int.from_bytes(packed[at : at + 8], "big")
    state: dict[str, Any] = json.loads(pa.decompress(packed[at + 8 :], size, "zstd", asbytes=True))
    return state


def save(connection: Connection) -> dict[str, Any]:
    """The state of a connection between two windows, its conversation included."""
    conversation = connection.tag
    return {
        "connection": connection.state(),
        "conversation": None if conversation is None else _save(conversation),
    }


def restore(state: dict[str, Any], connection: Connection, settings: Settings, tunnels: Tunnels) -> Conversation | None:
    saved = state["conversation"]
    return None if saved is None else _restore(saved, connection, settings, tunnels)


def wrapping_of(state: dict[str, Any]) -> str | None:
    """tls, rtmpt, or nested: the second inside the first."""
    wrapping = (state["conversation"] or {}).get("wrapping")
    return None if wrapping is None else wrapping["kind"]


def begins_tunnels(state: dict[str, Any]) -> bool:
    """Whether a session of RTMPT began on this connection."""
    wrapping = (state["conversation"] or {}).get("wrapping")
    inside = wrapping["state"] if wrapping is not None else {}
    return bool(inside.get("inner", inside).get("sessions"))


def bases(conversation: Conversation) -> tuple[tuple[int, int], tuple[int, int], int]:
    """First provisional message and command of c2s and s2c, first provisional second."""
    messages, commands = [0, 0], [0, 0]
    waiting = [(number, fact.msg_no) for _, number, _, fact in conversation._notable if isinstance(fact, CommandFact)]
    for number, decoder in enumerate(conversation.directions):
        place = 0 if number == (conversation.client or 0) else 1
        if decoder is not None:
            messages[place] = decoder.messages_seen - len(decoder.facts.messages)
        commands[place] = min([messages[place], *(no for side, no in waiting if side == number)])
    open_seconds = [s for seconds in conversation.seconds for s in (*seconds._tcp, *seconds._media)]
    return (messages[0], messages[1]), (commands[0], commands[1]), min(open_seconds, default=1 << 40)


def _save(conversation: Conversation) -> dict[str, Any]:
    harmless = _Harmless(conversation)
    notable = [
        [at, number, sequence, plain(harmless(fact))] for at, number, sequence, fact in sorted(conversation._notable)
    ]
    told = [None if d is None else _plain_facts(harmless.facts(d.facts)) for d in conversation.directions]
    return {
        **{name: getattr(conversation, name) for name in _PLAIN_SLOTS},
        "wrapping": conversation.wrapping_state(),
        "started": [None if start is None else list(start) for start in conversation._started],
        "held": [[_plain_item(item) for item in items] for items in conversation._held],
        "directions": [None if d is None else [d.state(), facts] for d, facts in zip(conversation.directions, told)],
        "session": conversation.session.state(),
        "judge": None if conversation._judge is None else conversation._judge.state(),
        "findings": conversation.findings.state(),
        "notable": notable,
        "media": plain(conversation._media),
        "media_at": conversation._media_at,
        "seconds": [seconds.state() for seconds in conversation.seconds],
    }


class _Harmless:
    """Facts that nobody looked at yet, without their secrets. Redacting them again later changes nothing; the judge,
    who compares names with what servers say, is told of them now."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._redactor = conversation._settings.redactor
        self._known = set(conversation.session.known_secrets)

    def __call__(self, fact: Any) -> Any:
        if not isinstance(fact, CommandFact) or self._redactor.keeps_secrets:
            return fact
        judge, name = self._conversation._judge, fact.args[1] if len(fact.args) > 1 else None
        if judge is not None and fact.name in ("publish", "play") and isinstance(name, str):
            judge.foresee(name, self._redactor.stream_name(name))
        return fact._replace(args=self._redactor.arguments(fact.name, fact.args, self._known))

    def facts(self, facts: Facts) -> Facts:
        told = Facts()
        for name in Facts.__slots__:
            setattr(told, name, getattr(facts, name))
        told.notable = [self(fact) for fact in facts.notable]
        told.payloads = self._conversation._harmless(facts.payloads, facts.notable)
        return told


def _restore(saved: dict[str, Any], connection: Connection, settings: Settings, tunnels: Tunnels) -> Conversation:
    conversation = Conversation(connection, settings, tunnels)
    for name in _PLAIN_SLOTS:
        setattr(conversation, name, saved[name])
    conversation.resume_wrapping(saved.get("wrapping"))
    conversation._started = [None if start is None else Start(*start) for start in saved["started"]]
    conversation._held = [[_made_item(item, connection) for item in items] for items in saved["held"]]
    conversation.directions = [None, None]
    for number, direction in enumerate(saved["directions"]):
        if direction is not None:
            hook = settings.hook(conversation, number) if settings.hook is not None else None
            decoder = DirectionDecoder.resume(
                direction[0], limits=settings.limits, keep_payloads=settings.keep_payloads, hook=hook
            )
            decoder.facts = _made_facts(direction[1])
            conversation.directions[number] = decoder
    conversation.session = Session.resume(saved["session"], settings.redactor, settings.command_rows, settings.judge)
    conversation._judge = conversation.session.judge
    if conversation._judge is not None and saved["judge"] is not None:
        conversation._judge.resume(saved["judge"])
    conversation.findings = FindingFold.resume(saved["findings"])
    conversation._notable = [(at, number, sequence, made(fact)) for at, number, sequence, fact in saved["notable"]]
    conversation._media = made(saved["media"])
    conversation._media_at = saved["media_at"]
    conversation.seconds = [Seconds.resume(seconds) for seconds in saved["seconds"]]
    return conversation


def _plain_facts(facts: Facts) -> dict[str, Any]:
    """What was told since the last time: mostly nothing."""
    return {name: plain(value) for name in Facts.__slots__ if (value := getattr(facts, name))}


def _made_facts(saved: dict[str, Any]) -> Facts:
    facts = Facts()
    for name, value in saved.items():
        setattr(facts, name, made(value))
    return facts


def _plain_item(item: Item) -> list[Any]:
    names = [f.name for f in fields(item) if f.name != "connection"]
    return [type(item).__name__, [plain(getattr(item, name)) for name in names]]


def _made_item(saved: list[Any], connection: Connection) -> Item:
    kind, values = saved
    item: Item = _ITEMS[kind](connection, *(made(value) for value in values))
    return item


def plain(value: Any) -> Any:
    """Facts, rows and what they are made of as JSON that `made` turns back."""
    if isinstance(value, ViolationCode):
        return {"code": value.value}
    if isinstance(value, Severity):
        return {"severity": value.value}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if type(value).__name__ in _FACTS and isinstance(value, tuple):
        return {"fact": type(value).__name__, "of": [plain(v) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [plain(v) for v in value]}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[plain(k), plain(v)] for k, v in value.items()]}
    return plain(value.item())  # a number of numpy


def made(value: Any) -> Any:
    if isinstance(value, list):
        return [made(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "fact" in value:
        return _FACTS[value["fact"]](*(made(v) for v in value["of"]))
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(made(v) for v in content)
    if kind == "dict":
        return {made(k): made(v) for k, v in content}
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "array":
        return np.array(content, np.int64)
    return ViolationCode[content] if kind == "code" else Severity(content)


def placeholder(sensor: str, key: str) -> str:
    """Stands for the uid of a connection that gave no rows."""
    return f"-{key}{sensor}"


def is_placeholder(uid: str) -> bool:
    return uid.startswith("-")


def readable(saved: Iterable[SavedFlow]) -> tuple[list[tuple[OpenFlow, bytes]], list[str]]:
    """Those that can go on, and the uids of those that an older version saved."""
    flows, outdated = [], []
    for uid, version, packed in saved:
        if version > STATE_VERSION:
            raise UserError(
                f"A newer rtmp-spark saved the open connections of this lake (states of version {version}; "
                f"this one knows {STATE_VERSION}).",
                "Upgrade rtmp-spark, or use another lake.",
            )
        if version < STATE_VERSION:
            outdated.append(uid)
        else:
            flows.append((header_of(packed), packed))
    return flows, outdated


def newest(flows: Iterable[tuple[OpenFlow, bytes]]) -> dict[bytes, tuple[OpenFlow, bytes]]:
    """One saved connection for each pair of endpoints: the last."""
    chosen: dict[bytes, tuple[OpenFlow, bytes]] = {}
    for header, packed in sorted(flows, key=lambda flow: flow[0].ts_last_ns):
        chosen[bytes.fromhex(header.key)] = (header, packed)
    return chosen
