"""Facts, rows and items as JSON values, and back: the form in which a saved conversation keeps them.

A saved conversation is plain JSON, never pickle, because a lake is shared between people and versions.
"""

from __future__ import annotations

import base64
from typing import Any, cast

import numpy as np

from rtmp_spark.capture.tcp.stream_items import Conflict, End, Gap, Item, Lost, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.codec.json_value import Json, SavedFields
from rtmp_spark.conversation.facts import (
    FACT_LISTS,
    CommandFact,
    ConflictFact,
    ControlFact,
    Facts,
    FaultFact,
    GapFact,
    HandshakeFact,
    LagFact,
    MediaFigures,
    MediaSecond,
    Place,
)

FACT_KINDS = (CommandFact, ControlFact, FaultFact, GapFact, LagFact, ConflictFact, HandshakeFact)
SavedItem = SavedFields  # the kind of an item and its fields
_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in (*FACT_KINDS, Place)}
_ITEMS: dict[str, Any] = {kind.__name__: kind for kind in (Run, Gap, Conflict, Lost, End)}


def to_json(value: object) -> Json:
    """A JSON value from which `from_json` makes an equal one."""
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
    if type(value).__name__ in _BY_NAME and isinstance(value, tuple):
        return {"fact": type(value).__name__, "of": [to_json(v) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(v) for v in value]}
    if isinstance(value, list):
        return [to_json(v) for v in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(k), to_json(v)] for k, v in value.items()]}
    assert isinstance(value, np.generic)
    return to_json(value.item())


def from_json(value: Json) -> object:
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    content: Any
    if "fact" in value:
        content = value["of"]
        return _BY_NAME[str(value["fact"])](*(from_json(v) for v in content))
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(from_json(v) for v in content)
    if kind == "dict":
        return {from_json(k): from_json(v) for k, v in content}
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "array":
        return np.array(content, np.int64)
    return ViolationCode[content] if kind == "code" else Severity(content)


def facts_to_json(facts: Facts) -> dict[str, Json]:
    """Only what is not empty: usually nothing."""
    state = {name: to_json(value) for name in FACT_LISTS if (value := getattr(facts, name))}
    if facts.seconds:
        state["seconds"] = [[second, list(values.values())] for second, values in facts.seconds.items()]
    return state


def facts_from_json(state: dict[str, Json]) -> Facts:
    facts = Facts()
    for name, value in state.items():
        if name == "seconds":
            seconds = cast("list[tuple[int, MediaFigures]]", value)
            facts.seconds = {second: MediaSecond.resume(figures) for second, figures in seconds}
        else:
            setattr(facts, name, from_json(value))
    return facts


def item_to_json(item: Item) -> SavedItem:
    return type(item).__name__, [to_json(value) for value in item[1:]]  # without the connection


def item_from_json(state: SavedItem, connection: Connection) -> Item:
    kind, values = state
    item: Item = _ITEMS[kind](connection, *(from_json(value) for value in values))
    return item
