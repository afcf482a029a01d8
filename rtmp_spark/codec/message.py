"""Messages: the unit above chunks, their type numbers, and the bodies of the control messages.

A type is a plain int everywhere, because an unknown type is an observation and not an error here.
"""

from __future__ import annotations

from dataclasses import dataclass

SET_CHUNK_SIZE, ABORT, ACKNOWLEDGEMENT, USER_CONTROL, WINDOW_ACK_SIZE, SET_PEER_BANDWIDTH = range(1, 7)
AUDIO, VIDEO = 8, 9
DATA_AMF3, SHARED_OBJECT_AMF3, COMMAND_AMF3, DATA_AMF0, SHARED_OBJECT_AMF0, COMMAND_AMF0 = range(15, 21)
AGGREGATE = 22

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
