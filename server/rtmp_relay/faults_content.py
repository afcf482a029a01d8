"""Faults of AMF, commands, media, times and sessions: what goes wrong inside messages and between them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rtmp_spark.codec.command import dump_command
from rtmp_spark.codec.encoder import RtmpEncoder
from rtmp_spark.codec.message import AUDIO, COMMAND_AMF0, DATA_AMF0, VIDEO, Message

from .fault import (
    Fault,
    MediaFault,
    OnMessage,
    coded_audio,
    inserted,
    is_coded,
    names,
    steady,
    swallowed,
)
from .faults_wire import CLIENT, EITHER, SERVER
from .synthetic import Synthetic, Tag

if TYPE_CHECKING:
    from .caller import CallerOptions

Change = Callable[[Tag, int], "Tag | list[Tag] | None"]

# -- AMF: a data message whose values are damaged -------------------------------------------------------------

_TEXT_DATA = "02000a6f6e5465787444617461"  # "onTextData"


def _data(values: str) -> Callable[[], Fault]:
    message = Message(9, 0, DATA_AMF0, 1, bytes.fromhex(_TEXT_DATA + values))
    return lambda: OnMessage(coded_audio, inserted(message), after=5)


# -- commands ------------------------------------------------------------------------------------------------


def _command(name: str, transaction_id: float, *args: object) -> Message:
    return Message(3, 0, COMMAND_AMF0, 0, dump_command(name, transaction_id, *args))


def _twice(encoder: RtmpEncoder, message: Message) -> bytes:
    return encoder.send(message, fmt=0) * 2


def _refused(encoder: RtmpEncoder, message: Message) -> bytes:
    info = {"level": "error", "code": "NetStream.Publish.Denied", "description": "This relay denies it on purpose."}
    return encoder.send(replace(message, payload=dump_command("onStatus", 0.0, None, info)), fmt=0)


class AuthRounds:
    """The three connections of an Adobe authentication; each call is the next connection's fault."""

    WORDS = (
        "[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : ",
        "[ AccessManager.Reject ] : [ authmod=adobe ] : ?reason=needauth&user=someone&salt=c2FsdA==&challenge=Y2hhbA==",
    )

    def __init__(self) -> None:
        self._round = 0

    def __call__(self) -> Fault:
        number, self._round = self._round, self._round + 1
        if number >= len(self.WORDS):
            return Fault()
        info = {"level": "error", "code": "NetConnection.Connect.Rejected", "description": self.WORDS[number]}

        def reject(encoder: RtmpEncoder, message: Message) -> bytes:
            return encoder.send(replace(message, payload=dump_command("_error", 1.0, None, info)), fmt=0)

        return OnMessage(names("_result"), reject, hangs_up=True)


class _Unoffered(MediaFault):
    """Enhanced media, and not a word of it in connect."""

    def caller_options(self, options: CallerOptions) -> CallerOptions:
        return replace(options, enhanced=False)


# -- media ---------------------------------------------------------------------------------------------------


def _changed(kind: int, change: Change, *, after: int = 0, times: int = 1, coded: bool = True) -> Callable[[], Fault]:
    """A change of the frames (or configurations) of one kind, after the first `after` of them."""

    def spoil(tags: Iterable[Tag]) -> Iterator[Tag]:
        seen = 0
        for tag in tags:
            if tag.type_id != kind or is_coded(tag.payload) is not coded:
                yield tag
                continue
            seen += 1
            if after < seen <= after + times:
                result = change(tag, seen)
                if isinstance(result, list):
                    yield from result
                elif result is not None:
                    yield result
            else:
                yield tag

    return lambda: MediaFault(spoil)


MANY = 1 << 60


def _payload(change: Callable[[bytes], bytes]) -> Change:
    return lambda tag, _: tag._replace(payload=change(tag.payload))


def _annex_b(payload: bytes) -> bytes:
    out, position = bytearray(payload[:5]), 5
    while position + 4 <= len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        out += b"\0\0\0\1" + payload[position + 4 : position + 4 + size]
        position += 4 + size
    return bytes(out)


def _adts(payload: bytes) -> bytes:
    size = len(payload) - 2 + 7
    bits = 0xFFF << 44 | 1 << 40 | 1 << 38 | 4 << 34 | 1 << 30 | size << 13 | 0x7FF << 2
    return payload[:2] + bits.to_bytes(7, "big") + payload[2:]


def _declaring(tag: Tag, name: bytes, change: Callable[[float], float]) -> Tag:
    """onMetaData with another number under this name; every other tag as it is."""
    marker = len(name).to_bytes(2, "big") + name + b"\x00"
    at = tag.payload.find(marker) if tag.type_id == DATA_AMF0 else -1
    if at < 0:
        return tag
    at += len(marker)
    value = change(struct.unpack_from(">d", tag.payload, at)[0])
    return tag._replace(payload=tag.payload[:at] + struct.pack(">d", value) + tag.payload[at + 8 :])


