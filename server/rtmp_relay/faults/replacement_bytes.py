"""Which bytes a fault sends in place of a message, and helpers that build chunks which the encoder would refuse."""

from __future__ import annotations

from collections.abc import Callable

from rtmp_spark.codec.encoder import RtmpEncoder, basic_header
from rtmp_spark.codec.message import Message

Replacement = Callable[[RtmpEncoder, Message], bytes]


def header(
    message: Message,
    fmt: int = 0,
    field: int | None = None,
    extended: int | None = None,
    length: int | None = None,
    csid: int | None = None,
) -> bytes:
    """Return a chunk header with these fields, valid or not; fields that are None come from the message."""
    data = basic_header(fmt, message.csid if csid is None else csid)
    if fmt < 3:
        data += (message.timestamp if field is None else field).to_bytes(3, "big")
    if fmt < 2:
        data += (len(message.payload) if length is None else length).to_bytes(3, "big") + bytes((message.type_id,))
    if fmt == 0:
        data += message.stream_id.to_bytes(4, "little")
    return data + (b"" if extended is None else extended.to_bytes(4, "big"))


def chunks(payload: bytes, size: int, first: bytes, continuation: bytes) -> bytes:
    """Return the payload in chunks of `size`: the first after header `first`, the others after `continuation`."""
    pieces = [first + payload[:size]]
    pieces += [continuation + payload[at : at + size] for at in range(size, len(payload), size)]
    return b"".join(pieces)


def first_chunk(encoder: RtmpEncoder, message: Message) -> bytes:
    """Return the first chunk of a message of several chunks, with a full header."""
    return encoder.send(message, fmt=0)[: 12 + encoder.chunk_size]


def preceded_by(*messages: Message) -> Replacement:
    """Send these messages before the chosen one, all with full headers."""

    def replacement(encoder: RtmpEncoder, message: Message) -> bytes:
        return b"".join(encoder.send(m, fmt=0) for m in (*messages, message))

    return replacement


def nothing(_encoder: RtmpEncoder, _message: Message) -> bytes:
    """Do not send the chosen message."""
    return b""
