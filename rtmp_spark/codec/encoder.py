"""RtmpEncoder: messages -> bytes, one direction of one connection (RTMP 1.0 5.3.1).

The encoder is strict: it uses the smallest legal header for each message, repeats extended timestamps on every
continuation chunk, and uses a new chunk size only after the message that announces it. `fmt` and `csid_form` let a
caller choose another legal form; anything illegal raises EncodeError.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from .chunk.header import EXTENDED, MAX_CSID
from .errors import EncodeError
from .message import DEFAULT_CHUNK_SIZE, MAX_CHUNK_SIZE, SET_CHUNK_SIZE, Message


class _Sent:
    """The last header sent on one csid."""

    __slots__ = ("delta", "length", "stream_id", "timestamp", "type_id")

    def __init__(self, timestamp: int, length: int, type_id: int, stream_id: int) -> None:
        self.timestamp = timestamp
        self.delta: int | None = None  # None after fmt 0: readers disagree about the delta of fmt 3 after it
        self.length = length
        self.type_id = type_id
        self.stream_id = stream_id


class RtmpEncoder:
    """Encodes the messages of one direction as chunks. `chunk_size` is what was announced before the first message."""

    def __init__(self, chunk_size: int = DEFAULT_CHUNK_SIZE) -> None:
        if not 1 <= chunk_size <= MAX_CHUNK_SIZE:
            raise EncodeError(f"chunk size {chunk_size} is not in 1..{MAX_CHUNK_SIZE}")
        self.chunk_size = chunk_size
        self._sent: dict[int, _Sent] = {}

    def send(self, message: Message, fmt: int | None = None, csid_form: int | None = None) -> bytes:
        """The chunks of the message. `fmt` forces a header format, `csid_form` the length of the basic header (1-3)."""
        return b"".join(self._chunks(message, fmt, csid_form))

    def send_interleaved(self, messages: Iterable[Message]) -> bytes:
        """Messages of different csids, one chunk of each in turn. Set Chunk Size is not allowed among them."""
        batch = list(messages)
        if len({message.csid for message in batch}) != len(batch):
            raise EncodeError("two messages on one csid cannot interleave")
        if any(message.type_id == SET_CHUNK_SIZE for message in batch):
            raise EncodeError("Set Chunk Size cannot be interleaved with other messages")
        rounds = zip_longest(*(self._chunks(message, None, None) for message in batch), fillvalue=b"")
        return b"".join(chunk for chunks in rounds for chunk in chunks)

    def _chunks(self, message: Message, fmt: int | None, csid_form: int | None) -> list[bytes]:
        payload = message.payload
        length = len(payload)
        csid, timestamp = message.csid, message.timestamp & 0xFFFFFFFF
        if length > 0xFFFFFF:
            raise EncodeError(f"a message of {length} bytes is too long; the maximum is 16777215")
        if not 0 <= message.type_id <= 255 or not 0 <= message.stream_id <= 0xFFFFFFFF:
            raise EncodeError(f"type {message.type_id} or stream {message.stream_id} is out of range")
        last = self._sent.get(csid)
        chosen = self._choose(last, message, timestamp, length)
        if fmt is None:
            fmt = chosen
        elif not 0 <= fmt <= chosen:
            raise EncodeError(f"fmt {fmt} cannot carry this message; the smallest header that can is fmt {chosen}")
        announced = 0
        if message.type_id == SET_CHUNK_SIZE and length == 4:
            announced = int.from_bytes(payload, "big")
            if not 1 <= announced <= 0x7FFFFFFF:
                raise EncodeError(f"chunk size {announced} is not in 1..0x7FFFFFFF")

        delta = 0 if last is None else timestamp - last.timestamp & 0xFFFFFFFF
        value = timestamp if fmt == 0 else delta
        field = min(value, EXTENDED)
        header = basic_header(fmt, csid, csid_form)
        if fmt < 3:
            header += field.to_bytes(3, "big")
        if fmt < 2:
            header += length.to_bytes(3, "big") + bytes((message.type_id,))
        if fmt == 0:
            header += message.stream_id.to_bytes(4, "little")
        extension = value.to_bytes(4, "big") if field == EXTENDED else b""

        sent = _Sent(timestamp, length, message.type_id, message.stream_id)
        sent.delta = None if fmt == 0 else delta
        self._sent[csid] = sent
        size = self.chunk_size
        chunks = [header + extension + payload[:size]]
        again = basic_header(3, csid, csid_form) + extension
        chunks += [again + payload[at : at + size] for at in range(size, length, size)]
        if announced:
            self.chunk_size = min(announced, MAX_CHUNK_SIZE)
        return chunks

    def _choose(self, last: _Sent | None, message: Message, timestamp: int, length: int) -> int:
        if last is None or last.stream_id != message.stream_id:
            return 0
        delta = timestamp - last.timestamp & 0xFFFFFFFF
        if delta >= 0x80000000:  # RTMP 1.0 5.3.1.2.1: fmt 0 if the timestamp goes backwards
            return 0
        if last.type_id != message.type_id or last.length != length:
            return 1
        return 3 if delta == last.delta else 2


def basic_header(fmt: int, csid: int, form: int | None = None) -> bytes:
    """The basic header (RTMP 1.0 5.3.1.1). `form` chooses two or three bytes if both can carry the csid."""
    if not 2 <= csid <= MAX_CSID:
        raise EncodeError(f"csid {csid} is not in 2..{MAX_CSID}")
    shortest = 1 if csid < 64 else 2 if csid < 320 else 3
    form = shortest if form is None else form
    if form < shortest or form > 3 or (shortest == 1 and form != 1):
        raise EncodeError(f"csid {csid} cannot be written in {form} bytes")
    if form == 1:
        return bytes((fmt << 6 | csid,))
    if form == 2:
        return bytes((fmt << 6, csid - 64))
    return bytes((fmt << 6 | 1, csid - 64 & 0xFF, csid - 64 >> 8))
