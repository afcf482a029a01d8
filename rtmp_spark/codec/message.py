"""Messages: the unit above chunks, their type numbers, and the bodies of the control messages.

A type is a plain int everywhere, because an unknown type is an observation and not an error here. Bodies are
read as far as they can be and say what is wrong with them (`violations`); nothing here raises on peer bytes, and
nothing here acts on a control message: the decoder and the relay's session do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .errors import EncodeError, ViolationCode

SET_CHUNK_SIZE, ABORT, ACKNOWLEDGEMENT, USER_CONTROL, WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH = range(1, 7)
AUDIO, VIDEO = 8, 9
DATA_AMF3, SHARED_OBJECT_AMF3, COMMAND_AMF3, DATA_AMF0, SHARED_OBJECT_AMF0, COMMAND_AMF0 = range(15, 21)
AGGREGATE = 22
COMMANDS = frozenset({COMMAND_AMF0, COMMAND_AMF3})
OF_STREAMS = frozenset({AUDIO, VIDEO, DATA_AMF0, DATA_AMF3, AGGREGATE})  # what is published and played

TYPE_NAMES = {
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


def type_name(type_id: int) -> str:
    return TYPE_NAMES.get(type_id, "unknown")


@dataclass(frozen=True, slots=True)
class Message:
    """What a sender means: a whole message, before chunking."""

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

EVENT_KINDS = {
    STREAM_BEGIN: "stream_begin",
    STREAM_EOF: "stream_eof",
    STREAM_DRY: "stream_dry",
    SET_BUFFER_LENGTH: "set_buffer_length",
    STREAM_IS_RECORDED: "stream_is_recorded",
    PING_REQUEST: "ping_request",
    PING_RESPONSE: "ping_response",
    SWF_VERIFY_REQUEST: "swf_verify_request",
    SWF_VERIFY_RESPONSE: "swf_verify_response",
    BUFFER_EMPTY: "buffer_empty",
    BUFFER_READY: "buffer_ready",
}
_EVENT_LENGTHS = {SET_BUFFER_LENGTH: 10, SWF_VERIFY_REQUEST: 3, SWF_VERIFY_RESPONSE: 44}
_PLAIN_EVENT_LENGTH = 6  # the type and one 32-bit number
_STREAM_EVENTS = frozenset({STREAM_BEGIN, STREAM_EOF, STREAM_DRY, STREAM_IS_RECORDED, BUFFER_EMPTY, BUFFER_READY})

CONTROL_TYPES = frozenset(range(SET_CHUNK_SIZE, SET_PEER_BANDWIDTH + 1))
MAX_CHUNK_SIZE = 0xFFFFFF  # RTMP 1.0 5.4.1: no message is longer, so all greater sizes are equal
DEFAULT_CHUNK_SIZE = 128
LIMIT_HARD, LIMIT_SOFT, LIMIT_DYNAMIC = range(3)

_U32 = struct.Struct(">I")
_REPEATED_BYTES = 64


class Control(NamedTuple):
    """The body of a message of type 1-6; the fields are the columns of the table `controls`.

    `value` of Set Chunk Size is what was meant: without bit 31, yet neither clamped nor replaced when it is 0;
    `chunk_size_in_effect` says what the sender's next chunk uses.
    """

    kind: str
    value: int | None = None
    limit_type: int | None = None
    event_type: int | None = None
    event_stream_id: int | None = None
    event_value: int | None = None
    violations: tuple[tuple[ViolationCode, str], ...] = ()


def parse_control(type_id: int, payload: bytes) -> Control:
    """Read a body of type 1-6; numbers that are not there are None."""
    if len(payload) <= _REPEATED_BYTES:
        return _parse_repeated(type_id, payload)
    return _parse_control(type_id, payload)


def _parse_control(type_id: int, payload: bytes) -> Control:
    if type_id == USER_CONTROL:
        return _parse_user_control(payload)
    violations: list[tuple[ViolationCode, str]] = []
    expected = 5 if type_id == SET_PEER_BANDWIDTH else 4
    if len(payload) != expected:
        violations.append((ViolationCode.CTRL_LENGTH, f"{type_name(type_id)} of {len(payload)} bytes, not {expected}"))
    value: int | None = _U32.unpack_from(payload)[0] if len(payload) >= 4 else None
    limit_type: int | None = None
    if type_id == SET_CHUNK_SIZE and value is not None:
        value = _judge_chunk_size(value, violations)
    elif type_id in (WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH) and value == 0:
        violations.append((ViolationCode.CTRL_VALUE, f"{type_name(type_id)} 0 allows nothing to be sent"))
    if type_id == SET_PEER_BANDWIDTH and len(payload) >= 5:
        limit_type = payload[4]
        if limit_type > LIMIT_DYNAMIC:
            violations.append((ViolationCode.CTRL_LIMIT_TYPE, f"limit type {limit_type}, not 0, 1 or 2"))
    return Control(type_name(type_id), value, limit_type, violations=tuple(violations))


_parse_repeated = lru_cache(1024)(_parse_control)  # most are the same few from connection to connection


def chunk_size_in_effect(control: Control, current: int) -> int:
    """The chunk size after a Set Chunk Size: 0 or an unreadable body keeps the current one."""
    return min(control.value, MAX_CHUNK_SIZE) if control.value else current


def _judge_chunk_size(raw: int, violations: list[tuple[ViolationCode, str]]) -> int:
    size = raw & 0x7FFFFFFF
    if raw != size:
        violations.append((ViolationCode.CHUNK_SIZE_BIT31, f"chunk size field {raw:#010x} has its top bit set"))
    if size == 0:
        violations.append((ViolationCode.CHUNK_SIZE_ZERO, "chunk size 0; the size before it stays in effect"))
    elif size > MAX_CHUNK_SIZE:
        violations.append((ViolationCode.CHUNK_SIZE_CLAMPED, f"chunk size {size} is more than any message has"))
    elif size < DEFAULT_CHUNK_SIZE:
        violations.append((ViolationCode.CHUNK_SIZE_SMALL, f"chunk size {size} is below 128"))
    return size


def _parse_user_control(payload: bytes) -> Control:
    length = len(payload)
    if length < 2:
        detail = f"user control of {length} bytes has no event type"
        return Control("unknown_event", violations=((ViolationCode.CTRL_LENGTH, detail),))
    event_type = payload[0] << 8 | payload[1]
    kind = EVENT_KINDS.get(event_type)
    if kind is None:
        detail = f"user control event {event_type} with {length - 2} bytes"
        return Control("unknown_event", event_type=event_type, violations=((ViolationCode.CTRL_EVENT_UNKNOWN, detail),))
    expected = _EVENT_LENGTHS.get(event_type, _PLAIN_EVENT_LENGTH)
    stream_id: int | None = None
    event_value: int | None = None
    if event_type == SWF_VERIFY_REQUEST:
        event_value = payload[2] if length > 2 else None
    elif event_type != SWF_VERIFY_RESPONSE and length >= 6:
        number: int = _U32.unpack_from(payload, 2)[0]
        if event_type in (PING_REQUEST, PING_RESPONSE):
            event_value = number
        else:
            stream_id = number
        if event_type == SET_BUFFER_LENGTH and length >= 10:
            event_value = _U32.unpack_from(payload, 6)[0]
    violations: tuple[tuple[ViolationCode, str], ...] = ()
    if length != expected:
        violations = ((ViolationCode.CTRL_LENGTH, f"{kind} of {length} bytes, not {expected}"),)
    return Control(kind, None, None, event_type, stream_id, event_value, violations)


def _dump_u32(value: int, what: str) -> bytes:
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{what} {value} is no unsigned 32-bit number")
    return _U32.pack(value)


def dump_set_chunk_size(size: int) -> bytes:
    if not 1 <= size <= 0x7FFFFFFF:
        raise EncodeError(f"chunk size {size} is not in 1..0x7FFFFFFF")  # RTMP 1.0 5.4.1
    return _U32.pack(size)


def dump_abort(csid: int) -> bytes:
    if not 2 <= csid <= 65599:
        raise EncodeError(f"csid {csid} is not in 2..65599")
    return _U32.pack(csid)


def dump_acknowledgement(bytes_received: int) -> bytes:
    """The count goes round at 2^32 (RTMP 1.0 5.4.3)."""
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
    if event_type not in _STREAM_EVENTS:
        raise EncodeError(f"user control event {event_type} does not carry just a stream id")
    return struct.pack(">H", event_type) + _dump_u32(stream_id, "stream id")


def dump_set_buffer_length(stream_id: int, length_ms: int) -> bytes:
    return struct.pack(">H", SET_BUFFER_LENGTH) + _dump_u32(stream_id, "stream id") + _dump_u32(length_ms, "length")


def dump_ping_request(timestamp: int) -> bytes:
    return struct.pack(">HI", PING_REQUEST, timestamp & 0xFFFFFFFF)


def dump_ping_response(timestamp: int) -> bytes:
    return struct.pack(">HI", PING_RESPONSE, timestamp & 0xFFFFFFFF)


def dump_swf_verify_request(version: int) -> bytes:
    if not 0 <= version <= 0xFF:
        raise EncodeError(f"SWF verification version {version} is no byte")
    return struct.pack(">HB", SWF_VERIFY_REQUEST, version)


def dump_swf_verify_response(swf_size: int, digest: bytes) -> bytes:
    """Version 1 twice, the size twice, and the HMAC of the player's file, as librtmp sends it."""
    if len(digest) != 32:
        raise EncodeError(f"a SWF digest has 32 bytes, not {len(digest)}")
    size = _dump_u32(swf_size, "SWF size")
    return struct.pack(">HBB", SWF_VERIFY_RESPONSE, 1, 1) + size + size + digest