def _declared_wider(tags: Iterable[Tag]) -> Iterator[Tag]:
    return (_declaring(tag, b"width", lambda width: width * 2) for tag in tags)


def _instead(**settings: object) -> Callable[[Iterable[Tag]], Iterator[Tag]]:
    """Media made on the spot, whatever was to be published."""
    return lambda _: Synthetic(**settings).tags()  # type: ignore[arg-type]


def _other_config(tag: Tag) -> bytes:
    del tag
    return bytes((0x17, 0, 0, 0, 0)) + Synthetic(fps=50).avc_config()


# Parameter sets of an x265 encoding of a 320x240 test picture.
_VPS = "40010c01ffff01600000030090000003000003003c959809"
_SPS = "42010101600000030090000003000003003ca00a080f165959a4932bc05a020000030002000003003210"
_PPS = "4401c172b46240"


def _hevc_under_12(tags: Iterable[Tag]) -> Iterator[Tag]:
    sets = [bytes.fromhex(text) for text in (_VPS, _SPS, _PPS)]
    arrays = b"".join(bytes((0x80 | s[0] >> 1, 0, 1)) + len(s).to_bytes(2, "big") + s for s in sets)
    profile = bytes.fromhex("016000000090000000000000") + b"\x3c"
    record = b"\1" + profile[:11] + b"\x3c" + bytes.fromhex("f000fcfdf8f800000f03") + arrays
    picture = 0
    for tag in tags:
        if tag.type_id != VIDEO:
            yield _declaring(tag, b"videocodecid", lambda _: 12.0)
        elif not is_coded(tag.payload):
            yield tag._replace(payload=bytes.fromhex("1c00000000") + record)
        else:
            key = tag.payload[0] >> 4 == 1
            unit = bytes.fromhex("2601" if key else "0201") + b"\xaf" + Synthetic._filler(b"h%d" % picture, 800)
            picture += 1
            first = bytes((0x1C if key else 0x2C, 1, 0, 0, 0))
            yield tag._replace(payload=first + len(unit).to_bytes(4, "big") + unit)


# -- times ---------------------------------------------------------------------------------------------------


def _shifted(shift: Callable[[Tag], int], from_ms: int = 0) -> Callable[[], Fault]:
    def spoil(tags: Iterable[Tag]) -> Iterator[Tag]:
        for tag in tags:
            moved = tag.timestamp + shift(tag) if tag.timestamp >= from_ms else tag.timestamp
            yield tag._replace(timestamp=moved)

    return lambda: MediaFault(spoil)


