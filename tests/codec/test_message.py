"""Control bodies and aggregates: cases that the vectors do not cover, and properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmp_spark.codec import message
from rtmp_spark.codec.errors import EncodeError, ViolationCode

U32 = st.integers(0, 0xFFFFFFFF)
PART = st.tuples(st.integers(0, 255).filter(lambda type_id: type_id != 22), U32, st.binary(max_size=40))


@given(st.sampled_from(sorted(message.CONTROL_TYPES)), st.binary(max_size=60))
def test_arbitrary_control_bodies_are_parsed(type_id: int, payload: bytes) -> None:
    control = message.parse_control(type_id, payload)
    assert all(isinstance(code, ViolationCode) for code, _ in control.violations)
    wrong_length = ViolationCode.CTRL_LENGTH in [code for code, _ in control.violations]
    if type_id != message.USER_CONTROL:
        assert wrong_length == (len(payload) != (5 if type_id == message.SET_PEER_BANDWIDTH else 4))


@given(st.integers(1, 0xFFFFFFFF), st.integers(0, 2), U32, U32)
def test_dumped_bodies_are_parsed_unchanged(window: int, limit_type: int, stream_id: int, number: int) -> None:
    def read(type_id: int, payload: bytes) -> dict[str, Any]:
        control = message.parse_control(type_id, payload)
        assert not control.violations
        return {name: value for name, value in control._asdict().items() if value is not None and name != "violations"}

    assert read(3, message.dump_acknowledgement(number)) == {"kind": "acknowledgement", "value": number}
    assert read(5, message.dump_window_ack_size(window)) == {"kind": "window_ack_size", "value": window}
    assert read(6, message.dump_set_peer_bandwidth(window, limit_type)) == {
        "kind": "set_peer_bandwidth", "value": window, "limit_type": limit_type,
    }  # fmt: skip
    assert read(4, message.dump_stream_event(message.STREAM_EOF, stream_id)) == {
        "kind": "stream_eof", "event_type": 1, "event_stream_id": stream_id,
    }  # fmt: skip
    assert read(4, message.dump_set_buffer_length(stream_id, number)) == {
        "kind": "set_buffer_length", "event_type": 3, "event_stream_id": stream_id, "event_value": number,
    }  # fmt: skip
    assert read(4, message.dump_ping_response(number)) == {
        "kind": "ping_response", "event_type": 7, "event_value": number,
    }  # fmt: skip
    assert read(4, message.dump_swf_verify_response(number, bytes(32)))["kind"] == "swf_verify_response"


def test_an_acknowledgement_wraps_at_32_bits() -> None:
    assert message.dump_acknowledgement(0x1_0000_0005) == bytes.fromhex("00000005")


@pytest.mark.parametrize(
    ("announced", "in_effect"), [(4096, 4096), (0, 300), (0x80001000, 4096), (0x80000000, 300), (0x7FFFFFFF, 0xFFFFFF)]
)
def test_the_chunk_size_in_effect(announced: int, in_effect: int) -> None:
    control = message.parse_control(message.SET_CHUNK_SIZE, announced.to_bytes(4, "big"))
    assert message.chunk_size_in_effect(control, 300) == in_effect


def test_an_unreadable_chunk_size_changes_nothing() -> None:
    control = message.parse_control(message.SET_CHUNK_SIZE, b"\x10")
    assert message.chunk_size_in_effect(control, 300) == 300


@pytest.mark.parametrize(
    "call",
    [
        lambda: message.dump_set_chunk_size(0),
        lambda: message.dump_set_chunk_size(0x80000000),
        lambda: message.dump_abort(1),
        lambda: message.dump_abort(65600),
        lambda: message.dump_window_ack_size(0),
        lambda: message.dump_window_ack_size(1 << 32),
        lambda: message.dump_set_peer_bandwidth(0, 2),
        lambda: message.dump_set_peer_bandwidth(1, 3),
        lambda: message.dump_stream_event(message.PING_REQUEST, 1),
        lambda: message.dump_stream_event(message.STREAM_BEGIN, -1),
        lambda: message.dump_swf_verify_request(256),
        lambda: message.dump_swf_verify_response(1, b"short"),
        lambda: message.dump_aggregate([(22, 0, b"")]),
        lambda: message.dump_aggregate([(8, 0, bytes(0x1000000))]),
    ],
)
def test_illegal_values_are_not_dumped(call: Any) -> None:
    with pytest.raises(EncodeError):
        call()


@given(st.lists(PART, min_size=1, max_size=6), st.integers(0, 1 << 40))
def test_an_aggregate_is_split_as_it_was_joined(parts: list[tuple[int, int, bytes]], timestamp: int) -> None:
    aggregate = message.parse_aggregate(message.dump_aggregate(parts), timestamp)
    assert not aggregate.violations
    assert [(part.type_id, part.payload) for part in aggregate.parts] == [(kind, body) for kind, _, body in parts]
    for part, (_, time, _) in zip(aggregate.parts, parts):
        assert (part.timestamp - timestamp - (time - parts[0][1])) % (1 << 32) == 0
        assert abs(part.timestamp - timestamp) <= 1 << 31


@given(st.binary(max_size=80), U32)
def test_arbitrary_aggregates_are_parsed(payload: bytes, timestamp: int) -> None:
    aggregate = message.parse_aggregate(payload, timestamp)
    assert all(payload[part.start : part.end] == part.payload for part in aggregate.parts)
    read = sum(11 + len(part.payload) + 4 for part in aggregate.parts)
    assert read == len(payload) or aggregate.violations


def test_the_cost_of_a_long_aggregate_is_linear() -> None:
    parts = [(8, 0, b"")] * 20_000
    assert len(message.parse_aggregate(message.dump_aggregate(parts), 0).parts) == len(parts)
