"""AMF values of either encoding, and their form as tagged JSON in tables and vectors.

Numbers, booleans, strings, null, strict arrays and byte arrays are Python types (`float`/`int`, `bool`, `str`, `None`,
`list`, `bytes`); the rest are the classes below. The order of keys, duplicate keys and strings that are not UTF-8 are
kept. A reference remains a `Reference` with its target: values are trees, so comparing and printing them terminates.
AMF bytes are read and written by `amf0` and `amf3`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Union

from .errors import DecodeError, EncodeError, Severity, ViolationCode
from .limits import DEFAULT_LIMITS, MAX_DEPTH, REFERENCES_WRITTEN_OUT

_EXACT_INTEGERS = 2.0**53


class Special(Enum):
    UNDEFINED = "undefined"
    UNSUPPORTED = "unsupported"


UNDEFINED, UNSUPPORTED = Special.UNDEFINED, Special.UNSUPPORTED


@dataclass(frozen=True, slots=True)
class BadString:
    """A string that is not UTF-8, as it was sent."""

    raw: bytes


Text = str | BadString


class AmfObject:
    """Properties in order of appearance. A name may occur twice; a lookup returns the last."""

    __slots__ = ("pairs",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, pairs: Iterable[tuple[Text, Value]] | None = None) -> None:
        self.pairs: list[tuple[Text, Value]] = [] if pairs is None else list(pairs)

    def get(self, name: str, default: Value = None) -> Value:
        for key, value in reversed(self.pairs):
            if key == name:
                return value.target if type(value) is Reference else value
        return default

    def __getitem__(self, name: str) -> Value:
        if name not in self:
            raise KeyError(name)
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self.pairs)

    def __iter__(self) -> Iterator[Text]:
        return (key for key, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.pairs == other.pairs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pairs!r})"


class EcmaArray(AmfObject):
    __slots__ = ()


class TypedObject(AmfObject):
    __slots__ = ("class_name",)

    def __init__(self, class_name: Text, pairs: Iterable[tuple[Text, Value]] | None = None) -> None:
        super().__init__(pairs)
        self.class_name = class_name

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.class_name == other.class_name  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"TypedObject({self.class_name!r}, {self.pairs!r})"


@dataclass(slots=True)
class MixedArray:
    """An AMF3 array that also has named elements."""

    items: list[Value]
    assoc: AmfObject


@dataclass(frozen=True, slots=True)
class Date:
    ms: float  # since 1970, UTC; NaN is an invalid date
    tz: int = 0  # minutes; reserved ("should not be filled", AMF0 2.13), but some senders fill it


@dataclass(frozen=True, slots=True)
class Xml:
    text: Text


@dataclass(slots=True)
class Vector:
    kind: str  # int, uint, double, object
    items: list[Value]
    fixed: bool = False
    class_name: Text = field(default="", compare=False)  # of an object vector; not part of the tagged JSON


@dataclass(slots=True)
class Dictionary:
    pairs: list[tuple[Value, Value]]
    weak: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class External:
    """An externalizable object: only its class defines its length, so it is taken to be the rest of the message."""

    class_name: Text
    raw: bytes


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an earlier object, by its index in the AMF0 or AMF3 table of the message."""

    index: int
    amf3: bool = False
    target: Value = field(default=None, compare=False, repr=False)


Value = Union[
    None,
    bool,
    int,
    float,
    str,
    bytes,
    BadString,
    Special,
    "list[Value]",
    AmfObject,
    MixedArray,
    Date,
    Xml,
    Vector,
    Dictionary,
    External,
    Reference,
]


class AmfViolation(NamedTuple):
    code: ViolationCode
    offset: int  # in the parsed bytes
    detail: str


class Reading:
    """The values that were read, including the parts of a truncated container, and the violations."""

    __slots__ = ("end", "values", "violations")

    def __init__(self) -> None:
        self.end = 0  # where reading stopped
        self.values: list[Value] = []
        self.violations: list[AmfViolation] = []

    def checked(self) -> list[Value]:
        """The values; raises AmfError if a violation is an error."""
        for code, offset, detail in self.violations:
            if code.severity is Severity.ERROR:
                raise AmfError(code, offset, detail, self.values)
        return self.values


