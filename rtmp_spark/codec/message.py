"""Messages: the unit above chunks, their type ids, and the bodies of control messages and aggregates.

- To add a message type, give it a constant and a row in `TYPE_NAMES`.
- To add a user control event, give it a constant and a row in `USER_CONTROL_EVENTS`.

A type id is a plain int everywhere, because an unknown type is an observation here, not an error. Bodies are read as
far as possible and report their problems in `violations`; nothing here raises on peer bytes, and nothing here acts on a
control message: the decoder and the relay's session do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from .chunk.header import MAX_CSID
from .errors import EncodeError, ViolationCode
from .limits import CACHED_CONTROL_BYTES, CACHED_CONTROLS

SET_CHUNK_SIZE: Final = 1
ABORT: Final = 2
ACKNOWLEDGEMENT: Final = 3
USER_CONTROL: Final = 4
WINDOW_ACK_SIZE: Final = 5
SET_PEER_BANDWIDTH: Final = 6
AUDIO: Final = 8
VIDEO: Final = 9
DATA_AMF3: Final = 15
SHARED_OBJECT_AMF3: Final = 16
COMMAND_AMF3: Final = 17
DATA_AMF0: Final = 18
SHARED_OBJECT_AMF0: Final = 19
COMMAND_AMF0: Final = 20
AGGREGATE: Final = 22
COMMANDS: Final = frozenset({COMMAND_AMF0, COMMAND_AMF3})
OF_STREAMS: Final = frozenset({AUDIO, VIDEO, DATA_AMF0, DATA_AMF3, AGGREGATE})  # types that are published and played

# Every message type (RTMP 1.0 5.4, 6.2, 7.1); the names are the values of `messages.type_name`.
TYPE_NAMES: Final = {
    SET_CHUNK_SIZE: "set_chunk_size",
    ABORT: "abort",
    ACKNOWLEDGEMENT: "acknowledgement",
    USER_CONTROL: "user_control",
    WINDOW_ACK_SIZE: "window_ack_size",
    SET_PEER_BANDWIDTH: "set_peer_bandwidth",
    AUDIO: "audio",
    VIDEO: "video",
    DATA_AMF3: "data_amf3",
    SHARED_OBJECT_AMF3: "shared_object_amf3",
    COMMAND_AMF3: "command_amf3",
    DATA_AMF0: "data_amf0",
    SHARED_OBJECT_AMF0: "shared_object_amf0",
    COMMAND_AMF0: "command_amf0",
    AGGREGATE: "aggregate",
}

EVERY_TYPE: Final = frozenset(range(256))


def type_name(type_id: int) -> str:
    return TYPE_NAMES.get(type_id, "unknown")


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message, before it is split into chunks."""

    csid: int
    timestamp: int
    type_id: int
    stream_id: int
    payload: bytes


# User control events (RTMP 1.0 7.1.7; 26 and 27 SWF verification, 31 and 32 as Flash Media Server sends them).
STREAM_BEGIN, STREAM_EOF, STREAM_DRY, SET_BUFFER_LENGTH, STREAM_IS_RECORDED = range(5)
PING_REQUEST, PING_RESPONSE = 6, 7
SWF_VERIFY_REQUEST, SWF_VERIFY_RESPONSE = 26, 27
BUFFER_EMPTY, BUFFER_READY = 31, 32


class UserControlEvent(NamedTuple):
    """How a user control event is written: its name, its body after the event type, and its whole length."""

    kind: str
    body: str  # STREAM, VALUE, STREAM_AND_VALUE, BYTE or OPAQUE
    length: int


STREAM, VALUE, STREAM_AND_VALUE, BYTE, OPAQUE = "stream", "value", "stream_and_value", "byte", "opaque"

