"""AMF3: properties for arbitrary bytes and values, reference tables and limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec import amf3
from rtmp_spark.codec.amf import (
    UNDEFINED,
    UNSUPPORTED,
    AmfObject,
    BadString,
    Date,
    Dictionary,
    External,
    MixedArray,
    Reference,
    TypedObject,
    Value,
    Vector,
    Xml,
    from_json,
    to_json,
    to_json_values,
)
from rtmp_spark.codec.errors import DecodeError, EncodeError, ViolationCode

NUMBERS = st.floats(allow_nan=False)
TEXTS = st.one_of(st.text(max_size=12), st.binary(max_size=6).map(lambda raw: BadString(b"\xff" + raw)))
NAMES = TEXTS.filter(lambda text: text != "")
SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 30), 1 << 30),
    NUMBERS,
    TEXTS,
    st.just(UNDEFINED),
    st.builds(Date, NUMBERS),
    st.builds(Xml, TEXTS),
    st.binary(max_size=8),
    st.builds(Vector, st.just("int"), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3), st.booleans()),
    st.builds(Vector, st.just("uint"), st.lists(st.integers(0, (1 << 32) - 1), max_size=3), st.booleans()),
    st.builds(Vector, st.just("double"), st.lists(NUMBERS, max_size=3), st.booleans()),
)


def containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    named = st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3).map(AmfObject)
    pairs = st.lists(st.tuples(TEXTS, inner), max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.builds(MixedArray, st.lists(inner, max_size=3), named),
        st.builds(AmfObject, pairs),
        st.builds(TypedObject, NAMES, pairs),
        st.builds(Vector, st.just("object"), st.lists(inner, max_size=3), st.booleans()),
        st.builds(Dictionary, st.lists(st.tuples(inner, inner), max_size=3)),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=8)


@given(st.one_of(st.binary(max_size=80), st.lists(st.integers(0, 0x12), max_size=40).map(bytes)))
def test_any_bytes_give_values_or_a_decode_error(data: bytes) -> None:
    reading = amf3.read_values(data)
    assert all(0 <= offset <= len(data) for _, offset, _ in reading.violations)
    json.dumps(to_json(reading.values), allow_nan=False)
    try:
        assert repr(amf3.parse_values(data)) == repr(reading.values)
    except DecodeError as error:
        assert error.code in [code for code, _, _ in reading.violations]


@given(st.lists(VALUES, max_size=4))
def test_dumped_values_are_parsed_unchanged(values: list[Value]) -> None:
    assert amf3.read_values(amf3.dump_values(values)).values == values


@given(VALUES)
def test_tagged_json_keeps_the_value(value: Value) -> None:
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@pytest.mark.parametrize(
    ("number", "wire"),
    # the edges of each width: AMF3 1.3.1
    [(0x7F, "047f"), (0x80, "048100"), (0x3FFF, "04ff7f"), (0x4000, "04818000"), (0x1FFFFF, "04ffff7f"),
     (0x200000, "0480c08000"), (0xFFFFFFF, "04bfffffff"), (-1, "04ffffffff"), (-0x10000000, "04c0808000"),
     (0x10000000, "0541b0000000000000")],
)  # fmt: skip
def test_integers_use_the_shortest_encoding(number: int, wire: str) -> None:
    assert amf3.dump_values([number]).hex() == wire


def test_a_repeated_string_is_dumped_as_a_reference() -> None:
    assert amf3.dump_values(["hello", "hello", "", ""]).hex() == "060b68656c6c6f060006010601"  # as Py3AMF writes it


@pytest.mark.parametrize(
    "wire",
    ["0903010900", "0a0b01056d650a0001", "080142702b3621158000 0800",
     "0c0361 0c00", "0d030000000001 0d00", "110100 1100"],
)  # fmt: skip
def test_references_survive_parsing_and_dumping(wire: str) -> None:
    data = bytes.fromhex(wire)
    values = amf3.parse_values(data)
    assert amf3.dump_values(values) == data
    assert any(isinstance(value, Reference) for value in [*values, *_inside(values[0])])


def _inside(value: Value) -> list[Value]:
    if isinstance(value, AmfObject):
        return [item for _, item in value.pairs]
    return value if isinstance(value, list) else []


def test_a_sealed_property_may_have_an_empty_name() -> None:
    value = AmfObject([("", 1), ("a", 2)])
    assert amf3.parse_values(amf3.dump_values([value])) == [value]


def test_bytes_after_an_externalizable_object_are_not_parsed() -> None:
    # an array of two; the first element is externalizable, and its format does not state where it ends
    reading = amf3.read_values(bytes.fromhex("09 05 01 0a 07 03 43 0401 0402"))
    assert reading.values == [[External("C", b"\x04\x01\x04\x02")]]
    assert reading.violations == []
    assert amf3.dump_values([External("C", b"\x04\x01")]).hex() == "0a0703430401"


@pytest.mark.parametrize("level", ["090301", "0a0b010361", "1003 00 01", "110300 01"])
def test_deep_nesting_is_refused_without_recursion(level: str) -> None:
    reading = amf3.read_values(bytes.fromhex(level) * 300_000)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_DEPTH]
    json.dumps(to_json(reading.values))


@pytest.mark.parametrize(
    "wire", ["09 ffffff7f 01", "0d ffffff7f 00", "10 ffffff7f 00 01", "11 ffffff7f 00", "0a ffffff73 01"]
)
def test_counts_are_compared_with_the_remaining_bytes(wire: str) -> None:
    (violation,) = amf3.read_values(bytes.fromhex(wire)).violations
    assert violation.code is ViolationCode.AMF_LIMIT


def test_names_without_values_are_bounded_too() -> None:
    # 200,000 sealed names of one byte each, for an object without values
    reading = amf3.read_values(bytes.fromhex("0a c3 d0 80 03 01".replace(" ", "")) + b"\x01" * 300_000)
    assert ViolationCode.AMF_LIMIT in [code for code, _, _ in reading.violations]


def test_references_that_multiply_hit_the_limit() -> None:
    data = b"\x09\x15\x01" + b"\x01" * 10
    data += b"".join(b"\x09\x15\x01" + bytes((0x09, level << 1)) * 10 for level in range(12))
    reading = amf3.read_values(data)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_LIMIT]
    assert len(json.dumps(to_json(reading.values))) < 4_000_000


def _u29(number: int) -> bytes:
    return bytes((number >> 7 | 0x80, number & 0x7F)) if number > 0x7F else bytes((number,))


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"\x06" + _u29(2001) + b"s" * 1000, b"\x06\x00"),  # a string
        (b"\x0c" + _u29(2001) + b"s" * 1000, b"\x0c\x00"),  # a byte array
        (b"\x0a\x03" + _u29(2001) + b"s" * 1000, b"\x0a\x01"),  # an object of a class with a long name
        (b"\x0a\x13\x01" + _u29(2001) + b"s" * 1000 + b"\x01", b"\x0a\x01\x01"),  # with a property of a long name
        (b"\x09\x03\x01\x01", b"\x09\x00"),  # an array
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_the_json_of_references_grows_with_the_message(first: bytes, again: bytes, inside: bool) -> None:
    count = 8000
    data = first + again * count
    if inside:
        data = b"\x09" + _u29((count + 1) * 2 + 1) + b"\x01" + data.replace(b"\x09\x00", b"\x09\x02")
    reading = amf3.read_values(data)
    assert len(json.dumps(to_json_values(reading.values))) < 60 * len(data)
    assert {code for code, _, _ in reading.violations} <= {ViolationCode.AMF_LIMIT}


@pytest.mark.parametrize(
    "value", [object(), UNSUPPORTED, Vector("int", ["a"]), Vector("int", [1 << 40]), {1: 2}, "\ud800", 10**400]
)
def test_values_that_amf3_cannot_represent(value: object) -> None:
    with pytest.raises(EncodeError):
        amf3.dump_values([value])


def test_an_empty_name_cannot_be_an_array_element() -> None:
    with pytest.raises(EncodeError):
        amf3.dump_values([MixedArray([], AmfObject([("", 1)]))])
