"""Audio and video tags, legacy and enhanced (E-RTMP v2): the header of one message body.

`parse_tag` returns a tag for each track in the body, `read_headers` the same without the columns that depend on earlier
tags. FLV 10.1 E.4.2, E.4.3; E-RTMP v2 "Enhanced Audio", "Enhanced Video". The codec data after the header is not read
here; the codecs themselves are listed in codecs.py. A reserved value does not end the parsing if the layout of what
follows does not depend on it: a reserved frame type is None, a reserved packet type N is `unknown_N`.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from ..message import AUDIO, VIDEO
from .codecs import AUDIO_FORMATS, VIDEO_CODECS, WITH_COMPOSITION_TIME
from .record import bad

_new: Final = tuple.__new__  # builds a NamedTuple at a third of its constructor's cost

FRAME_TYPES: Final = (None, "key", "inter", "disposable", "generated", "info", None, None)
_PACKET_TYPES: Final = ("config", "frame", "end")
_AUDIO_PACKET_TYPES: Final = {0: "config", 1: "frame", 2: "end", 4: "multichannel_config"}
_VIDEO_PACKET_TYPES: Final = {0: "config", 1: "frame", 2: "end", 3: "frame", 4: "metadata", 5: "mpeg2ts_config"}
_CONFIG_TYPES: Final = frozenset(("config", "mpeg2ts_config", "multichannel_config"))
_MULTITRACK: Final = {AUDIO: 5, VIDEO: 6}
_MODEX, _METADATA, _FRAMES = 7, 4, 1
_ONE_TRACK, _MANY_CODECS = 0, 2

_FLAG_RATES: Final = (5512, 11025, 22050, 44100)
_FIXED_SOUND: Final = {4: (16000, 1), 5: (8000, 1), 11: (16000, 1), 10: (None, None)}  # AAC: the flags have no meaning
_FIXED_RATES: Final = {7: 8000, 8: 8000, 14: 8000}


class MediaTag(NamedTuple):
    """One track of one message; the fields are the columns of the table `media_tags`."""

    stream_id: int
    kind: str  # audio, video
    codec: str | None  # None: an enhanced command frame, which has no codec
    enhanced: bool
    track_id: int
    packet_type: str
    frame_type: str | None  # video only; None too for a reserved value, unless the frame itself says what it is
    is_key: bool  # a coded frame that is flagged as key
    is_config: bool
    dts: int
    cts: int | None  # video only
    pts: int
    ts_ns_offset: int | None
    size: int  # bytes of codec data
    nal_types: list[int] | None
    width: int | None
    height: int | None
    profile: int | None
    level: int | None
    sample_rate: int | None
    channels: int | None
    gop_no: int | None
    body_start: int  # the codec data within the payload
    body_end: int


class TagHeader(NamedTuple):
    kind: str
    codec: str | None
    enhanced: bool
    track_id: int
    packet_type: str
    frame_type: str | None
    cts: int | None
    ts_ns_offset: int | None
    start: int
    end: int
    sample_rate: int | None = None
    channels: int | None = None


class Track:
    """What later tags of a track need. `config` is a fingerprint of its configuration record."""

    __slots__: ClassVar[tuple[str, ...]] = (
        "channels", "config", "family", "gop_no", "height", "length_size", "level", "profile", "sample_rate", "width",
        "renewed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.family: str | None = None
        self.config: str | None = None
        self.length_size: int | None = None
        self.width: int | None = None
        self.height: int | None = None
        self.profile: int | None = None
        self.level: int | None = None
        self.sample_rate: int | None = None
        self.channels: int | None = None
        self.gop_no: int | None = None
        self.renewed = False  # another stream may begin: a new configuration is not a change


def parse_tag(type_id: int, payload: bytes, stream_id: int = 0, timestamp: int = 0) -> list[MediaTag]:
    """The tags of one message body, from their headers alone. An empty body has none."""
    headers: list[TagHeader] = []
    read_headers(type_id, payload, headers)
    return [make_tag(found, Track(), stream_id, timestamp, None) for found in headers]


def make_tag(found: TagHeader, track: Track, stream_id: int, dts: int, nal_types: list[int] | None) -> MediaTag:
    """A row from a header and its track; a keyframe begins another GOP."""
    kind, codec, enhanced, track_id, packet_type, frame_type, cts, nanoseconds, start, end, rate, channels = found
    coded = packet_type == "frame"
    is_key = coded and (frame_type == "key" or frame_type == "generated")
    gop_no = None
    if coded and kind == "video":
        if is_key:
            track.gop_no = (track.gop_no or 0) + 1
        gop_no = track.gop_no
    return _new(
        MediaTag,
        (
            stream_id, kind, codec, enhanced, track_id, packet_type, frame_type, is_key,
            packet_type in _CONFIG_TYPES, dts, cts, dts + (cts or 0), nanoseconds, end - start, nal_types,
            track.width, track.height, track.profile, track.level,
            track.sample_rate or rate, track.channels or channels, gop_no, start, end,
        ),
    )  # fmt: skip


def read_headers(type_id: int, payload: bytes, headers: list[TagHeader], reserved: list[str] | None = None) -> None:
    """Append a header for each track, and to `reserved` a text about each reserved value. Headers appended before an
    error are valid."""
    reserved = [] if reserved is None else reserved
    if not payload:  # an empty message, which some senders use as silence or keep-alive
        return
    if type_id == VIDEO:
        if payload[0] & 0x80:
            _enhanced(type_id, payload, headers, reserved)
        else:
            headers.append(_legacy_video(payload, reserved))
    elif type_id == AUDIO:
        if payload[0] >> 4 == 9:
            _enhanced(type_id, payload, headers, reserved)
        else:
            headers.append(_legacy_audio(payload, reserved))
    else:
        raise bad(0, f"message type {type_id} is neither audio nor video")


def _legacy_audio(payload: bytes, reserved: list[str]) -> TagHeader:
    flags = payload[0]
    form = flags >> 4
    rate, channels = _FIXED_SOUND.get(form) or (_FIXED_RATES.get(form) or _FLAG_RATES[flags >> 2 & 3], 1 + (flags & 1))
    start, packet_type = 1, "frame"
    if form == 10:
        if len(payload) < 2:
            raise bad(1, "the AAC tag ends before its packet type")
        start, packet_type = 2, _PACKET_TYPES[payload[1]] if payload[1] < 2 else f"unknown_{payload[1]}"
        if payload[1] > 1:
            reserved.append(f"AAC packet type {payload[1]} is reserved; the body was not read")
    codec = AUDIO_FORMATS[form]
    return _new(
        TagHeader, ("audio", codec, False, 0, packet_type, None, None, None, start, len(payload), rate, channels)
    )


def _legacy_video(payload: bytes, reserved: list[str]) -> TagHeader:
    first, end = payload[0], len(payload)
    frame_type, codec = FRAME_TYPES[first >> 4], VIDEO_CODECS[first & 15]
    if frame_type is None:
        reserved.append(_frame_type_text(first >> 4))
    if frame_type == "info":
        return TagHeader("video", codec, False, 0, "command", frame_type, 0, None, 1, end)
    if first & 15 not in (7, 12):
        return TagHeader("video", codec, False, 0, "frame", frame_type, 0, None, 1, end)
    if end < 2:
        raise bad(1, f"the {codec} tag ends before its packet type")
    if payload[1] > 2:
        reserved.append(f"{codec} packet type {payload[1]} is reserved; the body was not read")
    if end < 5:
        if payload[1] != 2:
            raise bad(end, f"the {codec} tag ends inside its composition time")
        return TagHeader("video", codec, False, 0, "end", frame_type, 0, None, end, end)
    packet_type = _PACKET_TYPES[payload[1]] if payload[1] <= 2 else f"unknown_{payload[1]}"
    cts = _si24(payload, 2)
    return _new(TagHeader, ("video", codec, False, 0, packet_type, frame_type, cts, None, 5, end, None, None))


def _si24(payload: bytes, pos: int) -> int:
    value = payload[pos] << 16 | payload[pos + 1] << 8 | payload[pos + 2]
    return value - 0x1000000 if value & 0x800000 else value


def _frame_type_text(value: int) -> str:
    return f"frame type {value} is reserved; keyframes were recognised by the coded frames"


def _enhanced(type_id: int, payload: bytes, headers: list[TagHeader], reserved: list[str]) -> None:
    end, pos = len(payload), 1
    packet, nanoseconds = payload[0] & 15, None
    frame_type = FRAME_TYPES[payload[0] >> 4 & 7] if type_id == VIDEO else None
    while packet == _MODEX:
        size, pos = _byte(payload, pos) + 1, pos + 1
        if size == 256:
            size, pos = (_byte(payload, pos) << 8 | _byte(payload, pos + 1)) + 1, pos + 2
        data, pos = pos, pos + size
        following = _byte(payload, pos)
        if following >> 4 == 0:
            if size < 3:
                raise bad(data, f"a nanosecond offset has {size} bytes instead of 3")
            nanoseconds = int.from_bytes(payload[data : data + 3], "big")
        packet, pos = following & 15, pos + 1
    if frame_type == "info" and packet != _METADATA:
        headers.append(TagHeader("video", None, True, 0, "command", frame_type, 0, nanoseconds, pos, end))
        return
    mode = None
    if packet == _MULTITRACK[type_id]:
        mode, packet, pos = _byte(payload, pos) >> 4, payload[pos] & 15, pos + 1
        if mode > _MANY_CODECS:
            raise bad(pos - 1, f"unknown multitrack type {mode}")
        if packet in (_MULTITRACK[type_id], _MODEX):
            raise bad(pos - 1, f"packet type {packet} is not allowed inside multitrack")
    packet_type = (_AUDIO_PACKET_TYPES if type_id == AUDIO else _VIDEO_PACKET_TYPES).get(packet)
    if packet_type is None:
        packet_type = f"unknown_{packet}"
        reserved.append(f"enhanced packet type {packet} is reserved; the body was not read")
    if type_id == VIDEO and frame_type is None and packet != _METADATA:  # Metadata has no frame type: OBS writes 0
        reserved.append(_frame_type_text(payload[0] >> 4 & 7))
    codec = None
    if mode != _MANY_CODECS:
        codec, pos = _fourcc(payload, pos), pos + 4
    track_id = 0
    while True:
        stop = end
        if mode is not None:
            if len(headers) == 256:
                raise bad(pos, "more than 256 tracks")
            if mode == _MANY_CODECS:
                codec, pos = _fourcc(payload, pos), pos + 4
            track_id, pos = _byte(payload, pos), pos + 1
            if mode != _ONE_TRACK:
                _byte(payload, pos + 2)
                stop, pos = pos + 3 + int.from_bytes(payload[pos : pos + 3], "big"), pos + 3
                if stop > end:
                    raise bad(pos - 3, f"track {track_id} extends {stop - end} bytes past the end of the tag")
        start = pos
        cts = None if type_id == AUDIO else 0
        if packet == _FRAMES and codec in WITH_COMPOSITION_TIME:
            if pos + 3 > stop:
                raise bad(stop, f"the {codec} tag ends inside its composition time")
            cts, start = _si24(payload, pos), pos + 3
        kind = "audio" if type_id == AUDIO else "video"
        headers.append(TagHeader(kind, codec, True, track_id, packet_type, frame_type, cts, nanoseconds, start, stop))
        pos = stop
        if pos >= end:
            return


def _byte(payload: bytes, pos: int) -> int:
    if pos >= len(payload):
        raise bad(len(payload), "the tag ends inside its header")
    return payload[pos]


def _fourcc(payload: bytes, pos: int) -> str:
    _byte(payload, pos + 3)
    code = payload[pos : pos + 4]
    return code.decode("ascii") if all(32 < c < 127 for c in code) else f"unknown_{int.from_bytes(code, 'big')}"