# Every user control event; `kind` is the value of `controls.kind`.
USER_CONTROL_EVENTS: Final = {
    STREAM_BEGIN: UserControlEvent("stream_begin", STREAM, 6),
    STREAM_EOF: UserControlEvent("stream_eof", STREAM, 6),
    STREAM_DRY: UserControlEvent("stream_dry", STREAM, 6),
    SET_BUFFER_LENGTH: UserControlEvent("set_buffer_length", STREAM_AND_VALUE, 10),
    STREAM_IS_RECORDED: UserControlEvent("stream_is_recorded", STREAM, 6),
    PING_REQUEST: UserControlEvent("ping_request", VALUE, 6),
    PING_RESPONSE: UserControlEvent("ping_response", VALUE, 6),
    SWF_VERIFY_REQUEST: UserControlEvent("swf_verify_request", BYTE, 3),
    SWF_VERIFY_RESPONSE: UserControlEvent("swf_verify_response", OPAQUE, 44),
    BUFFER_EMPTY: UserControlEvent("buffer_empty", STREAM, 6),
    BUFFER_READY: UserControlEvent("buffer_ready", STREAM, 6),
}

# The lengths that the body of each control message may have.
CONTROL_LENGTHS: Final = {
    SET_CHUNK_SIZE: frozenset({4}),
    ABORT: frozenset({4}),
    ACKNOWLEDGEMENT: frozenset({4}),
    USER_CONTROL: frozenset(event.length for event in USER_CONTROL_EVENTS.values()),
    WINDOW_ACK_SIZE: frozenset({4}),
    SET_PEER_BANDWIDTH: frozenset({5}),
}
CONTROL_TYPES: Final = frozenset(CONTROL_LENGTHS)
MAX_CHUNK_SIZE: Final = 0xFFFFFF  # RTMP 1.0 5.4.1: no message is longer, so all greater sizes are equal
DEFAULT_CHUNK_SIZE: Final = 128
LIMIT_HARD, LIMIT_SOFT, LIMIT_DYNAMIC = range(3)

_U32: Final = struct.Struct(">I")


class Control(NamedTuple):
    """The body of a message of type 1-6; the fields are the columns of the table `controls`.

    `value` of Set Chunk Size is the size without bit 31, neither clamped nor replaced if it is 0;
    `chunk_size_in_effect` gives the size of the sender's next chunk.
    """

    kind: str
    value: int | None = None
    limit_type: int | None = None
    event_type: int | None = None
    event_stream_id: int | None = None
    event_value: int | None = None
    violations: tuple[tuple[ViolationCode, str], ...] = ()


def parse_control(type_id: int, payload: bytes) -> Control:
    """Read a body of type 1-6; missing numbers are None."""
    if len(payload) <= CACHED_CONTROL_BYTES:
        return _parse_repeated(type_id, payload)
    return _parse_control(type_id, payload)


def _parse_control(type_id: int, payload: bytes) -> Control:
    if type_id == USER_CONTROL:
        return _parse_user_control(payload)
    violations: list[tuple[ViolationCode, str]] = []
    (expected,) = CONTROL_LENGTHS[type_id]
    if len(payload) != expected:
        detail = f"{type_name(type_id)} has {len(payload)} bytes instead of {expected}"
        violations.append((ViolationCode.CTRL_LENGTH, detail))
    value: int | None = _U32.unpack_from(payload)[0] if len(payload) >= 4 else None
    limit_type: int | None = None
    if type_id == SET_CHUNK_SIZE and value is not None:
        value = _check_chunk_size(value, violations)
    elif type_id in (WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH) and value == 0:
        violations.append((ViolationCode.CTRL_VALUE, f"{type_name(type_id)} 0 allows nothing to be sent"))
    if type_id == SET_PEER_BANDWIDTH and len(payload) >= 5:
        limit_type = payload[4]
        if limit_type > LIMIT_DYNAMIC:
            violations.append((ViolationCode.CTRL_LIMIT_TYPE, f"limit type {limit_type} is not 0, 1 or 2"))
    return Control(type_name(type_id), value, limit_type, violations=tuple(violations))


_parse_repeated = lru_cache(CACHED_CONTROLS)(_parse_control)  # connections repeat the same few


def chunk_size_in_effect(control: Control, current: int) -> int:
    """The chunk size after a Set Chunk Size; 0 or an unreadable body keeps the current one."""
    return min(control.value, MAX_CHUNK_SIZE) if control.value else current


