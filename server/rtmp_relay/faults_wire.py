"""Faults of handshake, chunks, control messages and flow control: what goes wrong below the commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.handshake import DIGEST1, PLAIN
from rtmp_spark.codec.message import (
    ABORT,
    ACKNOWLEDGEMENT,
    AGGREGATE,
    AUDIO,
    SET_CHUNK_SIZE,
    SET_PEER_BANDWIDTH,
    USER_CONTROL,
    VIDEO,
    WINDOW_ACK_SIZE,
    Message,
    dump_aggregate,
    dump_set_chunk_size,
)

from .fault import (
    EXTENDED,
    Fault,
    OnMessage,
    chunks,
    coded_audio,
    coded_video,
    control,
    header,
    inserted,
    is_coded,
    long_video,
    of_type,
    steady,
    swallowed,
)

if TYPE_CHECKING:
    from .caller import CallerOptions

LATE_MS = 20_000_000  # a time that needs the extended field
MANY = 1 << 60


class HandshakeFault(Fault):
    def __init__(self, part: int, change: Callable[[bytes], bytes], scheme: str, hangs_up: bool = False) -> None:
        self._part = part
        self._change = change
        self._scheme = scheme
        self._then_hangs_up = hangs_up

    def caller_options(self, options: CallerOptions) -> CallerOptions:
        return replace(options, scheme=self._scheme)

    def answer_scheme(self, scheme: str) -> str:
        return PLAIN if self._scheme == PLAIN else scheme

    def packet(self, part: int, data: bytes) -> bytes:
        if part != self._part:
            return data
        self.hangs_up = self._then_hangs_up
        return self._change(data)


def _scrambled(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


# -- chunks --------------------------------------------------------------------------------------------------


def _fresh_fmt1(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)  # its effect on the encoder, not its bytes
    return header(message, fmt=1) + message.payload


def _interrupted(encoder: RtmpEncoder, message: Message) -> bytes:
    first = encoder.send(message, fmt=0)[: 12 + encoder.chunk_size]
    return first + encoder.send(message, fmt=0)


def _continued_by_fmt1(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    return chunks(message.payload, encoder.chunk_size, header(message), header(message, fmt=1, field=0))


class _RepeatsConfigurationEarlier(OnMessage):
    """A sound configuration that is sent again with a negative delta: time goes back, no frame does."""

    def __init__(self) -> None:
        super().__init__(coded_audio, self._back, after=20)
        self._config: Message | None = None

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if message.type_id == AUDIO and not is_coded(message.payload) and self._config is None:
            self._config = message
        return super().encode(encoder, message)

    def _back(self, encoder: RtmpEncoder, message: Message) -> bytes:
        config = message if self._config is None else self._config
        return encoder.send(message, fmt=0) + header(config, 1, EXTENDED, 0xFFFFFFD8) + config.payload


class _Late(OnMessage):
    """Media times that need the extended field."""

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        if message.type_id in (AUDIO, VIDEO):
            message = replace(message, timestamp=message.timestamp + LATE_MS)
        return super().encode(encoder, message)


def _continued_without_extension(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    first = header(message, 0, EXTENDED, message.timestamp)
    return chunks(message.payload, encoder.chunk_size, first, header(message, 3))


def _needless_extension(encoder: RtmpEncoder, message: Message) -> bytes:
    encoder.send(message)
    first = header(message, 0, EXTENDED, message.timestamp)
    return chunks(message.payload, encoder.chunk_size, first, header(message, 3, extended=message.timestamp))


class _AbsoluteDelta(_Late):
    """Full headers, then one delta that is no delta."""

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        self._acted = True
        return super().encode(encoder, message)

    @staticmethod
    def act(encoder: RtmpEncoder, message: Message) -> bytes:
        encoder.send(message)
        return header(message, 1, EXTENDED, message.timestamp) + message.payload


def _long_csid_form(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(replace(message, csid=100), csid_form=3)


def _short_continuation(encoder: RtmpEncoder, message: Message) -> bytes:
    other = replace(message, csid=70)
    return chunks(message.payload, encoder.chunk_size, header(other), bytes(((0xC0 | 70) & 0xFF,)))


def _announced(size: int) -> Callable[[RtmpEncoder, Message], bytes]:
    """A Set Chunk Size that the sender does not follow itself."""
    said = Message(2, 0, SET_CHUNK_SIZE, 0, size.to_bytes(4, "big"))
    return lambda encoder, message: header(said) + said.payload + encoder.send(message, fmt=0)


def _obeyed(size: int) -> Callable[[RtmpEncoder, Message], bytes]:
    return inserted(Message(2, 0, SET_CHUNK_SIZE, 0, dump_set_chunk_size(size)))


def _huge_announcements(encoder: RtmpEncoder, message: Message) -> bytes:
    """The beginnings of sixteen messages of 16 MB."""
    piece = bytes(encoder.chunk_size)
    return b"".join(header(message, length=EXTENDED, csid=csid) + piece for csid in range(20, 36))


def _aborted(encoder: RtmpEncoder, message: Message) -> bytes:
    first = encoder.send(message, fmt=0)[: 12 + encoder.chunk_size]
    abort = encoder.send(Message(2, 0, ABORT, 0, message.csid.to_bytes(4, "big")), fmt=0)
    return first + abort + encoder.send(message, fmt=0)


def _bad_back_pointer(encoder: RtmpEncoder, message: Message) -> bytes:
    body = dump_aggregate([(message.type_id, message.timestamp, message.payload)])
    return encoder.send(replace(message, type_id=AGGREGATE, payload=body[:-4] + b"\0\0\0\7"), fmt=0)


# -- control -------------------------------------------------------------------------------------------------


def _control(type_id: int, payload: str, csid: int = 2, stream_id: int = 0) -> Callable[[], Fault]:
    message = Message(csid, 0, type_id, stream_id, bytes.fromhex(payload))
    return lambda: OnMessage(steady, inserted(message), after=1)


def _ping_response(_: RtmpEncoder, message: Message) -> bool:
    return message.type_id == USER_CONTROL and message.payload[:2] == b"\0\7"


def _acks(*counts: int) -> Callable[[], Fault]:
    messages = [Message(2, 0, ACKNOWLEDGEMENT, 0, count.to_bytes(4, "big")) for count in counts]
    return lambda: OnMessage(steady, inserted(*messages), after=1)


CLIENT, SERVER, EITHER = ("client",), ("server",), ("client", "server")

# code -> (who can do it, what is done, how)
WIRE_FAULTS: dict[str, tuple[tuple[str, ...], str, Callable[[], Fault]]] = {
    "HS_VERSION": (EITHER, "C0 or S0 is 5", lambda: HandshakeFault(0, lambda _: b"\5", PLAIN)),
    "HS_INCOMPLETE": (
        CLIENT,
        "hangs up in the middle of C2",
        lambda: HandshakeFault(2, lambda data: data[:700], PLAIN, hangs_up=True),
    ),
    "HS_ECHO": (EITHER, "C2 or S2 of a plain handshake echoes nothing", lambda: HandshakeFault(2, _scrambled, PLAIN)),
    "HS_DIGEST": (
        EITHER,
        "C2 or S2 of a digest handshake signs nothing",
        lambda: HandshakeFault(2, _scrambled, DIGEST1),
    ),
    "CHUNK_FRESH_CSID": (
        CLIENT,
        "the first control message has an fmt 1 header",
        lambda: OnMessage(control, _fresh_fmt1),
    ),
    "CHUNK_INTERRUPTED": (
        CLIENT,
        "a picture breaks off and starts again",
        lambda: OnMessage(long_video, _interrupted, after=1),
    ),
    "CHUNK_CONTINUATION_FMT": (
        CLIENT,
        "a picture is continued with fmt 1 headers",
        lambda: OnMessage(long_video, _continued_by_fmt1, after=1),
    ),
    "CHUNK_DELTA_NEGATIVE": (CLIENT, "a delta of -40 ms", _RepeatsConfigurationEarlier),
    "CHUNK_EXT_TS_MISSING": (
        CLIENT,
        "continuations leave out the extended timestamp",
        lambda: _Late(long_video, _continued_without_extension, times=MANY),
    ),
    "CHUNK_EXT_TS_NEEDLESS": (
        CLIENT,
        "an extended timestamp for a small time",
        lambda: OnMessage(coded_video, _needless_extension, after=5),
    ),
    "CHUNK_EXT_DELTA_ABSOLUTE": (
        CLIENT,
        "an extended delta that is an absolute time",
        lambda: _AbsoluteDelta(coded_audio, _AbsoluteDelta.act, after=20),
    ),
    "CHUNK_CSID_FORM": (CLIENT, "csid 100 in three bytes", lambda: OnMessage(coded_audio, _long_csid_form, after=5)),
    "CHUNK_CSID_SHORT_CONTINUATION": (
        CLIENT,
        "csid 70 is continued by a one-byte header",
        lambda: OnMessage(long_video, _short_continuation, after=1),
    ),
    "CHUNK_SIZE_ZERO": (CLIENT, "Set Chunk Size 0", lambda: OnMessage(coded_video, _announced(0), after=5)),
    "CHUNK_SIZE_BIT31": (
        CLIENT,
        "Set Chunk Size with its top bit set",
        lambda: OnMessage(coded_video, _announced(0x80001000), after=5),
    ),
    "CHUNK_SIZE_CLAMPED": (CLIENT, "Set Chunk Size 128 MB", lambda: OnMessage(coded_video, _obeyed(1 << 27), after=5)),
    "CHUNK_SIZE_SMALL": (CLIENT, "Set Chunk Size 64", lambda: OnMessage(coded_video, _obeyed(64), after=5)),
    "CHUNK_SIZE_NOT_APPLIED": (
        CLIENT,
        "announces 65536 and goes on with the old size",
        lambda: OnMessage(coded_video, _announced(65536), after=5),
    ),
    "CHUNK_LIMIT": (
        CLIENT,
        "begins sixteen messages of 16 MB and hangs up",
        lambda: OnMessage(coded_video, _huge_announcements, after=5, hangs_up=True),
    ),
    "MSG_ABORTED": (
        CLIENT,
        "a picture is given up with Abort and sent again",
        lambda: OnMessage(long_video, _aborted, after=1),
    ),
    "MSG_TYPE_UNKNOWN": (EITHER, "a message of type 99", _control(99, "00010203", csid=9, stream_id=1)),
    "MSG_AGGREGATE": (
        CLIENT,
        "an aggregate with a wrong back pointer",
        lambda: OnMessage(coded_audio, _bad_back_pointer, after=5),
    ),
    "CTRL_CSID": (EITHER, "Window Acknowledgement Size on csid 9", _control(WINDOW_ACK_SIZE, "002625a0", csid=9)),
    "CTRL_STREAM_ID": (
        EITHER,
        "Window Acknowledgement Size on stream 1",
        _control(WINDOW_ACK_SIZE, "002625a0", stream_id=1),
    ),
    "CTRL_LENGTH": (EITHER, "Window Acknowledgement Size of 6 bytes", _control(WINDOW_ACK_SIZE, "002625a00000")),
    "CTRL_VALUE": (EITHER, "Set Peer Bandwidth 0", _control(SET_PEER_BANDWIDTH, "0000000002")),
    "CTRL_EVENT_UNKNOWN": (EITHER, "user control event 99", _control(USER_CONTROL, "006300000001")),
    "CTRL_LIMIT_TYPE": (EITHER, "Set Peer Bandwidth with limit type 7", _control(SET_PEER_BANDWIDTH, "002625a007")),
    "CTRL_ABORT_IDLE": (EITHER, "Abort for a csid with nothing under way", _control(ABORT, "00000032")),
    "CTRL_PING_UNANSWERED": (
        CLIENT,
        "answers no ping; a player is pinged, or who says nothing for 10 s",
        lambda: OnMessage(_ping_response, swallowed, times=MANY),
    ),
    "FLOW_ACK_STARVED": (
        EITHER,
        "acknowledges nothing; needs a player, or a publisher with a small --window",
        lambda: OnMessage(of_type(ACKNOWLEDGEMENT), swallowed, times=MANY),
    ),
    "FLOW_ACK_EARLY": (EITHER, "acknowledges a thousand million bytes", _acks(1_000_000_000)),
    "FLOW_ACK_BACKWARDS": (EITHER, "acknowledges 3000 bytes, then 1000", _acks(3000, 1000)),
}
