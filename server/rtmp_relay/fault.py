"""What a sender can be made to do wrong: the places where a fault takes hold, and the one that does nothing.

`OnMessage` is most of them: at some chosen message, something else goes out. The faults themselves are in
`faults_wire` and `faults_content`, the catalogue in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rtmp_spark.codec.encoder import RtmpEncoder, basic_header
from rtmp_spark.codec.message import AUDIO, COMMAND_AMF3, COMMANDS, VIDEO, Message

if TYPE_CHECKING:
    from .caller import CallerOptions
    from .synthetic import Tag

EXTENDED = 0xFFFFFF
Choice = Callable[[RtmpEncoder, Message], bool]
Act = Callable[[RtmpEncoder, Message], bytes]


class Fault:
    """How a sender goes wrong on purpose; this one does not."""

    hangs_up = False  # set: nothing more is sent, the connection is to be closed

    def caller_options(self, options: CallerOptions) -> CallerOptions:
        return options

    def answer_scheme(self, scheme: str) -> str:
        """The handshake with which a client's is answered."""
        return scheme

    def packet(self, part: int, data: bytes) -> bytes:
        """C0/S0, C1/S1 or C2/S2 as it goes out."""
        return data

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        """A message as it goes out; nothing swallows it."""
        return encoder.send(message)

    def spoil(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        """The media as it is published."""
        return tags

    def due_ms(self, tag: Tag) -> int:
        """When this tag is due by the media's own clock, whatever its timestamp was made to say."""
        return tag.timestamp

    def hold_s(self, tag: Tag) -> float:
        """How long to wait before this tag."""
        return 0.0


NO_FAULT = Fault()


class OnMessage(Fault):
    """At the messages of a choice, after the first `after` and at most `times` of them, `act` says what goes out.

    From the first act on every other message has a full header: the bytes of an act are not known to the encoder.
    """

    def __init__(self, choice: Choice, act: Act, *, after: int = 0, times: int = 1, hangs_up: bool = False) -> None:
        self._choice = choice
        self._act = act
        self._after = after
        self._left = times
        self._acted = False
        self._then_hangs_up = hangs_up

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if self._left and self._choice(encoder, message):
            if self._after:
                self._after -= 1
            else:
                self._left -= 1
                self._acted = True
                self.hangs_up = self._then_hangs_up
                return self._act(encoder, message)
        return encoder.send(message, fmt=0) if self._acted else encoder.send(message)


class MediaFault(Fault):
    """One that changes the media, not how it is sent."""

    def __init__(self, change: Callable[[Iterable[Tag]], Iterator[Tag]]) -> None:
        self._change = change

    def spoil(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return self._change(tags)


# -- choices -------------------------------------------------------------------------------------------------


def is_coded(payload: bytes) -> bool:
    """A coded AVC or AAC frame, legacy or enhanced."""
    if len(payload) < 2:
        return False
    if payload[0] & 0x80 and payload[0] >> 4 != 10:
        return payload[0] & 15 in (1, 3)
    return payload[1] == 1


def coded_video(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == VIDEO and is_coded(message.payload)


def coded_audio(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == AUDIO and is_coded(message.payload)


def long_video(encoder: RtmpEncoder, message: Message) -> bool:
    """One that takes several chunks."""
    return coded_video(encoder, message) and len(message.payload) > encoder.chunk_size


def any_media(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id in (AUDIO, VIDEO)


def control(encoder: RtmpEncoder, message: Message) -> bool:
    return message.csid == 2


def of_type(*type_ids: int) -> Choice:
    return lambda _, message: message.type_id in type_ids


def names(*wanted: str) -> Choice:
    """A command of one of these names."""
    starts = tuple(b"\x02" + len(name).to_bytes(2, "big") + name.encode() for name in wanted)

    def choice(_: RtmpEncoder, message: Message) -> bool:
        if message.type_id not in COMMANDS:
            return False
        return message.payload[message.type_id == COMMAND_AMF3 :].startswith(starts)

    return choice


def steady(encoder: RtmpEncoder, message: Message) -> bool:
    """Somewhere in the middle: media of a client, the status of a stream from a server."""
    return coded_audio(encoder, message) or names("onStatus")(encoder, message)


# -- chunks by hand ------------------------------------------------------------------------------------------


def header(
    message: Message,
    fmt: int = 0,
    field: int | None = None,
    extended: int | None = None,
    length: int | None = None,
    csid: int | None = None,
) -> bytes:
    """A chunk header that says what it is told to, lawful or not."""
    data = basic_header(fmt, message.csid if csid is None else csid)
    if fmt < 3:
        data += (message.timestamp if field is None else field).to_bytes(3, "big")
    if fmt < 2:
        data += (len(message.payload) if length is None else length).to_bytes(3, "big") + bytes((message.type_id,))
    if fmt == 0:
        data += message.stream_id.to_bytes(4, "little")
    return data + (b"" if extended is None else extended.to_bytes(4, "big"))


def chunks(payload: bytes, size: int, first: bytes, again: bytes) -> bytes:
    """The payload behind `first`, cut at `size`, each further piece behind `again`."""
    pieces = [first + payload[:size]]
    pieces += [again + payload[at : at + size] for at in range(size, len(payload), size)]
    return b"".join(pieces)


def inserted(*messages: Message, before: bool = True) -> Act:
    """These as well."""

    def act(encoder: RtmpEncoder, message: Message) -> bytes:
        order = (*messages, message) if before else (message, *messages)
        return b"".join(encoder.send(m, fmt=0) for m in order)

    return act


def swallowed(_: RtmpEncoder, message: Message) -> bytes:
    return b""