def _check_chunk_size(raw: int, violations: list[tuple[ViolationCode, str]]) -> int:
    size = raw & 0x7FFFFFFF
    if raw != size:
        violations.append((ViolationCode.CHUNK_SIZE_BIT31, f"chunk size field {raw:#010x} has its top bit set"))
    if size == 0:
        violations.append((ViolationCode.CHUNK_SIZE_ZERO, "chunk size 0; the previous size stays in effect"))
    elif size > MAX_CHUNK_SIZE:
        violations.append((ViolationCode.CHUNK_SIZE_CLAMPED, f"chunk size {size} exceeds the longest possible message"))
    elif size < DEFAULT_CHUNK_SIZE:
        violations.append((ViolationCode.CHUNK_SIZE_SMALL, f"chunk size {size} is below 128"))
    return size


def _parse_user_control(payload: bytes) -> Control:
    length = len(payload)
    if length < 2:
        detail = f"user control message of {length} bytes has no event type"
        return Control("unknown_event", violations=((ViolationCode.CTRL_LENGTH, detail),))
    event_type = payload[0] << 8 | payload[1]
    event = USER_CONTROL_EVENTS.get(event_type)
    if event is None:
        detail = f"unknown user control event {event_type} with {length - 2} bytes"
        return Control("unknown_event", event_type=event_type, violations=((ViolationCode.CTRL_EVENT_UNKNOWN, detail),))
    body = event.body
    stream_id: int | None = None
    event_value: int | None = None
    if body == BYTE:
        event_value = payload[2] if length > 2 else None
    elif body != OPAQUE and length >= 6:
        number: int = _U32.unpack_from(payload, 2)[0]
        if body == VALUE:
            event_value = number
        else:
            stream_id = number
        if body == STREAM_AND_VALUE and length >= 10:
            event_value = _U32.unpack_from(payload, 6)[0]
    violations: tuple[tuple[ViolationCode, str], ...] = ()
    if length != event.length:
        detail = f"{event.kind} has {length} bytes instead of {event.length}"
        violations = ((ViolationCode.CTRL_LENGTH, detail),)
    return Control(event.kind, None, None, event_type, stream_id, event_value, violations)


def _dump_u32(value: int, what: str) -> bytes:
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{what} {value} is not an unsigned 32-bit number")
    return _U32.pack(value)


def dump_set_chunk_size(size: int) -> bytes:
    if not 1 <= size <= 0x7FFFFFFF:
        raise EncodeError(f"chunk size {size} is not in 1..0x7FFFFFFF")  # RTMP 1.0 5.4.1
    return _U32.pack(size)


def dump_abort(csid: int) -> bytes:
    if not 2 <= csid <= MAX_CSID:
        raise EncodeError(f"csid {csid} is not in 2..{MAX_CSID}")
    return _U32.pack(csid)


def dump_acknowledgement(bytes_received: int) -> bytes:
    """The count wraps at 2^32 (RTMP 1.0 5.4.3)."""
    return _U32.pack(bytes_received & 0xFFFFFFFF)


def dump_window_ack_size(window: int) -> bytes:
    if window == 0:
        raise EncodeError("a Window Acknowledgement Size of 0 allows nothing to be sent")
    return _dump_u32(window, "window")


def dump_set_peer_bandwidth(window: int, limit_type: int) -> bytes:
    if window == 0:
        raise EncodeError("a Set Peer Bandwidth of 0 allows nothing to be sent")
    if not LIMIT_HARD <= limit_type <= LIMIT_DYNAMIC:
        raise EncodeError(f"limit type {limit_type} is not 0, 1 or 2")
    return _dump_u32(window, "window") + bytes((limit_type,))


def dump_stream_event(event_type: int, stream_id: int) -> bytes:
    """Stream Begin, EOF, Dry, Is Recorded, Buffer Empty, Buffer Ready."""
    event = USER_CONTROL_EVENTS.get(event_type)
    if event is None or event.body != STREAM:
        raise EncodeError(f"the body of user control event {event_type} is not a stream id")
    return struct.pack(">H", event_type) + _dump_u32(stream_id, "stream id")


def dump_set_buffer_length(stream_id: int, length_ms: int) -> bytes:
    return struct.pack(">H", SET_BUFFER_LENGTH) + _dump_u32(stream_id, "stream id") + _dump_u32(length_ms, "length")


def dump_ping_request(timestamp: int) -> bytes:
    return struct.pack(">HI", PING_REQUEST, timestamp & 0xFFFFFFFF)