class AggregatePart(NamedTuple):
    """One message inside an aggregate; `start` and `end` bound its payload in the aggregate's."""

    type_id: int
    timestamp: int  # ms, on the time line of the aggregate's own timestamp
    start: int
    end: int
    payload: bytes


class Aggregate(NamedTuple):
    """What could be read of an aggregate; `violations` are (code, offset, detail)."""

    parts: tuple[AggregatePart, ...]
    violations: tuple[tuple[ViolationCode, int, str], ...]


_PART_HEADER = 11  # as in an FLV file: type, 24-bit size, 24+8-bit time, 24-bit stream id
_BACK_POINTER = 4


def parse_aggregate(payload: bytes, timestamp: int) -> Aggregate:
    """Split a message of type 22 (RTMP 1.0 7.1.6); the parts belong to the aggregate's stream id.

    Their times keep their distances, and the first is the aggregate's own. An aggregate inside is given as it is.
    """
    parts: list[AggregatePart] = []
    violations: list[tuple[ViolationCode, int, str]] = []
    position, end, first_time = 0, len(payload), 0
    while position < end:
        body = position + _PART_HEADER
        if body > end:
            detail = f"{end - position} bytes are no header of a sub-message"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        type_id = payload[position]
        size = int.from_bytes(payload[position + 1 : position + 4], "big")
        time = int.from_bytes(payload[position + 4 : position + 7], "big") | payload[position + 7] << 24
        if not parts:
            first_time = time
        if body + size > end:
            detail = f"sub-message of {size} bytes overruns the aggregate by {body + size - end}"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        if type_id == AGGREGATE:
            violations.append((ViolationCode.MSG_AGGREGATE, position, "an aggregate inside an aggregate"))
        shift = (time - first_time + 0x80000000 & 0xFFFFFFFF) - 0x80000000  # times go round at 2^32
        parts.append(AggregatePart(type_id, timestamp + shift, body, body + size, payload[body : body + size]))
        position = body + size
        if position + _BACK_POINTER > end:
            detail = "the back pointer of the last sub-message is cut off"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
            break
        back = _U32.unpack_from(payload, position)[0]
        if back != _PART_HEADER + size:
            detail = f"back pointer {back}, not {_PART_HEADER + size}"
            violations.append((ViolationCode.MSG_AGGREGATE, position, detail))
        position += _BACK_POINTER
    return Aggregate(tuple(parts), tuple(violations))


def dump_aggregate(parts: list[tuple[int, int, bytes]]) -> bytes:
    """The body of a type 22 from (type_id, timestamp, payload); it is sent with the first one's timestamp."""
    pieces: list[bytes] = []
    for type_id, timestamp, payload in parts:
        if type_id == AGGREGATE or not 0 <= type_id <= 0xFF:
            raise EncodeError(f"type {type_id} cannot stand in an aggregate")
        if len(payload) > 0xFFFFFF:
            raise EncodeError(f"{len(payload)} bytes are too long for a sub-message")
        time = timestamp & 0xFFFFFFFF
        pieces.append(bytes((type_id,)) + len(payload).to_bytes(3, "big") + (time & 0xFFFFFF).to_bytes(3, "big"))
        pieces.append(bytes((time >> 24, 0, 0, 0)))
        pieces.append(payload)
        pieces.append(_U32.pack(_PART_HEADER + len(payload)))
    return b"".join(pieces)
