"""AMF0, the encoding of ActionScript 1 and 2 (AMF 0 specification, 2007): bytes to values and back.

The reader is one loop with its own stack: any nesting is safe, and the most frequent markers (strings, numbers,
objects) cost no call. Of truncated data, everything before the end is kept. `amf3` reads what follows marker 0x11. A
count is compared with the remaining bytes before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from . import amf3
from .amf import (
    UNDEFINED,
    UNSUPPORTED,
    AmfError,
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
    Text,
    TypedObject,
    Value,
    Vector,
    Xml,
    from_json,
    resolve,
    to_json,
    to_json_values,
)
from .errors import DecodeError, EncodeError, ViolationCode
from .limits import DEFAULT_LIMITS, MAX_DEPTH, Limits

__all__ = [
    "UNDEFINED", "UNSUPPORTED", "AmfError", "AmfObject", "BadString", "Date", "Dictionary", "EcmaArray", "External",
    "MixedArray", "Reading", "Reference", "TypedObject", "Value", "Vector", "Xml", "dump_values", "from_json",
    "parse_values", "read_value", "read_values", "resolve", "to_json", "to_json_values",
]  # fmt: skip

(_NUMBER, _BOOLEAN, _STRING, _OBJECT, _MOVIECLIP, _NULL, _UNDEFINED, _REFERENCE, _ECMA_ARRAY, _OBJECT_END,
 _STRICT_ARRAY, _DATE, _LONG_STRING, _UNSUPPORTED, _RECORDSET, _XML, _TYPED_OBJECT, _AMF3) = range(0x12)  # fmt: skip

_VALUE_MARKERS = frozenset(range(0x12)) - {_MOVIECLIP, _OBJECT_END, _RECORDSET}
_CONTAINERS = frozenset((_OBJECT, _ECMA_ARRAY, _STRICT_ARRAY, _TYPED_OBJECT))
_DOUBLE_BE = struct.Struct(">d")
_double = _DOUBLE_BE.unpack_from
_DATE_BE = struct.Struct(">dh")
_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_END = b"\x00\x00\x09"
_PADDING = frozenset((_END, *(bytes(length) for length in range(1, 9))))
_UNCOUNTED = -1  # count of a container that an end marker closes, and of the message itself
_END_REPORTED = (ViolationCode.AMF_OBJECT_END, ViolationCode.AMF_LIMIT)
_AMF3_ONLY = (bytes, bytearray, MixedArray, Vector, Dictionary, External)


def read_values(data: bytes, limits: Limits = DEFAULT_LIMITS, start: int = 0, needed: int = 1) -> Reading:
    """Every value from `start` to the end of the data, and every violation; never raises.

    An invalid marker is an error inside a value and among the first `needed` values; after them it begins trailing
    bytes.
    """
    reader = _Reader(data, limits)
    reader.end = _plain_values(reader, start)
    if reader.end < len(data) or reader.unfinished is not None:
        _read_on(reader, needed, _UNCOUNTED)
    return reader


def read_value(data: bytes, start: int, limits: Limits = DEFAULT_LIMITS) -> Reading:
    """The value at `start`, and where it ends; never raises."""
    reader = _Reader(data, limits)
    reader.end = start
    _read_on(reader, 1, 1)
    return reader


def parse_values(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Value]:
    """Every value up to the end of the data. Raises `AmfError`, which holds what was read, if the data is damaged."""
    return read_values(data, limits).checked()


def _read_on(reader: _Reader, needed: int, count: int) -> None:
    try:
        reader.end = _read(reader, reader.end, needed, count)
    except amf3.EndOfMessage:
        reader.end = len(reader.data)
    except DecodeError as error:
        reader.end = len(reader.data)
        reader.stopped(error)


def _read(reader: _Reader, pos: int, needed: int, count: int) -> int:
    """Read from `pos` until there are `count` values, with every case handled."""
    data, values, objects = reader.data, reader.values, reader.objects
    size = len(data)
    deepest = reader.limits.amf_depth if reader.limits.amf_depth < MAX_DEPTH else MAX_DEPTH
    sink: list[Any] = values  # entries of the innermost open container: (name, value) if it is keyed, else values
    keyed = False
    stack: list[tuple[list[Any], bool, int]] = []  # the same of the containers around it
    key: Text = ""
    value: Value
    if reader.unfinished is not None:
        stack.append((sink, keyed, count))
        sink, keyed = reader.unfinished.pairs, True
    node = -1
    try:
        while True:
            node += 1
            while True:  # close containers that end here, then find the next value
                if keyed:
                    length = data[pos] << 8 | data[pos + 1] if pos < size else 0
                    at = pos + 2 + length
                    if at >= size:
                        pos = reader.end_missing(pos, length, len(sink) == count)
                    elif length or data[at] != _OBJECT_END:
                        key = reader.text(pos + 2, at)
                        break
                    else:
                        pos = at + 1
                elif len(sink) != count:
                    if not stack and count < 0 and (pos >= size or reader.trailing(pos, needed)):
                        return pos
                    at = pos
                    break
                elif not stack:
                    return pos
                sink, keyed, count = stack.pop()

            if node >= reader.nodes:
                raise DecodeError(ViolationCode.AMF_LIMIT, pos, f"more than {reader.limits.amf_nodes} values")
            marker = data[at]
            if marker == _STRING:
                end = at + 3 + (data[at + 1] << 8 | data[at + 2])
                value = reader.text(at + 3, end)
                pos = end
            elif marker == _NUMBER:
                value = _double(data, at + 1)[0]
                pos = at + 9
            elif marker in _CONTAINERS:
                stack.append((sink, keyed, count))
                if len(stack) > deepest:
                    raise DecodeError(ViolationCode.AMF_DEPTH, at, f"containers are nested deeper than {deepest}")
                if marker == _OBJECT:
                    value = AmfObject()
                    inner, count, pos = value.pairs, _UNCOUNTED, at + 1
                else:
                    value, inner, count, pos = reader.open(marker, at)
                sink.append((key, value) if keyed else value)
                objects.append(value)
                sink, keyed = inner, marker != _STRICT_ARRAY
                if keyed:
                    pos = _plain_properties(data, pos, inner, reader.nodes - node - 1)
                    reader.nodes -= len(inner)
                continue
            else:
                append = _under(sink, key) if keyed else sink.append
                pos = reader.rare(marker, at, node, append, len(stack) + 1)
                continue
            sink.append((key, value) if keyed else value)
    except (IndexError, struct.error):
        raise DecodeError(ViolationCode.AMF_TRUNCATED, pos, "the data ends inside a value") from None


def _plain_values(reader: _Reader, pos: int) -> int:
    """The fast path: scalars, and objects of scalars, which is what most commands consist of.

    Returns the position of the first value that is anything else, or damaged; `_read` continues there.
    """
    data, values = reader.data, reader.values
    size = len(data)
    try:
        for _ in range(reader.nodes):
            if pos >= size:
                break
            marker = data[pos]
            if marker == _STRING:
                end = pos + 3 + (data[pos + 1] << 8 | data[pos + 2])
                if end > size:
                    break
                values.append(data[pos + 3 : end].decode())
                pos = end
            elif marker == _NUMBER:
                values.append(_double(data, pos + 1)[0])
                pos += 9
            elif marker == _NULL:
                values.append(None)
                pos += 1
            elif marker == _OBJECT:
                value = AmfObject()
                values.append(value)
                reader.objects.append(value)
                pos = _plain_properties(data, pos + 1, value.pairs, reader.nodes)
                reader.nodes -= len(value.pairs)
                if data[pos : pos + 3] != _END:
                    reader.unfinished = value
                    break
                pos += 3
            else:
                break
    except (IndexError, UnicodeDecodeError, struct.error):
        pass
    reader.nodes -= len(values)
    return pos


def _plain_properties(data: bytes, pos: int, pairs: list[tuple[Text, Value]], most: int) -> int:
    """The fast path for the properties of an object; returns the position of the first one it did not read."""
    append = pairs.append
    size = len(data)
    try:
        for _ in range(most):
            if data[pos]:
                break
            at = pos + 2 + data[pos + 1]
            marker = data[at]
            if marker == _STRING:
                end = at + 3 + data[at + 2]
                if data[at + 1]:
                    end += data[at + 1] << 8
                if end > size:
                    break
                append((data[pos + 2 : at].decode(), data[at + 3 : end].decode()))
                pos = end
            elif marker == _NUMBER:
                append((data[pos + 2 : at].decode(), _double(data, at + 1)[0]))
                pos = at + 9
            elif marker == _BOOLEAN:
                append((data[pos + 2 : at].decode(), data[at + 1] != 0))
                pos = at + 2
            else:
                break
    except (IndexError, UnicodeDecodeError, struct.error):
        pass
    return pos


def _under(pairs: list[Any], key: Text) -> amf3.Append:
    return lambda value: pairs.append((key, value))


def _children(container: Value) -> list[Value]:
    if isinstance(container, AmfObject):
        return [value for _, value in container.pairs]
    return container if isinstance(container, list) else []


class _Reader(Reading):
    """The rare cases: containers, uncommon markers, the reference table, AMF3, and violations."""

    __slots__ = ("data", "limits", "nodes", "objects", "tables", "unfinished", "weights")

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.values = []
        self.violations = []
        self.data = data
        self.limits = limits
        self.nodes = limits.amf_nodes  # minus those that the fast path, references and AMF3 used
        self.unfinished: AmfObject | None = None  # left open by the fast path
        self.tables: amf3.Reader | None = None  # created for the first AMF3 value
        self.objects: list[Value] = []
        self.weights: dict[int, int] = {}  # id of a referenced object -> nodes of its expansion

    def open(self, marker: int, at: int) -> tuple[Value, list[Any], int, int]:
        """The container at `at`, the list of its entries, the announced number of entries, and where they start."""
        if marker == _TYPED_OBJECT:
            begin = at + 3
            end = begin + _UINT16.unpack_from(self.data, at + 1)[0]
            typed = TypedObject(self.text(begin, end))
            return typed, typed.pairs, _UNCOUNTED, end
        count: int = _UINT32.unpack_from(self.data, at + 1)[0]
        left = len(self.data) - at - 5
        excess = AmfViolation(ViolationCode.AMF_LIMIT, at, f"array of {count} entries, but only {left} bytes remain")
        if marker == _ECMA_ARRAY:
            if count > left:  # the count is only a hint, so reading can continue
                self.violations.append(excess)
            array = EcmaArray()
            return array, array.pairs, count or _UNCOUNTED, at + 5  # many senders announce 0
        if count > left or count > self.limits.amf_nodes:
            raise DecodeError(*excess)
        items: list[Value] = []
        return items, items, count, at + 5

    def rare(self, marker: int, at: int, node: int, append: amf3.Append, depth: int) -> int:
        """Read a value with an uncommon marker that is not a container; return the position after it."""
        if marker == _NULL:
            append(None)
        elif marker == _BOOLEAN:
            append(self.data[at + 1] != 0)
            return at + 2
        elif marker == _UNDEFINED:
            append(UNDEFINED)
        elif marker == _UNSUPPORTED:
            append(UNSUPPORTED)
        elif marker == _REFERENCE:
            append(self._reference(at, node, depth - 1))
            return at + 3
        elif marker == _DATE:
            date = Date(*_DATE_BE.unpack_from(self.data, at + 1))
            self.violations += amf3.date_violations(date, at)
            append(date)
            return at + 11
        elif marker in (_LONG_STRING, _XML):
            length: int = _UINT32.unpack_from(self.data, at + 1)[0]
            if length > self.limits.message_bytes:
                raise DecodeError(ViolationCode.AMF_LIMIT, at, f"string of {length} bytes exceeds a message")
            text = self.text(at + 5, at + 5 + length)
            append(Xml(text) if marker == _XML else text)
            return at + 5 + length
        elif marker == _AMF3:
            return self._amf3_value(at + 1, node, append, depth)
        else:
            raise DecodeError(ViolationCode.AMF_MARKER, at, f"unknown AMF0 marker 0x{marker:02x}")
        return at + 1

    def _reference(self, at: int, node: int, around: int) -> Reference:
        index: int = _UINT16.unpack_from(self.data, at + 1)[0]
        if index >= len(self.objects):
            detail = f"reference to object {index}, but only {len(self.objects)} precede it"
            self.violations.append(AmfViolation(ViolationCode.AMF_REFERENCE, at, detail))
            return Reference(index)
        target = self.objects[index]
        self.nodes -= 0 if self._is_open(target, around) else self._weight(target)
        if self.nodes < node:
            raise DecodeError(ViolationCode.AMF_LIMIT, at, f"more than {self.limits.amf_nodes} values with references")
        return Reference(index, False, target)

    def _is_open(self, target: Value, around: int) -> bool:
        """True if the value being read is inside the target: a cycle, which is not expanded."""
        container: Any = self.values[-1]
        for level in range(around):
            if level:
                container = container.pairs[-1][1] if isinstance(container, AmfObject) else container[-1]
            if container is target:
                return True
        return False

    def _weight(self, target: Value) -> int:
        if type(target) is Reference:
            return self.weights.get(id(target.target), 1)
        if not isinstance(target, (list, AmfObject)):
            return 1
        if id(target) not in self.weights:
            self.weights[id(target)] = 1 + sum(map(self._weight, _children(target)))
        return self.weights[id(target)]

    def _amf3_value(self, at: int, node: int, append: amf3.Append, depth: int) -> int:
        if self.tables is None:
            self.tables = amf3.Reader(self.data, at, self.limits, self.violations)
        reader = self.tables
        reader.pos, reader.nodes_left = at, self.nodes - node
        reader.read(append, depth)
        self.nodes = reader.nodes_left + node + 1  # the loop counts the value itself
        return reader.pos

    def text(self, begin: int, end: int) -> Text:
        data = self.data
        if end > len(data):
            raise DecodeError(ViolationCode.AMF_TRUNCATED, begin, "the data ends inside a string")
        try:
            return data[begin:end].decode()
        except UnicodeDecodeError as error:
            self.violations.append(
                AmfViolation(ViolationCode.AMF_UTF8, begin + error.start, f"string is not UTF-8: {error.reason}")
            )
            return BadString(data[begin:end])

    def trailing(self, at: int, needed: int) -> bool:
        """True if the bytes after the values are not a value: an invalid marker, padding, or one more object end."""
        data = self.data
        left = len(data) - at
        if len(self.values) < needed or (data[at] in _VALUE_MARKERS and (left > 8 or data[at:] not in _PADDING)):
            return False
        self.violations.append(AmfViolation(ViolationCode.AMF_TRAILING, at, f"{left} bytes after the last value"))
        return True

    def end_missing(self, pos: int, length: int, all_there: bool) -> int:
        """Report a missing end marker, or a name that is too long; return the position where the object ends."""
        if length and not all_there:
            raise DecodeError(ViolationCode.AMF_TRUNCATED, pos, "the data ends inside a property")
        if not self.violations or self.violations[-1].code not in _END_REPORTED:  # one cause, one finding
            self.violations.append(AmfViolation(ViolationCode.AMF_OBJECT_END, pos, "object without an end marker"))
        return pos if length else len(self.data)

    def stopped(self, error: DecodeError) -> None:
        if self.violations and self.violations[-1].code in _END_REPORTED and error.code is ViolationCode.AMF_TRUNCATED:
            if self.violations[-1].code is ViolationCode.AMF_LIMIT:
                return
            self.violations.pop()  # the array around that object is truncated as well: one cause, one finding
        self.violations.append(AmfViolation(error.code, error.offset, error.detail))


def dump_values(values: Iterable[object]) -> bytes:
    writer = _Writer()
    for value in values:
        writer.write(value, 1)
    return bytes(writer.out)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self._objects: dict[int, int] = {}  # id of a written object -> its index
        self._amf3 = amf3.Writer()
        self._amf3.out = self.out

    def write(self, value: object, depth: int) -> None:
        out = self.out
        if value is None:
            out.append(_NULL)
        elif isinstance(value, bool):
            out += b"\x01\x01" if value else b"\x01\x00"
        elif isinstance(value, (int, float)):
            out.append(_NUMBER)
            out += amf3.double(value)
        elif isinstance(value, (str, BadString)):
            raw = amf3.encoded(value)
            if len(raw) > 0xFFFF:
                self._long_text(_LONG_STRING, raw)
            else:
                out.append(_STRING)
                self._short_text(raw)
        elif value is UNDEFINED:
            out.append(_UNDEFINED)
        elif value is UNSUPPORTED:
            out.append(_UNSUPPORTED)
        elif isinstance(value, Date):
            out.append(_DATE)
            out += amf3.double(value.ms)
            if not -0x8000 <= value.tz < 0x8000:
                raise EncodeError(f"time zone {value.tz} does not fit in 16 bits")
            out += value.tz.to_bytes(2, "big", signed=True)
        elif isinstance(value, Xml):
            self._long_text(_XML, amf3.encoded(value.text))
        elif isinstance(value, Reference):
            self._reference(value, depth)
        elif isinstance(value, _AMF3_ONLY):
            out.append(_AMF3)
            self._amf3.write(value, depth)
        else:
            if depth > MAX_DEPTH:
                raise EncodeError(f"AMF value is nested deeper than {MAX_DEPTH}")
            self._objects[id(value)] = len(self._objects)
            self._container(value, depth + 1)

    def _container(self, value: object, depth: int) -> None:
        out = self.out
        if isinstance(value, (list, tuple)):
            out.append(_STRICT_ARRAY)
            out += _UINT32.pack(len(value))
            for item in value:
                self.write(item, depth)
        elif isinstance(value, AmfObject):
            if isinstance(value, EcmaArray):
                out.append(_ECMA_ARRAY)
                out += _UINT32.pack(len(value))
            elif isinstance(value, TypedObject):
                out.append(_TYPED_OBJECT)
                self._short_text(amf3.encoded(value.class_name))
            else:
                out.append(_OBJECT)
            self._properties(value.pairs, depth)
        elif isinstance(value, Mapping):
            out.append(_OBJECT)
            self._properties(value.items(), depth)
        else:
            raise EncodeError(f"{type(value).__name__} is not an AMF0 value")

    def _properties(self, pairs: Iterable[tuple[Text, object]], depth: int) -> None:
        for key, value in pairs:
            if not isinstance(key, (str, BadString)):
                raise EncodeError(f"{type(key).__name__} is not a property name")
            self._short_text(amf3.encoded(key))
            self.write(value, depth)
        self.out += _END

    def _reference(self, value: Reference, depth: int) -> None:
        if value.amf3:
            self.out.append(_AMF3)
            self._amf3.write(value, depth)
            return
        index = value.index if value.target is None else self._objects.get(id(value.target))
        if index is None:
            self.write(value.target, depth)
        elif index > 0xFFFF:
            raise EncodeError(f"AMF0 cannot reference object {index}; the maximum is 65535")
        else:
            self.out.append(_REFERENCE)
            self.out += _UINT16.pack(index)

    def _short_text(self, raw: bytes) -> None:
        if len(raw) > 0xFFFF:
            raise EncodeError(f"a name of {len(raw)} bytes is too long for AMF0")
        self.out += _UINT16.pack(len(raw))
        self.out += raw

    def _long_text(self, marker: int, raw: bytes) -> None:
        self.out.append(marker)
        self.out += _UINT32.pack(len(raw))
        self.out += raw