def dump_ping_response(timestamp: int) -> bytes:
    return struct.pack(">HI", PING_RESPONSE, timestamp & 0xFFFFFFFF)


def dump_swf_verify_request(version: int) -> bytes:
    if not 0 <= version <= 0xFF:
        raise EncodeError(f"SWF verification version {version} does not fit in a byte")
    return struct.pack(">HB", SWF_VERIFY_REQUEST, version)


def dump_swf_verify_response(swf_size: int, digest: bytes) -> bytes:
    """Version 1 twice, the size twice, and the HMAC of the SWF file, as librtmp sends it."""
    if len(digest) != 32:
        raise EncodeError(f"a SWF digest has 32 bytes, not {len(digest)}")
    size = _dump_u32(swf_size, "SWF size")
    return struct.pack(">HBB", SWF_VERIFY_RESPONSE, 1, 1) + size + size + digest


class AggregatePart(NamedTuple):
    """One message inside an aggregate; `start` and `end` are the place of its payload in the aggregate's payload."""

    type_id: int
    timestamp: int  # ms, relative to the aggregate's own timestamp
    start: int
    end: int
    payload: bytes


class Aggregate(NamedTuple):
    """The messages read from an aggregate; `violations` are (code, offset, detail)."""

    parts: tuple[AggregatePart, ...]
    violations: tuple[tuple[ViolationCode, int, str], ...]


_PART_HEADER: Final = 11  # as in an FLV file: type, 24-bit size, 24+8-bit timestamp, 24-bit stream id
_BACK_POINTER: Final = 4


def parse_aggregate(payload: bytes, timestamp: int) -> Aggregate:
    """Split a message of type 22 (RTMP 1.0 7.1.6); the parts belong to the aggregate's stream id.

    The first part gets the aggregate's timestamp, the others keep their distance to it. A nested aggregate is returned
    unsplit.
    """
    parts: list[AggregatePart] = []
    violations: list[tuple[ViolationCode, int, str]] = []
    position, end, first_time = 0, len(payload), 0
    while position < end:
        body = position + _PART_HEADER
        if body > end:
            detail = f"{end - position} bytes are too short for the header of a sub-message"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        type_id = payload[position]
        size = int.from_bytes(payload[position + 1 : position + 4], "big")
        time = int.from_bytes(payload[position + 4 : position + 7], "big") | payload[position + 7] << 24
        if not parts:
            first_time = time
        if body + size > end:
            detail = f"sub-message of {size} bytes extends {body + size - end} bytes past the end of the aggregate"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        if type_id == AGGREGATE:
            violations.append((ViolationCode.MSG_AGGREGATE, position, "an aggregate inside an aggregate"))
        shift = (time - first_time + 0x80000000 & 0xFFFFFFFF) - 0x80000000  # timestamps wrap at 2^32
        parts.append(AggregatePart(type_id, timestamp + shift, body, body + size, payload[body : body + size]))
        position = body + size
        if position + _BACK_POINTER > end:
            detail = "the back pointer of the last sub-message is cut off"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        back = _U32.unpack_from(payload, position)[0]
        if back != _PART_HEADER + size:
            detail = f"back pointer is {back} instead of {_PART_HEADER + size}"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
        position += _BACK_POINTER
    return Aggregate(tuple(parts), tuple(violations))


def dump_aggregate(parts: list[tuple[int, int, bytes]]) -> bytes:
    """The body of a type 22 from (type_id, timestamp, payload); send it with the timestamp of the first."""
    pieces: list[bytes] = []
    for type_id, timestamp, payload in parts:
        if type_id == AGGREGATE or not 0 <= type_id <= 0xFF:
            raise EncodeError(f"type {type_id} is not allowed in an aggregate")
        if len(payload) > 0xFFFFFF:
            raise EncodeError(f"{len(payload)} bytes are too long for a sub-message")
        time = timestamp & 0xFFFFFFFF
        pieces.append(bytes((type_id,)) + len(payload).to_bytes(3, "big") + (time & 0xFFFFFF).to_bytes(3, "big"))
        pieces.append(bytes((time >> 24, 0, 0, 0)))
        pieces.append(payload)
        pieces.append(_U32.pack(_PART_HEADER + len(payload)))
    return b"".join(pieces)
