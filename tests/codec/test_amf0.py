"""AMF0: properties for arbitrary bytes and values, and the limits that protect against hostile senders."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec import amf0
from rtmp_spark.codec.amf import (
    UNDEFINED,
    UNSUPPORTED,
    AmfObject,
    BadString,
    Date,
    Dictionary,
    EcmaArray,
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
from rtmp_spark.codec.limits import DEFAULT_LIMITS, Limits

NUMBERS = st.floats(allow_nan=False)
TEXTS = st.one_of(st.text(max_size=12), st.binary(max_size=6).map(lambda raw: BadString(b"\xff" + raw)))
SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    st.sampled_from([UNDEFINED, UNSUPPORTED]),
    st.builds(Date, NUMBERS, st.integers(-720, 720)),
    st.builds(Xml, TEXTS),
    st.binary(max_size=8),
    st.builds(Vector, st.just("int"), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3), st.booleans()),
)


def containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    pairs = st.lists(st.tuples(TEXTS, inner), max_size=4)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.builds(AmfObject, pairs),
        st.builds(EcmaArray, pairs),
        st.builds(TypedObject, TEXTS, pairs),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=8)
# Markers and small lengths are frequent, so that the parser accepts more of the random bytes.
AMF_LIKE = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from(["000009", "03", "0800000001", "0a00000002", "110a0b01"]).map(bytes.fromhex),
        st.sampled_from(["000161", "02000162", "05", "0101", "003ff0000000000000", "070000"]).map(bytes.fromhex),
    ),
    max_size=12,
).map(b"".join)


def codes(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ViolationCode]:
    return [code for code, _, _ in amf0.read_values(data, limits).violations]


def nodes_of(tagged: Any) -> int:
    pending, count = [tagged], 0
    while pending:
        item = pending.pop()
        count += 1
        if isinstance(item, (list, dict)):
            pending += item.values() if isinstance(item, dict) else item
    return count


@given(st.one_of(st.binary(max_size=80), AMF_LIKE))
def test_any_bytes_give_values_or_a_decode_error(data: bytes) -> None:
    reading = amf0.read_values(data)
    assert all(0 <= offset <= len(data) for _, offset, _ in reading.violations)
    json.dumps(to_json(reading.values), allow_nan=False)
    try:
        assert repr(amf0.parse_values(data)) == repr(reading.values)
    except DecodeError as error:
        assert error.code in codes(data)


@given(st.one_of(st.binary(max_size=80), AMF_LIKE))
def test_the_fast_path_gives_the_same_values(data: bytes) -> None:
    fast = amf0.read_values(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amf0, "_plain_values", lambda reader, pos: pos)
        patch.setattr(amf0, "_plain_properties", lambda data, pos, pairs, most: pos)
        careful = amf0.read_values(data)
    assert repr(fast.values) == repr(careful.values)
    assert fast.violations == careful.violations


@given(st.lists(VALUES, max_size=4))
def test_dumped_values_are_parsed_unchanged(values: list[Value]) -> None:
    assert amf0.read_values(amf0.dump_values(values)).values == values


@given(VALUES)
def test_tagged_json_keeps_the_value(value: Value) -> None:
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_truncation_keeps_the_values_before_the_cut(values: list[Value], data: st.DataObject) -> None:
    whole = amf0.dump_values(values)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    kept = amf0.read_values(cut).values
    assert len(kept) <= len(values)
    assert kept[:-1] == values[: max(len(kept) - 1, 0)]


@pytest.mark.parametrize(
    ("first", "level"),
    [("", "0a00000001"), ("", "03000161"), ("", "0800000001000161"), ("", "100000000161"), ("11", "090301")],
)
@pytest.mark.parametrize("depth", [1_000, 300_000])
def test_deep_nesting_is_refused_without_recursion(first: str, level: str, depth: int) -> None:
    data = b"\x02\x00\x01x" + bytes.fromhex(first) + bytes.fromhex(level) * depth
    reading = amf0.read_values(data)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_DEPTH]
    assert reading.values[0] == "x"
    json.dumps(to_json(reading.values))


def test_depth_64_is_parsed_and_65_is_refused() -> None:
    assert codes(b"\x0a\x00\x00\x00\x01" * 64 + b"\x05") == []
    assert codes(b"\x0a\x00\x00\x00\x01" * 65 + b"\x05") == [ViolationCode.AMF_DEPTH]


@pytest.mark.parametrize(
    "data",
    [
        b"\x05" * 65_537,
        b"\x0a\x00\x01\x00\x01" + b"\x05" * 65_537,
        b"\x03" + b"\x00\x01a\x05" * 65_537 + b"\x00\x00\x09",
        b"\x03" + b"\x00\x01a\x01\x01" * 65_537 + b"\x00\x00\x09",
        b"\x03\x00\x00\x09" * 65_537,
        b"\x11\x09\x87\xff\x7f\x01" + b"\x01" * 0x1FFFF,
    ],
)
def test_the_number_of_values_is_bounded(data: bytes) -> None:
    reading = amf0.read_values(data)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_LIMIT]
    assert nodes_of(to_json(reading.values)) < 4 * DEFAULT_LIMITS.amf_nodes


def test_the_largest_allowed_number_of_values() -> None:
    assert codes(b"\x0a\x00\x00\x00\x03" + b"\x05" * 3, Limits(amf_nodes=4)) == []
    assert codes(b"\x0a\x00\x00\x00\x03" + b"\x05" * 3, Limits(amf_nodes=3)) == [ViolationCode.AMF_LIMIT]


def test_references_that_multiply_hit_the_limit() -> None:
    levels = 12  # each array holds ten times the one before: 10^12 values when written out
    data = b"\x0a\x00\x00\x00\x0a" + b"\x05" * 10
    data += b"".join(b"\x0a\x00\x00\x00\x0a" + (b"\x07" + level.to_bytes(2, "big")) * 10 for level in range(levels))
    reading = amf0.read_values(data)
    assert [code for code, _, _ in reading.violations] == [ViolationCode.AMF_LIMIT]
    assert nodes_of(to_json(reading.values)) < 4 * DEFAULT_LIMITS.amf_nodes


def test_the_depth_of_a_chain_of_references_is_bounded() -> None:
    links = b"".join(b"\x0a\x00\x00\x00\x01\x07" + max(link - 1, 0).to_bytes(2, "big") for link in range(300))
    reading = amf0.read_values(links)
    json.dumps(to_json(reading.values))
    assert reading.values[5] == [Reference(4)]


def test_a_reference_keeps_its_target() -> None:
    first, second = amf0.parse_values(b"\x03\x00\x01a\x05\x00\x00\x09\x07\x00\x00")
    assert isinstance(second, Reference)
    assert second.target is first


def test_a_reference_before_its_target_is_dumped_as_the_target() -> None:
    obj = AmfObject([("a", 1.0)])
    values = amf0.parse_values(amf0.dump_values([Reference(3, target=obj), Reference(3, target=obj)]))
    assert to_json_values(values) == [{"a": 1}, {"a": 1}]


def doubling_arrays(levels: int) -> bytes:
    """An array, then arrays that each refer twice to the one before."""
    data = b"\x0a\x00\x00\x00\x01\x05"
    return data + b"".join(b"\x0a\x00\x00\x00\x02" + (b"\x07" + i.to_bytes(2, "big")) * 2 for i in range(levels))


def test_the_second_occurrence_in_an_argument_is_a_reference() -> None:
    first, second = to_json_values(amf0.parse_values(doubling_arrays(1)))
    assert first == [None]
    assert second == [[None], {"$ref": 0}]


@pytest.mark.parametrize("levels", [13, 60])
def test_the_json_of_references_grows_with_the_message(levels: int) -> None:
    inside = doubling_arrays(levels)
    data = b"\x0a" + (levels + 1).to_bytes(4, "big")
    # In one array, and as arguments; the indices of the nested arrays are one higher.
    nested = data + inside.replace(b"\x07\x00", b"\x07\x01")
    for message in (inside, nested, doubling_arrays(3) + b"\x07\x00\x03" * 5000):
        written = json.dumps(to_json_values(amf0.read_values(message).values))
        assert len(written) < 40 * len(message)


def test_the_last_of_several_equal_names_is_found() -> None:
    (obj,) = amf0.parse_values(bytes.fromhex("03 0001 61 0101 0001 61 0100 000009"))
    assert isinstance(obj, AmfObject)
    assert obj["a"] is False
    assert obj.get("b", "none") == "none"
    assert "b" not in obj
    with pytest.raises(KeyError):
        obj["b"]


def test_parse_value_returns_the_end_offset() -> None:
    reading = amf0.read_value(bytes.fromhex("ff 03 0001 61 05 000009 0001 62"), 1)
    assert (to_json(reading.values), reading.end, reading.violations) == ([{"a": None}], 9, [])


def test_the_error_contains_the_values_parsed_before_it() -> None:
    with pytest.raises(amf0.AmfError) as caught:
        amf0.parse_values(bytes.fromhex("02 0001 61 0a 00000001 ff"))
    assert (caught.value.code, caught.value.offset, caught.value.values) == (ViolationCode.AMF_MARKER, 9, ["a", []])


def test_a_plain_dict_is_an_object() -> None:
    # protocol notes, section 3: {a:{b:1}}
    assert amf0.dump_values([{"a": {"b": 1}}]).hex() == "0300016103000162003ff0000000000000000009000009"


def test_a_string_over_65535_bytes_is_a_long_string() -> None:
    assert amf0.dump_values(["a" * 65_535])[:3] == b"\x02\xff\xff"
    assert amf0.dump_values(["a" * 65_536])[:5] == b"\x0c\x00\x01\x00\x00"


@pytest.mark.parametrize("value", [object(), {1: 2}, {"k" * 65_536: 1}, "\ud800", 10**400, 1j])
def test_values_that_amf0_cannot_represent(value: object) -> None:
    with pytest.raises(EncodeError):
        amf0.dump_values([value])


def test_a_value_that_contains_itself_cannot_be_dumped() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeError):
        amf0.dump_values([endless])


@pytest.mark.parametrize(
    "tagged",
    [{"$date": "x", "tz": 0}, {"$date": 1}, {"$nothing": 1}, {"$bytes": "zz"}, {"$vector": "odd"}, {"$xml": 3}, {1}],
)
def test_malformed_tagged_json(tagged: Any) -> None:
    with pytest.raises(EncodeError):
        from_json(tagged)


def test_every_tag_of_the_tagged_json() -> None:
    # one of each, as the format of golden vectors writes them
    for value, tagged in (
        (math.inf, {"$number": "Infinity"}),
        (UNDEFINED, {"$undefined": True}),
        (UNSUPPORTED, {"$unsupported": True}),
        (AmfObject([("a", 1), ("a", 2)]), {"$pairs": [["a", 1], ["a", 2]]}),
        (EcmaArray([("a", 1), ("a", 2)]), {"$ecma": {"$pairs": [["a", 1], ["a", 2]]}}),
        (AmfObject([(BadString(b"\xff"), None)]), {"$pairs": [[{"$badstring": "ff"}, None]]}),
        (AmfObject([("$a", 1)]), {"$$a": 1}),
        (MixedArray([1], AmfObject([("a", 2)])), {"$array": [1], "assoc": {"a": 2}}),
        (Date(5.0, 60), {"$date": 5, "tz": 60}),
        (Xml("<a/>"), {"$xml": "<a/>"}),
        (TypedObject("C", [("a", 1)]), {"$class": "C", "value": {"a": 1}}),
        (Reference(7), {"$ref": 7}),
        (b"\x01", {"$bytes": "01"}),
        (Vector("uint", [1], True), {"$vector": "uint", "fixed": True, "items": [1]}),
        (Dictionary([(1, "a")]), {"$dictionary": [[1, "a"]]}),
        (External("C", b"\x02"), {"$external": "C", "bytes": "02"}),
    ):
        assert to_json(value) == tagged
        assert from_json(tagged) == value
    assert math.isnan(from_json({"$number": "NaN"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("ms", ["7ff8000000000000", "7ff0000000000000", "fff0000000000000"])
def test_a_date_that_is_no_number_is_reported(ms: str) -> None:
    assert codes(bytes.fromhex(f"0b {ms} 0000")) == [ViolationCode.AMF_DATE]
    assert codes(bytes.fromhex(f"11 08 01 {ms}")) == [ViolationCode.AMF_DATE]