class _Leaps(Fault):
    """From one second on every time is five seconds too late; nothing waits for that."""

    FROM_MS, BY_MS = 1000, 5000

    def spoil(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return (t._replace(timestamp=t.timestamp + self.BY_MS) if t.timestamp >= self.FROM_MS else t for t in tags)

    def due_ms(self, tag: Tag) -> int:
        return tag.timestamp - self.BY_MS if tag.timestamp >= self.FROM_MS + self.BY_MS else tag.timestamp


class _Stalls(Fault):
    """Nothing for a while, then everything that was due."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._done = False

    def hold_s(self, tag: Tag) -> float:
        self._first = tag.timestamp if self._first is None else self._first
        if self._done or tag.timestamp - self._first < 1500:
            return 0.0
        self._done = True
        return 2.0


class _SaysNothing(Fault):
    """Publishes, waits, leaves."""

    def spoil(self, tags: Iterable[Tag]) -> Iterable[Tag]:
        return (Tag(AUDIO, ms, b"") for ms in (0, 2000))

    def encode(self, encoder: RtmpEncoder, message: Message) -> bytes:
        return b"" if message.type_id == AUDIO else super().encode(encoder, message)


class SecondPublisher(Fault):
    """Somebody else wants to publish under the name; whoever runs the fault makes the second connection."""


def _cts(value: int) -> Callable[[bytes], bytes]:
    return lambda payload: payload[:2] + (value & 0xFFFFFF).to_bytes(3, "big") + payload[5:]


# code -> (who can do it, what is done, how)
CONTENT_FAULTS: dict[str, tuple[tuple[str, ...], str, Callable[[], Fault]]] = {
    "AMF_TRUNCATED": (CLIENT, "a data message cut inside a number", _data("003ff0")),
    "AMF_MARKER": (CLIENT, "an object property with marker 0x1f", _data("030001611f")),
    "AMF_DEPTH": (CLIENT, "a hundred objects inside one another", _data("03" + "00016103" * 100 + "000009" * 101)),
    "AMF_LIMIT": (CLIENT, "a strict array of 4294967295 values", _data("0affffffff0500")),
    "AMF_REFERENCE": (CLIENT, "a reference to an object that is not there", _data("070063")),
    "AMF_UTF8": (CLIENT, "a string that is not UTF-8", _data("020004fffe4142")),
    "AMF_OBJECT_END": (CLIENT, "an object without its end", _data("03000161003ff0000000000000")),
    "AMF_TRAILING": (CLIENT, "bytes after the last value", _data("05fffefd")),
    "CMD_BEFORE_CONNECT": (
        CLIENT,
        "createStream before connect",
        lambda: OnMessage(names("connect"), inserted(_command("createStream", 99.0, None))),
    ),
    "CMD_TRANSACTION_REUSED": (
        CLIENT,
        "two createStream with one id",
        lambda: OnMessage(names("createStream"), _twice),
    ),
    "CMD_NO_RESPONSE": (
        SERVER,
        "does not answer publish or play",
        lambda: OnMessage(names("onStatus"), swallowed, times=2),
    ),
    "CMD_RESPONSE_UNEXPECTED": (
        EITHER,
        "answers a command that nobody sent",
        lambda: OnMessage(steady, inserted(_command("_result", 777.0, None, None))),
    ),
    "CMD_REFUSED": (SERVER, "denies publishing or playing", lambda: OnMessage(names("onStatus"), _refused)),
    "CMD_AUTH_ROUND": (SERVER, "asks for Adobe authentication on the first two connections", Fault),
    "MEDIA_TAG": (
        CLIENT,
        "a video tag of one byte",
        _changed(VIDEO, lambda tag, _: [tag, tag._replace(payload=b"\x27")], after=5),
    ),
    "MEDIA_CODEC_UNKNOWN": (
        CLIENT,
        "a sound of format 13",
        _changed(AUDIO, lambda tag, _: [tag, tag._replace(payload=b"\xdf" + tag.payload[2:])], after=5),
    ),
    "MEDIA_CONFIG_MISSING": (
        CLIENT,
        "no AVC configuration",
        _changed(VIDEO, lambda tag, _: None, times=MANY, coded=False),
    ),
    "MEDIA_KEY_FLAG": (
        CLIENT,
        "a predicted picture flagged as key",
        _changed(VIDEO, _payload(lambda p: bytes((p[0] & 0x0F | 0x10,)) + p[1:]), after=5),
    ),
    "MEDIA_ANNEXB": (CLIENT, "start codes instead of lengths", _changed(VIDEO, _payload(_annex_b), after=5)),
    "MEDIA_ADTS": (CLIENT, "ADTS headers in raw AAC", _changed(AUDIO, _payload(_adts), after=5, times=3)),
    "MEDIA_CONFIG_CHANGED": (
        CLIENT,
        "another SPS in mid-stream",
        _changed(VIDEO, lambda tag, _: [tag._replace(payload=_other_config(tag)), tag], after=25),
    ),
    "MEDIA_NAL": (
        CLIENT,
        "NAL lengths that do not add up",
        _changed(VIDEO, _payload(lambda p: p[:5] + b"\0\1\0\0" + p[9:]), after=5),
    ),
    "MEDIA_START_NOT_KEY": (CLIENT, "the first keyframe is left out", _changed(VIDEO, lambda tag, _: None)),
    "MEDIA_DECLARED": (CLIENT, "onMetaData doubles the width", lambda: MediaFault(_declared_wider)),
    "MEDIA_GOP_LONG": (
        CLIENT,
        "keyframes 5 s apart, in media of its own",
        lambda: MediaFault(_instead(seconds=11.0, gop=125)),
    ),
    "MEDIA_NOT_NEGOTIATED": (
        CLIENT,
        "enhanced media that connect did not offer, of its own",
        lambda: _Unoffered(_instead(seconds=3.0, enhanced=True)),
    ),
    "MEDIA_HEVC_ID12": (CLIENT, "HEVC under codec id 12 in place of the pictures", lambda: MediaFault(_hevc_under_12)),
    "MEDIA_TRACK_ABSENT": (
        CLIENT,
        "sound is announced and never sent",
        _changed(AUDIO, lambda tag, _: None, times=MANY),
    ),
    "TIME_BACKWARDS": (
        CLIENT,
        "one sound frame half a second too early",
        _changed(AUDIO, lambda tag, _: tag._replace(timestamp=max(0, tag.timestamp - 500)), after=40),
    ),
    "TIME_JUMP": (CLIENT, "times leap by 5 s", _Leaps),
    "TIME_WRAP": (CLIENT, "times cross 2^24 ms", _shifted(lambda tag: 0xFFFFFF - 1500)),
    "TIME_SKEW": (
        CLIENT,
        "the sound clock is 0.5 % fast; needs a minute of media",
        _shifted(lambda tag: tag.timestamp // 200 if tag.type_id == AUDIO else 0),
    ),
    "TIME_STALL": (CLIENT, "2 s of silence, then a burst", _Stalls),
    "TIME_PTS_BEFORE_DTS": (CLIENT, "a composition time of -40 ms", _changed(VIDEO, _payload(_cts(-40)), after=5)),
    "SESSION_NO_MEDIA": (CLIENT, "publishes nothing", _SaysNothing),
    "SESSION_BAD_NAME": (CLIENT, "a second connection publishes under the same name", SecondPublisher),
}
