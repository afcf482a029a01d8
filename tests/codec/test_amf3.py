"""AMF3: properties over any bytes and any values, tables and limits."""

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
def test_what_is_dumped_is_read_again(values: list[Value]) -> None:
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
def test_integers_as_wide_as_they_need(number: int, wire: str) -> None:
    assert amf3.dump_values([number]).hex() == wire


def test_strings_go_by_reference_the_second_time() -> None:
    assert amf3.dump_values(["hello", "hello", "", ""]).hex() == "060b68656c6c6f060006010601"  # as Py3AMF writes it


@pytest.mark.parametrize(
    "wire",
    ["0903010900", "0a0b01056d650a0001", "080142702b3621158000 0800",
     "0c0361 0c00", "0d030000000001 0d00", "110100 1100"],
)  # fmt: skip
def test_references_are_written_as_they_were_read(wire: str) -> None:
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


def test_the_rest_belongs_to_an_externalizable_object() -> None:
    # an array of two whose first element is externalizable: where it ends, nobody knows
    reading = amf3.read_values(bytes.fromhex("09 05 01 0a 07 03 43 0401 0402"))
    assert reading.values == [[External("C", b"\x04\x01\x04\x02")]]
    assert reading.violations == []
    assert amf3.dump_values([External("C", b"\x04\x01")]).hex() == "0a0703430401"


@pytest.mark.parametrize("level", ["090301", "0a0b010361", "1003 00 01", "110300 01"])
def test_nesting_is_refused_and_not_followed(level: str) -> None:
    reading = amf3.read_values(bytes.fromhex(level) * 300_000)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_DEPTH]
    json.dumps(to_json(reading.values))


@pytest.mark.parametrize(
    "wire", ["09 ffffff7f 01", "0d ffffff7f 00", "10 ffffff7f 00 01", "11 ffffff7f 00", "0a ffffff73 01"]
)
def test_counts_are_held_against_the_bytes_that_remain(wire: str) -> None:
    (violation,) = amf3.read_values(bytes.fromhex(wire)).violations
    assert violation.code is ViolationCode.AMF_LIMIT


def test_names_without_values_are_bounded_too() -> None:
    # 200,000 sealed names of one byte each, for an object whose values never come
    reading = amf3.read_values(bytes.fromhex("0a c3 d0 80 03 01".replace(" ", "")) + b"\x01" * 300_000)
    assert ViolationCode.AMF_LIMIT in [code for code, _, _ in reading.violations]


def test_references_that_multiply_hit_the_limit() -> None:
    data = b"\x09\x15\x01" + b"\x01" * 10
    data += b"".join(b"\x09\x15\x01" + bytes((0x09, level << 1)) * 10 for level in range(12))
    reading = amf3.read_values(data)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_LIMIT]
    assert len(json.dumps(to_json(reading.values))) < 4_000_000


@pytest.mark.parametrize(
    "value", [object(), UNSUPPORTED, Vector("int", ["a"]), Vector("int", [1 << 40]), {1: 2}, "\ud800", 10**400]
)
def test_what_amf3_cannot_say(value: object) -> None:
    with pytest.raises(EncodeError):
        amf3.dump_values([value])


def test_an_empty_name_cannot_be_an_array_element() -> None:
    with pytest.raises(EncodeError):
        amf3.dump_values([MixedArray([], AmfObject([("", 1)]))])
