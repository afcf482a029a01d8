"""AMF3, the encoding of ActionScript 3 (AMF 3 specification, 2013): bytes to values and back.

One `Reader` or `Writer` is used for a whole message, because the string, trait and object tables are shared by all AMF3
values that AMF0 announces with marker 0x11. A count is compared with the remaining bytes before anything is allocated
for it; nesting, and with it recursion, is bounded. No class is known here: the body of an externalizable object is kept
as bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .amf import (
    UNDEFINED,
    AmfObject,
    AmfViolation,
    BadString,
    Date,
    Dictionary,
    EcmaArray,
    External,
    MixedArray,
    Reading,
    Reference,
    Special,
    Text,
    TypedObject,
    Value,
    Vector,
    Xml,
)
from .errors import DecodeError, EncodeError, ViolationCode
from .limits import DEFAULT_LIMITS, EXPANSION_CHARACTERS, EXPANSION_RATIO, MAX_DEPTH, Limits

(_UNDEFINED, _NULL, _FALSE, _TRUE, _INTEGER, _DOUBLE, _STRING, _XML_DOCUMENT, _DATE, _ARRAY, _OBJECT, _XML,
 _BYTE_ARRAY, _VECTOR_INT, _VECTOR_UINT, _VECTOR_DOUBLE, _VECTOR_OBJECT, _DICTIONARY) = range(0x12)  # fmt: skip

_DOUBLE_BE = struct.Struct(">d")
_PACKED_VECTORS = {_VECTOR_INT: ("int", "i", 4), _VECTOR_UINT: ("uint", "I", 4), _VECTOR_DOUBLE: ("double", "d", 8)}
_LEAVES = frozenset((_XML_DOCUMENT, _XML, _DATE, _BYTE_ARRAY, *_PACKED_VECTORS))
_LITERALS: dict[int, Value] = {_UNDEFINED: UNDEFINED, _NULL: None, _FALSE: False, _TRUE: True}
_SMALLEST, _LARGEST = -(1 << 28), (1 << 28) - 1  # of a 29-bit integer

Append = Callable[[Value], None]


def read_values(data: bytes, limits: Limits = DEFAULT_LIMITS, start: int = 0) -> Reading:
    """Every value up to the end of the data, and every violation; never raises."""
    reading = Reading()
    reader = Reader(data, start, limits, reading.violations)
    try:
        while reader.pos < len(data):
            if reading.values and data[reader.pos] > _DICTIONARY:
                detail = f"{len(data) - reader.pos} bytes after the last value"
                reading.violations.append(AmfViolation(ViolationCode.AMF_TRAILING, reader.pos, detail))
                break
            reader.read(reading.values.append, 1)
    except EndOfMessage:
        pass
    except DecodeError as error:
        reading.violations.append(AmfViolation(error.code, error.offset, error.detail))
    reading.end = reader.pos
    return reading


def parse_values(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Value]:
    """Every value up to the end of the data. Raises `AmfError`, which holds what was read, if the data is damaged."""
    return read_values(data, limits).checked()


def dump_values(values: Iterable[object]) -> bytes:
    writer = Writer()
    for value in values:
        writer.write(value, 1)
    return bytes(writer.out)


class EndOfMessage(Exception):
    """An externalizable object took the rest of the message; the functions that read a whole message catch this."""


class _Traits(NamedTuple):
    class_name: Text
    names: tuple[Text, ...]
    dynamic: bool
    externalizable: bool
    characters: int  # of the class name and the names


class Reader:
    """A cursor over one message. Containers are appended before they are filled, so that truncated ones are kept."""

    def __init__(self, data: bytes, pos: int, limits: Limits, violations: list[AmfViolation]) -> None:
        self.data = data
        self.pos = pos
        self.nodes_left = limits.amf_nodes
        self._start = pos
        self._repeated = 0  # characters of the strings and names that were sent by reference
        self._max_depth = min(limits.amf_depth, MAX_DEPTH)
        self._violations = violations
        self._strings: list[Text] = []
        self._traits: list[_Traits] = []
        self._objects: list[Value] = []
        self._weights: list[int] = []  # nodes of the expansion of each object; 0 while it is open

    def read(self, append: Append, depth: int) -> None:
        """Read the value at the cursor; `depth` is its nesting if it is a container."""
        data, start = self.data, self.pos
        if start >= len(data):
            raise self._truncated("value")
        marker = data[start]
        self._spend(1, start)
        self.pos = start + 1
        if marker in _LITERALS:
            append(_LITERALS[marker])
        elif marker == _INTEGER:
            number = self._u29()
            append(number - (1 << 29) if number > _LARGEST else number)
        elif marker == _DOUBLE:
            append(self._double())
        elif marker == _STRING:
            append(self._string())
        elif marker <= _DICTIONARY:
            self._complex(marker, start, append, depth)
        else:
            self.pos = start
            raise DecodeError(ViolationCode.AMF_MARKER, start, f"unknown AMF3 marker 0x{marker:02x}")

    def _complex(self, marker: int, start: int, append: Append, depth: int) -> None:
        header = self._u29()
        if not header & 1:
            append(self._reference(header >> 1, start))
            return
        if depth > self._max_depth and marker not in _LEAVES:
            raise DecodeError(ViolationCode.AMF_DEPTH, start, f"containers are nested deeper than {self._max_depth}")
        slot, before = len(self._objects), self.nodes_left
        self._weights.append(0)
        header >>= 1
        if marker in (_XML_DOCUMENT, _XML):
            self._register(Xml(self._text(header)), append)
        elif marker == _DATE:
            date = Date(self._double())
            self._violations += date_violations(date, start)
            self._register(date, append)
        elif marker == _BYTE_ARRAY:
            self._register(self._take(header, "byte array"), append)
        elif marker == _ARRAY:
            self._array(header, append, depth)
        elif marker == _OBJECT:
            self._object(header, start, append, depth)
        elif marker == _DICTIONARY:
            self._dictionary(header, append, depth)
        elif marker == _VECTOR_OBJECT:
            self._object_vector(header, append, depth)
        else:
            self._packed_vector(marker, header, append)
        self._weights[slot] = 1 + before - self.nodes_left

    def _register(self, value: Value, append: Append) -> None:
        self._objects.append(value)
        append(value)

    def _reference(self, index: int, start: int) -> Reference:
        if index >= len(self._objects):
            detail = f"reference to object {index}, but only {len(self._objects)} precede it"
            self._violations.append(AmfViolation(ViolationCode.AMF_REFERENCE, start, detail))
            return Reference(index, True)
        self._spend(self._weights[index], start)
        return Reference(index, True, self._objects[index])

    def _array(self, count: int, append: Append, depth: int) -> None:
        self._check_count(count, 1, "array")
        items: list[Value] = []
        first = self._string()
        if first == "":
            self._register(items, append)
        else:
            assoc = AmfObject()
            self._register(MixedArray(items, assoc), append)
            self._named(assoc.pairs, first, depth)
        for _ in range(count):
            self.read(items.append, depth + 1)

    def _named(self, pairs: list[tuple[Text, Value]], key: Text, depth: int) -> None:
        """Read names and values up to an empty name."""
        while key != "":
            self.read(_under(pairs, key), depth + 1)
            key = self._string()

    def _object(self, header: int, start: int, append: Append, depth: int) -> None:
        traits = self._read_traits(header, start)
        if traits.externalizable:
            self._register(External(traits.class_name, self.data[self.pos :]), append)
            self.pos = len(self.data)
            raise EndOfMessage
        value = AmfObject() if traits.class_name == "" else TypedObject(traits.class_name)
        self._register(value, append)
        for name in traits.names:
            self.read(_under(value.pairs, name), depth + 1)
        if traits.dynamic:
            self._named(value.pairs, self._string(), depth)

    def _read_traits(self, header: int, start: int) -> _Traits:
        if not header & 1:
            index = header >> 1
            if index >= len(self._traits):
                raise DecodeError(
                    ViolationCode.AMF_REFERENCE,
                    start,
                    f"reference to traits {index}, but only {len(self._traits)} precede it",
                )
            traits = self._traits[index]
            self._repeat(traits.characters, start)
            return traits
        externalizable, dynamic, count = bool(header & 2), bool(header & 4), header >> 3
        if externalizable:
            dynamic, count = False, 0
        self._check_count(count, 1, "property names")
        self._spend(count, start)
        class_name = self._string()
        names = tuple(self._string() for _ in range(count))
        characters = sum(map(_length, (class_name, *names)))
        traits = _Traits(class_name, names, dynamic, externalizable, characters)
        self._traits.append(traits)
        return traits

    def _dictionary(self, count: int, append: Append, depth: int) -> None:
        self._check_count(count, 2, "dictionary")
        value = Dictionary([], bool(self._take(1, "dictionary")[0]))
        self._register(value, append)
        key: list[Value] = []
        for _ in range(count):
            key.clear()
            self.read(key.append, depth + 1)
            self.read(_under(value.pairs, key[0]), depth + 1)

    def _object_vector(self, count: int, append: Append, depth: int) -> None:
        self._check_count(count, 1, "vector")
        fixed = bool(self._take(1, "vector")[0])
        value = Vector("object", [], fixed, self._string())
        self._register(value, append)
        for _ in range(count):
            self.read(value.items.append, depth + 1)

    def _packed_vector(self, marker: int, count: int, append: Append) -> None:
        kind, letter, width = _PACKED_VECTORS[marker]
        self._check_count(count, 1, "vector")
        fixed = bool(self._take(1, "vector")[0])
        packed = self._take(count * width, "vector")
        self._spend(count, self.pos)
        self._register(Vector(kind, list(struct.unpack(f">{count}{letter}", packed)), fixed), append)

    def _u29(self) -> int:
        data, pos = self.data, self.pos
        number = 0
        for index in range(pos, min(pos + 3, len(data))):
            byte = data[index]
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                self.pos = index + 1
                return number
        if pos + 3 >= len(data):
            raise self._truncated("integer")
        self.pos = pos + 4
        return number << 8 | data[pos + 3]  # the fourth byte has 8 bits

    def _double(self) -> float:
        number: float = _DOUBLE_BE.unpack(self._take(8, "double"))[0]
        return number

    def _string(self) -> Text:
        start = self.pos
        header = self._u29()
        if not header & 1:
            index = header >> 1
            if index >= len(self._strings):
                raise DecodeError(
                    ViolationCode.AMF_REFERENCE,
                    start,
                    f"reference to string {index}, but only {len(self._strings)} precede it",
                )
            text = self._strings[index]
            self._repeat(_length(text), start)
            return text
        text = self._text(header >> 1)
        if text != "":  # the empty string is never sent by reference (AMF3 1.3.2)
            self._strings.append(text)
        return text

    def _text(self, length: int) -> Text:
        raw = self._take(length, "string")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            offset = self.pos - length + error.start
            detail = f"string is not UTF-8: {error.reason}"
            self._violations.append(AmfViolation(ViolationCode.AMF_UTF8, offset, detail))
            return BadString(raw)

    def _take(self, length: int, what: str) -> bytes:
        end = self.pos + length
        if end > len(self.data):
            raise self._truncated(what)
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def _check_count(self, count: int, least_bytes: int, what: str) -> None:
        left = len(self.data) - self.pos
        if count * least_bytes > left:
            detail = f"{what} of {count} entries, but only {left} bytes remain"
            raise DecodeError(ViolationCode.AMF_LIMIT, self.pos, detail)

    def _spend(self, nodes: int, offset: int) -> None:
        self.nodes_left -= nodes
        if self.nodes_left < 0:
            raise DecodeError(ViolationCode.AMF_LIMIT, offset, "too many values")

    def _repeat(self, characters: int, offset: int) -> None:
        """Count a string or names that are sent by reference: a few bytes may stand for kilobytes."""
        self._repeated += characters
        if self._repeated > EXPANSION_CHARACTERS + EXPANSION_RATIO * (offset - self._start):
            raise DecodeError(ViolationCode.AMF_LIMIT, offset, "references to strings expand to too much text")

    def _truncated(self, what: str) -> DecodeError:
        return DecodeError(ViolationCode.AMF_TRUNCATED, self.pos, f"the data ends inside a {what}")


def date_violations(date: Date, offset: int) -> list[AmfViolation]:
    if math.isfinite(date.ms):
        return []
    return [AmfViolation(ViolationCode.AMF_DATE, offset, f"the milliseconds of a date are {date.ms}")]


def _length(text: Text) -> int:
    return len(text) if isinstance(text, str) else 2 * len(text.raw)


def _under(pairs: list[tuple[Any, Value]], key: Value) -> Append:
    return lambda value: pairs.append((key, value))


class Writer:
    """Writes repeated strings as references, and objects as references where the value has one."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._strings: dict[Text, int] = {}
        self._objects: dict[int, int] = {}  # id of a written object -> its index
        self._count = 0

    def write(self, value: object, depth: int) -> None:
        out = self.out
        if value is None:
            out.append(_NULL)
        elif value is UNDEFINED:
            out.append(_UNDEFINED)
        elif isinstance(value, bool):
            out.append(_TRUE if value else _FALSE)
        elif isinstance(value, int) and _SMALLEST <= value <= _LARGEST:
            out.append(_INTEGER)
            self._u29(value & 0x1FFFFFFF)
        elif isinstance(value, (int, float)):
            out.append(_DOUBLE)
            out += double(value)
        elif isinstance(value, (str, BadString)):
            out.append(_STRING)
            self._string(value)
        elif isinstance(value, Reference):
            self._reference(value, depth)
        elif isinstance(value, Special):
            raise EncodeError(f"AMF3 cannot express {value.value}")
        else:
            if depth > MAX_DEPTH:
                raise EncodeError(f"AMF value is nested deeper than {MAX_DEPTH}")
            self._objects[id(value)] = self._count
            self._count += 1
            self._complex(value, depth + 1)

    def _complex(self, value: object, depth: int) -> None:
        out = self.out
        if isinstance(value, Date):
            out += bytes((_DATE, 1))
            out += double(value.ms)
        elif isinstance(value, Xml):
            out.append(_XML)
            self._text(value.text)
        elif isinstance(value, (bytes, bytearray)):
            out.append(_BYTE_ARRAY)
            self._flagged(len(value))
            out += value
        elif isinstance(value, (list, tuple)):
            self._array([], value, depth)
        elif isinstance(value, EcmaArray):
            self._array(value.pairs, (), depth)
        elif isinstance(value, MixedArray):
            self._array(value.assoc.pairs, value.items, depth)
        elif isinstance(value, AmfObject):
            self._object(value.class_name if isinstance(value, TypedObject) else "", value.pairs, depth)
        elif isinstance(value, Mapping):
            self._object("", list(value.items()), depth)
        elif isinstance(value, External):
            out += bytes((_OBJECT, 0x07))  # inline traits, externalizable
            self._string(value.class_name)
            out += value.raw
        elif isinstance(value, Dictionary):
            out.append(_DICTIONARY)
            self._flagged(len(value.pairs))
            out.append(value.weak)
            for key, item in value.pairs:
                self.write(key, depth)
                self.write(item, depth)
        elif isinstance(value, Vector):
            self._vector(value, depth)
        else:
            raise EncodeError(f"{type(value).__name__} is not an AMF3 value")

    def _reference(self, value: Reference, depth: int) -> None:
        index = value.index if value.target is None else self._objects.get(id(value.target))
        if index is None:
            self.write(value.target, depth)
            return
        self.out.append(_reference_marker(value.target))
        self._u29(index << 1)

    def _array(self, assoc: list[tuple[Text, Value]], items: Iterable[object], depth: int) -> None:
        dense = list(items)
        self.out.append(_ARRAY)
        self._flagged(len(dense))
        self._named(assoc, depth)
        for item in dense:
            self.write(item, depth)

    def _named(self, pairs: list[tuple[Text, Value]], depth: int) -> None:
        for key, value in pairs:
            if key == "":
                raise EncodeError("an AMF3 array element cannot have an empty name")
            self._string(key)
            self.write(value, depth)
        self.out.append(0x01)

    def _object(self, class_name: Text, pairs: list[tuple[Text, Value]], depth: int) -> None:
        self.out.append(_OBJECT)
        if any(key == "" for key, _ in pairs):  # only a sealed property can have an empty name
            self._u29(len(pairs) << 4 | 0x03)
            self._string(class_name)
            for key, _ in pairs:
                self._string(key)
            for _, value in pairs:
                self.write(value, depth)
        else:
            self.out.append(0x0B)  # inline traits, dynamic, nothing sealed
            self._string(class_name)
            self._named(pairs, depth)

    def _vector(self, value: Vector, depth: int) -> None:
        packed = next((item for item in _PACKED_VECTORS.items() if item[1][0] == value.kind), None)
        self.out.append(packed[0] if packed else _VECTOR_OBJECT)
        self._flagged(len(value.items))
        self.out.append(value.fixed)
        if packed:
            try:
                self.out += struct.pack(f">{len(value.items)}{packed[1][1]}", *value.items)
            except struct.error as error:
                raise EncodeError(f"invalid item in a vector of {value.kind}: {error}") from error
            return
        self._string(value.class_name)
        for item in value.items:
            self.write(item, depth)

    def _string(self, text: Text) -> None:
        if not isinstance(text, (str, BadString)):
            raise EncodeError(f"{type(text).__name__} is not a string")
        index = self._strings.get(text)
        if index is not None:
            self._u29(index << 1)
            return
        if text not in ("", BadString(b"")):
            self._strings[text] = len(self._strings)
        self._text(text)

    def _text(self, text: Text) -> None:
        raw = encoded(text)
        self._flagged(len(raw))
        self.out += raw

    def _flagged(self, number: int) -> None:
        if number > _LARGEST:
            raise EncodeError(f"{number} is too large for an AMF3 count")
        self._u29(number << 1 | 1)

    def _u29(self, number: int) -> None:
        out = self.out
        if number < 0x80:
            out.append(number)
        elif number < 0x4000:
            out += bytes((number >> 7 | 0x80, number & 0x7F))
        elif number < 0x200000:
            out += bytes((number >> 14 | 0x80, number >> 7 & 0x7F | 0x80, number & 0x7F))
        elif number < 0x20000000:
            out += bytes((number >> 22 | 0x80, number >> 15 & 0x7F | 0x80, number >> 8 & 0x7F | 0x80, number & 0xFF))
        else:
            raise EncodeError(f"{number} does not fit in 29 bits")


def _reference_marker(target: Value) -> int:
    if isinstance(target, Vector):
        return next((marker for marker, packed in _PACKED_VECTORS.items() if packed[0] == target.kind), _VECTOR_OBJECT)
    kinds = {list: _ARRAY, MixedArray: _ARRAY, Date: _DATE, Xml: _XML, bytes: _BYTE_ARRAY, Dictionary: _DICTIONARY}
    return kinds.get(type(target), _OBJECT)


def encoded(text: Text) -> bytes:
    """The UTF-8 bytes of a string; a lone surrogate raises EncodeError."""
    if isinstance(text, BadString):
        return text.raw
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"string cannot be encoded as UTF-8: {error.reason}") from error


def double(number: float) -> bytes:
    """The eight bytes of a number; an int may be too large, which raises EncodeError."""
    try:
        return _DOUBLE_BE.pack(number)
    except (OverflowError, struct.error) as error:
        raise EncodeError(f"not an AMF number: {error}") from error
