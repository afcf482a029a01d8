"""Which messages a fault affects: predicates over the message to be sent and the state of its encoder."""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import AUDIO, COMMAND_AMF3, COMMANDS, VIDEO, Message

Choice = Callable[[RtmpEncoder, Message], bool]


def is_coded(payload: bytes) -> bool:
    """True for a coded AVC or AAC frame with a legacy or enhanced header; False for configurations."""
    if len(payload) < 2:
        return False
    if payload[0] & 0x80 and payload[0] >> 4 != 10:
        return payload[0] & 15 in (1, 3)
    return payload[1] == 1


def coded_video(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == VIDEO and is_coded(message.payload)


def coded_audio(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == AUDIO and is_coded(message.payload)


def video_of_several_chunks(encoder: RtmpEncoder, message: Message) -> bool:
    return coded_video(encoder, message) and len(message.payload) > encoder.chunk_size


def control_message(_: RtmpEncoder, message: Message) -> bool:
    return message.csid == 2


def of_type(*type_ids: int) -> Choice:
    return lambda _, message: message.type_id in type_ids


def command_named(*wanted: str) -> Choice:
    """Choose the commands with one of these names."""
    starts = tuple(b"\x02" + len(name).to_bytes(2, "big") + name.encode() for name in wanted)

    def choice(_: RtmpEncoder, message: Message) -> bool:
        if message.type_id not in COMMANDS:
            return False
        return message.payload[message.type_id == COMMAND_AMF3 :].startswith(starts)

    return choice


def during_stream(encoder: RtmpEncoder, message: Message) -> bool:
    """Choose messages after the setup: audio frames of a client, onStatus of a server."""
    return coded_audio(encoder, message) or command_named("onStatus")(encoder, message)