class AmfError(DecodeError):
    """Damaged AMF; `values` holds what was read."""

    def __init__(self, code: ViolationCode, offset: int, detail: str, values: list[Value]) -> None:
        super().__init__(code, offset, detail)
        self.values = values


def resolve(value: Value) -> Value:
    """The target of a reference; any other value unchanged."""
    return value.target if type(value) is Reference else value


def to_json(value: object) -> Any:
    """The tagged JSON of a value, as an object for `json.dumps`."""
    return _JsonWriter().write(value, 0)


def to_json_values(values: Iterable[object]) -> list[Any]:
    """The tagged JSON of the values of one message. A value that is itself a reference is written out as its target,
    up to `REFERENCES_WRITTEN_OUT` of them, so that every value can be read alone."""
    written_out = 0
    tagged = []
    for value in values:
        if isinstance(value, Reference) and value.target is not None:
            written_out += 1
            if written_out > REFERENCES_WRITTEN_OUT:
                tagged.append(_ref(value.index))
                continue
        tagged.append(_JsonWriter().write(value, 0))
    return tagged


def from_json(tagged: object) -> Value:
    """The value of a piece of tagged JSON."""
    return _value(tagged, 0)


class _JsonWriter:
    """Writes a reference out as its target the first time; when the target was written before, or is being written,
    as `$ref`. So the JSON grows with the bytes of the message, however its references multiply."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # id of each container around the current value -> its index, if known
        self._written: set[int] = set()  # ids of the values that a reference can have as its target

    def write(self, value: object, depth: int, index: int = -1) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, float):
            return _number(value)
        if isinstance(value, int):
            return value
        if isinstance(value, Reference):
            target = value.target
            written_out = target is not None and depth < DEFAULT_LIMITS.amf_depth and id(target) not in self._written
            return self.write(target, depth, value.index) if written_out else _ref(value.index)
        if isinstance(value, BadString):
            return {"$badstring": value.raw.hex()}
        if isinstance(value, Special):
            return {"$" + value.value: True}
        self._written.add(id(value))
        if isinstance(value, Date):
            return {"$date": None if math.isnan(value.ms) else _number(value.ms), "tz": value.tz}
        if isinstance(value, Xml):
            return {"$xml": self.write(value.text, depth)}
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        if isinstance(value, External):
            return {"$external": self.write(value.class_name, depth), "bytes": value.raw.hex()}
        if id(value) in self._open:
            return _ref(self._open[id(value)])
        if depth >= MAX_DEPTH + DEFAULT_LIMITS.amf_depth:
            raise EncodeError(f"AMF value is nested deeper than {depth}")
        self._open[id(value)] = index
        try:
            return self._container(value, depth + 1)
        finally:
            del self._open[id(value)]

    def _container(self, value: object, depth: int) -> Any:
        if isinstance(value, (list, tuple)):
            return self._items(value, depth)
        if isinstance(value, EcmaArray):
            return {"$ecma": self._object(value.pairs, depth)}
        if isinstance(value, TypedObject):
            return {"$class": self.write(value.class_name, depth), "value": self._object(value.pairs, depth)}
        if isinstance(value, AmfObject):
            return self._object(value.pairs, depth)
        if isinstance(value, Mapping):
            return self._object(list(value.items()), depth)
        if isinstance(value, MixedArray):
            return {"$array": self._items(value.items, depth), "assoc": self._object(value.assoc.pairs, depth)}
        if isinstance(value, Vector):
            return {"$vector": value.kind, "fixed": value.fixed, "items": self._items(value.items, depth)}
        if isinstance(value, Dictionary):
            return {"$dictionary": [self._items(pair, depth) for pair in value.pairs]}
        raise EncodeError(f"{type(value).__name__} is not an AMF value")

    def _items(self, items: Iterable[object], depth: int) -> list[Any]:
        write = self.write
        return [write(item, depth) for item in items]

    def _object(self, pairs: list[tuple[Text, Value]], depth: int) -> dict[str, Any]:
        tagged: dict[str, Any] = {}
        for key, value in pairs:
            if not isinstance(key, str):
                break
            name = "$" + key if key[:1] == "$" else key
            if name in tagged:
                break
            tagged[name] = self.write(value, depth)
        else:
            return tagged
        return {"$pairs": [[self._key(key, depth), self.write(value, depth)] for key, value in pairs]}

    def _key(self, key: Text, depth: int) -> Any:
        return "$" + key if isinstance(key, str) and key[:1] == "$" else self.write(key, depth)


def _ref(index: int) -> dict[str, int]:
    return {"$ref": index}


def _number(value: float) -> Any:
    if math.isfinite(value):
        exact = value.is_integer() and abs(value) < _EXACT_INTEGERS and (value or math.copysign(1.0, value) > 0)
        return int(value) if exact else value
    return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _value(tagged: Any, depth: int) -> Value:
    if depth > MAX_DEPTH + DEFAULT_LIMITS.amf_depth:
        raise EncodeError(f"tagged JSON is nested deeper than {depth}")
    if tagged is None or isinstance(tagged, (bool, int, float, str)):
        return tagged
    if isinstance(tagged, list):
        return [_value(item, depth + 1) for item in tagged]
    if not isinstance(tagged, dict):
        raise EncodeError(f"{type(tagged).__name__} is not JSON")
    tag = next(iter(tagged), "")
    if tag[:1] != "$" or tag[:2] == "$$" or tag == "$pairs":
        return AmfObject(_pairs(tagged, depth))
    try:
        return _tagged_value(tag, tagged, depth + 1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EncodeError(f"malformed {tag} in tagged JSON: {error}") from error


def _tagged_value(tag: str, tagged: dict[str, Any], depth: int) -> Value:
    content = tagged[tag]
    if tag == "$number":
        return float(content)
    if tag == "$undefined":
        return UNDEFINED
    if tag == "$unsupported":
        return UNSUPPORTED
    if tag == "$badstring":
        return BadString(bytes.fromhex(content))
    if tag == "$date":
        ms = math.nan if content is None else _value(content, depth)
        if not isinstance(ms, (int, float)):
            raise ValueError("milliseconds are not a number")
        return Date(ms, int(tagged["tz"]))
    if tag == "$xml":
        return Xml(_text(content))
    if tag == "$bytes":
        return bytes.fromhex(content)
    if tag == "$ref":
        return Reference(int(content))
    if tag == "$ecma":
        return EcmaArray(_pairs(content, depth))
    if tag == "$class":
        return TypedObject(_text(content), _pairs(tagged["value"], depth))
    if tag == "$array":
        return MixedArray([_value(item, depth) for item in content], AmfObject(_pairs(tagged["assoc"], depth)))
    if tag == "$vector":
        if content not in ("int", "uint", "double", "object"):
            raise ValueError(f"unknown vector type {content}")
        return Vector(content, [_value(item, depth) for item in tagged["items"]], bool(tagged["fixed"]))
    if tag == "$dictionary":
        return Dictionary([(_value(key, depth), _value(value, depth)) for key, value in content])
    if tag == "$external":
        return External(_text(content), bytes.fromhex(tagged["bytes"]))
    raise ValueError("unknown tag")


def _text(tagged: Any) -> Text:
    text = _value(tagged, 0)
    if not isinstance(text, (str, BadString)):
        raise ValueError("not a string")
    return text


def _pairs(tagged: dict[str, Any], depth: int) -> list[tuple[Text, Value]]:
    pairs: Iterable[Any] = tagged["$pairs"] if "$pairs" in tagged else tagged.items()
    result: list[tuple[Text, Value]] = []
    for key, value in pairs:
        name = key[1:] if isinstance(key, str) and key[:2] == "$$" else _text(key)
        result.append((name, _value(value, depth + 1)))
    return result
