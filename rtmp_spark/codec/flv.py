"""Audio and video tags, legacy and enhanced (E-RTMP v2), and FLV files.

`parse_tag` reads the header of one message body: a tag for each track in it. `TagReader` follows the tags of one
direction and fills in what a tag only means together with earlier ones (configuration in effect, GOP number);
its state is a value. `parse_file`, `take_tags`, `header` and `dump_tag` read and write FLV files without doing
any I/O. Metadata in AMF is left as bytes; samples are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from . import media
from .errors import DecodeError, EncodeError, Severity, UserError, ViolationCode
from .message import AUDIO, DATA_AMF0, VIDEO

Fault = tuple[ViolationCode, Severity, str]
_new = tuple.__new__  # makes a NamedTuple at a third of its constructor's cost, which would be most of a frame's


class MediaTag(NamedTuple):
    """One track of one message; the fields are the columns of the table `media_tags`."""

    stream_id: int
    kind: str  # audio, video
    codec: str | None  # None: an enhanced command frame, which names no codec
    enhanced: bool
    track_id: int
    packet_type: str
    frame_type: str | None  # video only
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


# ---- tag headers. FLV 10.1 E.4.2, E.4.3; E-RTMP v2 "Enhanced Audio", "Enhanced Video"

AUDIO_FORMATS = (
    "pcm", "adpcm", "mp3", "pcm_le", "nellymoser_16k", "nellymoser_8k", "nellymoser", "g711a", "g711u", "unknown_9",
    "aac", "speex", "unknown_12", "unknown_13", "mp3_8k", "device",
)  # fmt: skip
VIDEO_CODECS = (
    "unknown_0", "jpeg", "h263", "screen", "vp6", "vp6a", "screen2", "avc", "unknown_8", "unknown_9", "unknown_10",
    "unknown_11", "hevc", "unknown_13", "unknown_14", "unknown_15",
)  # fmt: skip
AUDIO_FOURCC = ("ac-3", "ec-3", "Opus", ".mp3", "fLaC", "mp4a")
VIDEO_FOURCC = ("vp08", "vp09", "av01", "avc1", "hvc1", "vvc1")
FRAME_TYPES = (None, "key", "inter", "disposable", "generated", "info", None, None)
_PACKET_TYPES = ("config", "frame", "end")
_AUDIO_PACKET_TYPES = {0: "config", 1: "frame", 2: "end", 4: "multichannel_config"}
_VIDEO_PACKET_TYPES = {0: "config", 1: "frame", 2: "end", 3: "frame", 4: "metadata", 5: "mpeg2ts_config"}
_CONFIG_TYPES = frozenset(("config", "mpeg2ts_config", "multichannel_config"))
_MULTITRACK = {AUDIO: 5, VIDEO: 6}
_MODEX, _METADATA, _FRAMES = 7, 4, 1
_ONE_TRACK, _MANY_CODECS = 0, 2

_FLAG_RATES = (5512, 11025, 22050, 44100)
_FIXED_SOUND = {4: (16000, 1), 5: (8000, 1), 11: (16000, 1), 10: (None, None)}  # AAC: the flags say nothing
_FIXED_RATES = {7: 8000, 8: 8000, 14: 8000}

_FAMILIES = {
    "avc1": "avc", "hvc1": "hevc", "vvc1": "vvc", "av01": "av1", "vp09": "vp9", "vp08": "vp8", "mp4a": "aac",
    "Opus": "opus", "fLaC": "flac", ".mp3": "mp3", "mp3_8k": "mp3", "ac-3": "ac3", "ec-3": "eac3",
}  # fmt: skip
_NAL_CODECS = frozenset(("avc", "hevc", "vvc"))
_CONFIG_NEEDED = {
    **dict.fromkeys(("aac", "avc", "hevc", "vvc", "flac"), Severity.ERROR),
    **dict.fromkeys(("av1", "vp9"), Severity.WARNING),
}


class _Header(NamedTuple):
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


def _bad(offset: int, detail: str) -> DecodeError:
    return DecodeError(ViolationCode.MEDIA_TAG, offset, detail)


def _legacy_audio(payload: bytes) -> _Header:
    flags = payload[0]
    form = flags >> 4
    rate, channels = _FIXED_SOUND.get(form) or (_FIXED_RATES.get(form) or _FLAG_RATES[flags >> 2 & 3], 1 + (flags & 1))
    start, packet_type = 1, "frame"
    if form == 10:
        if len(payload) < 2:
            raise _bad(1, "an AAC tag without its packet type")
        if payload[1] > 1:
            raise _bad(1, f"AAC packet type {payload[1]} of no meaning")
        start, packet_type = 2, _PACKET_TYPES[payload[1]]
    codec = AUDIO_FORMATS[form]
    return _new(_Header, ("audio", codec, False, 0, packet_type, None, None, None, start, len(payload), rate, channels))


def _legacy_video(payload: bytes) -> _Header:
    first, end = payload[0], len(payload)
    frame_type, codec = FRAME_TYPES[first >> 4], VIDEO_CODECS[first & 15]
    if frame_type is None:
        raise _bad(0, f"frame type {first >> 4} of no meaning")
    if frame_type == "info":
        return _Header("video", codec, False, 0, "command", frame_type, 0, None, 1, end)
    if first & 15 not in (7, 12):
        return _Header("video", codec, False, 0, "frame", frame_type, 0, None, 1, end)
    if end < 2:
        raise _bad(1, f"a tag of {codec} without its packet type")
    if payload[1] > 2:
        raise _bad(1, f"{codec} packet type {payload[1]} of no meaning")
    if end < 5:
        if payload[1] < 2:
            raise _bad(end, f"a tag of {codec} that ends inside its composition time")
        return _Header("video", codec, False, 0, "end", frame_type, 0, None, end, end)
    packet_type = _PACKET_TYPES[payload[1]]
    cts = _si24(payload, 2)
    return _new(_Header, ("video", codec, False, 0, packet_type, frame_type, cts, None, 5, end, None, None))


def _si24(payload: bytes, pos: int) -> int:
    value = payload[pos] << 16 | payload[pos + 1] << 8 | payload[pos + 2]
    return value - 0x1000000 if value & 0x800000 else value


def _enhanced(type_id: int, payload: bytes, headers: list[_Header]) -> None:
    """Appends a header for each track; what was appended before an error is good."""
    end, pos = len(payload), 1
    packet, nanoseconds = payload[0] & 15, None
    frame_type = FRAME_TYPES[payload[0] >> 4 & 7] if type_id == VIDEO else None
    if type_id == VIDEO and frame_type is None:
        raise _bad(0, f"frame type {payload[0] >> 4 & 7} of no meaning")
    while packet == _MODEX:
        size, pos = _byte(payload, pos) + 1, pos + 1
        if size == 256:
            size, pos = (_byte(payload, pos) << 8 | _byte(payload, pos + 1)) + 1, pos + 2
        data, pos = pos, pos + size
        following = _byte(payload, pos)
        if following >> 4 == 0:
            if size < 3:
                raise _bad(data, f"a nanosecond offset of {size} bytes, must be 3")
            nanoseconds = int.from_bytes(payload[data : data + 3], "big")
        packet, pos = following & 15, pos + 1
    if frame_type == "info" and packet != _METADATA:
        headers.append(_Header("video", None, True, 0, "command", frame_type, 0, nanoseconds, pos, end))
        return
    mode = None
    if packet == _MULTITRACK[type_id]:
        mode, packet, pos = _byte(payload, pos) >> 4, payload[pos] & 15, pos + 1
        if mode > _MANY_CODECS:
            raise _bad(pos - 1, f"multitrack type {mode} of no meaning")
        if packet in (_MULTITRACK[type_id], _MODEX):
            raise _bad(pos - 1, f"packet type {packet} inside multitrack")
    packet_type = (_AUDIO_PACKET_TYPES if type_id == AUDIO else _VIDEO_PACKET_TYPES).get(packet)
    if packet_type is None:
        raise _bad(pos - 1, f"enhanced packet type {packet} of no meaning")
    codec = None
    if mode != _MANY_CODECS:
        codec, pos = _fourcc(payload, pos), pos + 4
    track_id = 0
    while True:
        stop = end
        if mode is not None:
            if len(headers) == 256:
                raise _bad(pos, "more tracks than there are track ids")
            if mode == _MANY_CODECS:
                codec, pos = _fourcc(payload, pos), pos + 4
            track_id, pos = _byte(payload, pos), pos + 1
            if mode != _ONE_TRACK:
                _byte(payload, pos + 2)
                stop, pos = pos + 3 + int.from_bytes(payload[pos : pos + 3], "big"), pos + 3
                if stop > end:
                    raise _bad(pos - 3, f"track {track_id} reaches {stop - end} bytes past the end")
        start = pos
        cts = None if type_id == AUDIO else 0
        if packet == _FRAMES and codec in ("avc1", "hvc1", "vvc1"):
            if pos + 3 > stop:
                raise _bad(stop, f"a tag of {codec} that ends inside its composition time")
            cts, start = _si24(payload, pos), pos + 3
        kind = "audio" if type_id == AUDIO else "video"
        headers.append(_Header(kind, codec, True, track_id, packet_type, frame_type, cts, nanoseconds, start, stop))
        pos = stop
        if pos >= end:
            return


def _byte(payload: bytes, pos: int) -> int:
    if pos >= len(payload):
        raise _bad(len(payload), "the tag ends inside its header")
    return payload[pos]


def _fourcc(payload: bytes, pos: int) -> str:
    _byte(payload, pos + 3)
    code = payload[pos : pos + 4]
    return code.decode("ascii") if all(32 < c < 127 for c in code) else f"unknown_{int.from_bytes(code, 'big')}"


def _headers(type_id: int, payload: bytes, headers: list[_Header]) -> None:
    if not payload:  # silence, or a keep-alive: a message without a tag
        return
    if type_id == VIDEO:
        if payload[0] & 0x80:
            _enhanced(type_id, payload, headers)
        else:
            headers.append(_legacy_video(payload))
    elif type_id == AUDIO:
        if payload[0] >> 4 == 9:
            _enhanced(type_id, payload, headers)
        else:
            headers.append(_legacy_audio(payload))
    else:
        raise _bad(0, f"message type {type_id} is neither audio nor video")


def parse_tag(type_id: int, payload: bytes, stream_id: int = 0, timestamp: int = 0) -> list[MediaTag]:
    """The tags of one message body, by their headers alone. An empty body has none."""
    headers: list[_Header] = []
    _headers(type_id, payload, headers)
    return [_tag(found, _Track(), stream_id, timestamp, None) for found in headers]


# ---- what tags mean in sequence


class _Track:
    """What later tags of a track need. `config` is a fingerprint of its configuration record."""

    __slots__ = ("channels", "config", "family", "gop_no", "height", "length_size", "level", "profile", "sample_rate",
                 "width", "renewed")  # fmt: skip

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
        self.renewed = False  # another stream may begin: a new configuration changes nothing


_TRACK_FIELDS = _Track.__slots__


def _tag(found: _Header, track: _Track, stream_id: int, dts: int, nal_types: list[int] | None) -> MediaTag:
    kind, codec, enhanced, track_id, packet_type, frame_type, cts, nanoseconds, start, end, rate, channels = found
    coded = packet_type == "frame"
    is_key = coded and (frame_type == "key" or frame_type == "generated")
    gop_no = None
    if coded and frame_type is not None:
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


def _raw_aac(track: _Track, stream_id: int, dts: int, end: int) -> MediaTag:
    """A frame of AAC after its configuration: every other message of most streams, and nothing to find in it."""
    return _new(
        MediaTag,
        (
            stream_id, "audio", "aac", False, 0, "frame", None, False, False, dts, None, dts, None, end - 2, None,
            track.width, track.height, track.profile, track.level, track.sample_rate or None, track.channels or None,
            None, 2, end,
        ),
    )  # fmt: skip


class TagReader:
    """The tags of one direction in their order. `midstream`: earlier ones were not seen, so none is missed."""

    VERSION = 1
    MAX_TRACKS = 1024  # stream and track ids come from the wire; beyond this the oldest is forgotten

    __slots__ = ("_midstream", "_tracks")

    def __init__(self, *, midstream: bool = False) -> None:
        self._midstream = midstream
        self._tracks: dict[tuple[int, int, int], _Track] = {}

    def receive_gap(self) -> None:
        """Messages were lost: from here on a configuration may have been among them."""
        self._midstream = True

    def forget(self, stream_id: int) -> None:
        """The stream was closed; what comes under its id next is another one."""
        for key in [key for key in self._tracks if key[0] == stream_id]:
            del self._tracks[key]

    def renew(self, stream_id: int) -> None:
        """The stream may begin anew under its id, or go on: whether its configuration is sent again is not known."""
        for key, track in self._tracks.items():
            if key[0] in (stream_id, 0):  # Node-Media-Server sends the media of stream 1 on 0
                track.renewed = True

    def state(self) -> dict[str, Any]:
        tracks = [[*key, *(getattr(track, name) for name in _TRACK_FIELDS)] for key, track in self._tracks.items()]
        return {"version": self.VERSION, "midstream": self._midstream, "tracks": tracks}

    @classmethod
    def resume(cls, state: dict[str, Any]) -> TagReader:
        if state.get("version") != cls.VERSION:
            raise UserError("The saved state of a media stream is of another version.", "Ingest its captures again.")
        reader = cls(midstream=bool(state["midstream"]))
        for stream_id, type_id, track_id, *values in state["tracks"]:
            track = reader._tracks[stream_id, type_id, track_id] = _Track()
            for name, value in zip(_TRACK_FIELDS, values):
                setattr(track, name, value)
        return reader

    def read(
        self, type_id: int, stream_id: int, timestamp: int, payload: bytes, *, complete: bool = True
    ) -> tuple[list[MediaTag], list[Fault]]:
        """Tags with every column filled, and what is wrong with them. Of an incomplete message only the header is
        believed: its body neither configures anything nor is blamed for its end."""
        if type_id == AUDIO and complete:
            track = self._tracks.get((stream_id, AUDIO, 0))
            if track is not None and track.family == "aac" and payload[1:2] == b"\1" and payload[0] >> 4 == 10:
                if track.config is not None and payload[2:3] != b"\xff":
                    return [_raw_aac(track, stream_id, timestamp, len(payload))], []
        faults: list[Fault] = []
        headers: list[_Header] = []
        try:
            _headers(type_id, payload, headers)
        except DecodeError as error:
            if complete:
                faults.append((error.code, error.code.severity, error.detail))
        tags = []
        for found in headers:
            key = (stream_id, type_id, found.track_id)
            track = self._tracks.get(key) or self._new_track(key)
            nal_types = self._body(found, track, payload, faults) if complete else None
            tags.append(_tag(found, track, stream_id, timestamp, nal_types))
        return tags, faults

    def _new_track(self, key: tuple[int, int, int]) -> _Track:
        if len(self._tracks) >= self.MAX_TRACKS:
            del self._tracks[next(iter(self._tracks))]
            self._midstream = True
        track = self._tracks[key] = _Track()
        return track

    def _body(self, found: _Header, track: _Track, payload: bytes, faults: list[Fault]) -> list[int] | None:
        codec, packet_type, start, end = found.codec, found.packet_type, found.start, found.end
        if codec is None or packet_type == "command":
            return None
        family = _FAMILIES.get(codec, codec)
        if family == "hevc" and not found.enhanced:
            faults.append((ViolationCode.MEDIA_HEVC_ID12, Severity.INFO, "HEVC under codec id 12"))
        elif family == codec and (found.enhanced or codec.startswith("unknown")):
            word = "FourCC" if found.enhanced else "codec id"
            detail = f"{word} {codec.removeprefix('unknown_')} of no meaning"
            faults.append((ViolationCode.MEDIA_CODEC_UNKNOWN, Severity.WARNING, detail))
            return None
        try:
            if packet_type == "frame":
                return self._frame(family, found, track, payload, faults)
            if packet_type == "config":
                _configure(family, track, payload[start:end], faults)
            elif packet_type == "multichannel_config":
                if end - start < 2:
                    raise _bad(end, "a multichannel configuration that ends before its channel count")
                track.channels = payload[start + 1]
        except DecodeError as error:
            faults.append((error.code, error.code.severity, error.detail))
        return None

    def _frame(
        self, family: str, found: _Header, track: _Track, payload: bytes, faults: list[Fault]
    ) -> list[int] | None:
        start, end = found.start, found.end
        if track.family != family:
            if track.family is not None:
                _reset(track)
            track.family = family
        if track.config is None and not self._midstream and family in _CONFIG_NEEDED:
            detail = f"a coded frame of {found.codec} before its configuration"
            faults.append((ViolationCode.MEDIA_CONFIG_MISSING, _CONFIG_NEEDED[family], detail))
        if family == "aac":
            if payload[start : start + 1] == b"\xff" and media.is_adts(payload[:end], start):
                faults.append((ViolationCode.MEDIA_ADTS, Severity.ERROR, "an ADTS header in front of raw AAC"))
            return None
        key = found.frame_type == "key" or found.frame_type == "generated"
        nal_types = random_access = None
        if family in _NAL_CODECS:
            length_size = track.length_size
            if length_size is None:
                length_size, nal_types = _guess_nals(family, payload, start, end)
            else:
                nal_types = media.walk_nals(payload, length_size, family, start, end)
            if key is media.IDR_TYPES[family].isdisjoint(nal_types):  # the flag is in doubt
                random_access = media.random_access(family, nal_types, payload, length_size, start, end)
        elif found.kind == "video":
            stop = end if family == "av1" else min(end, start + 16)
            random_access, width, height = media.picture(family, payload[start:stop])
            if width and height:
                track.width, track.height = width, height
        elif family in ("mp3", "ac3", "eac3"):
            heard = media.sound(family, payload, start)
            if heard:
                track.sample_rate, track.channels = heard
        if random_access is not None and random_access != key:
            detail = "a frame flagged as key that no decoder can start at"
            if random_access:
                detail = f"a random-access picture flagged as {found.frame_type}"
            faults.append((ViolationCode.MEDIA_KEY_FLAG, Severity.WARNING, detail))
        return nal_types


def _guess_nals(family: str, payload: bytes, start: int, end: int) -> tuple[int, list[int]]:
    """The configuration was not seen: nearly all senders use lengths of 4 bytes."""
    try:
        return 4, media.walk_nals(payload, 4, family, start, end)
    except DecodeError as error:
        if error.code is not ViolationCode.MEDIA_ANNEXB:
            for other in (2, 3):
                try:
                    return other, media.walk_nals(payload, other, family, start, end)
                except DecodeError:
                    continue
        raise


def _reset(track: _Track) -> None:
    gop_no = track.gop_no
    track.__init__()  # type: ignore[misc]
    track.gop_no = gop_no


_REPEATED_BYTES = 4096


@lru_cache(256)  # encoders send the same record with every connection
def _parsed(parse: Callable[[bytes], Any], record: bytes) -> Any:
    return parse(record)


def _configure(family: str, track: _Track, record: bytes, faults: list[Fault]) -> None:
    if not record and _CONFIG_NEEDED.get(family) is not Severity.ERROR:
        return  # FFmpeg 7 sends an empty one for AV1 before it knows better
    fingerprint = f"{family}-{len(record)}-{crc32(record):08x}"
    if track.config == fingerprint:
        track.renewed = False
        return
    before = track.width, track.height, track.sample_rate
    changed = track.config is not None and not track.renewed
    _reset(track)
    track.family, track.config = family, fingerprint
    parse = media.CONFIG_PARSERS.get(family)
    if parse is not None:
        config = _parsed(parse, record) if len(record) <= _REPEATED_BYTES else parse(record)
        track.profile = config.profile
        if isinstance(config, media.VideoConfig):
            track.level, track.width, track.height = config.level, config.width, config.height
            track.length_size = config.length_size
        else:
            track.sample_rate, track.channels = config.sample_rate, config.channels
    if changed:
        after = track.width, track.height, track.sample_rate
        visible = any(old and new and old != new for old, new in zip(before, after))
        detail = f"another configuration of {family} in mid-stream"
        if visible:
            detail += f": {_seen(*before)} to {_seen(*after)}"
        severity = Severity.WARNING if visible else Severity.INFO
        faults.append((ViolationCode.MEDIA_CONFIG_CHANGED, severity, detail))


def _seen(width: int | None, height: int | None, sample_rate: int | None) -> str:
    return f"{width}x{height}" if width else f"{sample_rate} Hz"


# ---- FLV files, FLV 10.1 E.2 and E.3


class FlvTag(NamedTuple):
    offset: int  # of the tag in the bytes given
    type_id: int
    timestamp: int  # 32 bits, ms
    payload: bytes
    filtered: bool  # encrypted: the payload is not a tag body


class FlvFile(NamedTuple):
    has_audio: bool
    has_video: bool
    tags: list[FlvTag]
    violations: list[Fault]


_FILE_HEADER = Struct(">3sBBI")
_TAG_HEADER = Struct(">II3x")  # type and size; time, its upper byte last; stream id
_U32 = Struct(">I")


def header(audio: bool = True, video: bool = True) -> bytes:
    """The head of an FLV file with the empty back pointer that follows it."""
    return _FILE_HEADER.pack(b"FLV", 1, 4 * audio | video, 9) + bytes(4)


def dump_tag(type_id: int, timestamp: int, payload: bytes) -> bytes:
    """A tag and its back pointer; the timestamp wraps at 32 bits as FLV's does."""
    size = len(payload)
    if size > 0xFFFFFF or not 0 <= type_id < 32:
        raise EncodeError(f"FLV cannot hold a tag of type {type_id} and {size} bytes")
    time = (timestamp & 0xFFFFFF) << 8 | timestamp >> 24 & 255
    return b"".join((_U32.pack(type_id << 24 | size), _U32.pack(time), bytes(3), payload, _U32.pack(size + 11)))


def parse_header(data: bytes) -> tuple[bool, bool, int]:
    """Audio and video flags, and the offset of the first tag."""
    if not b"FLV".startswith(data[:3]):
        raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, 0, "not an FLV file: it does not start with FLV")
    if len(data) < 9:
        raise DecodeError(ViolationCode.CAPTURE_TRUNCATED, len(data), "the file ends inside its header")
    _, _, flags, size = _FILE_HEADER.unpack_from(data)
    if size < 9:
        raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, 5, f"a header of {size} bytes; FLV's has 9 or more")
    return bool(flags & 4), bool(flags & 1), size + 4


def take_tags(data: bytes, start: int) -> tuple[list[FlvTag], int]:
    """Every whole tag (with its back pointer) from `start` on, and where the first incomplete one begins."""
    tags: list[FlvTag] = []
    return tags, _take(data, start, tags, 4)


def _take(data: bytes, pos: int, tags: list[FlvTag], back_pointer: int) -> int:
    while pos + 11 <= len(data):
        word, time = _TAG_HEADER.unpack_from(data, pos)
        end = pos + 11 + (word & 0xFFFFFF)
        kind = word >> 24
        if kind & 31 not in (AUDIO, VIDEO, DATA_AMF0) or kind & 0xC0:
            detail = f"a tag of type {kind}: this cannot be the start of a tag"
            raise DecodeError(ViolationCode.CAPTURE_BAD_RECORD, pos, detail)
        if end + back_pointer > len(data):
            break
        timestamp = time >> 8 | (time & 255) << 24
        tags.append(FlvTag(pos, kind & 31, timestamp, data[pos + 11 : end], bool(kind & 32)))
        pos = end + 4
    return pos


def parse_file(data: bytes) -> FlvFile:
    """A whole file. A cut or damaged one gives everything before the damage, and says what is wrong with it."""
    has_audio, has_video, pos = parse_header(data)
    tags: list[FlvTag] = []
    try:
        pos = _take(data, pos, tags, 0)
        # a writer that was stopped may leave out the last back pointer and nothing else
        if len(data) not in (pos - 4, pos):
            raise DecodeError(ViolationCode.CAPTURE_TRUNCATED, pos, "the file ends inside a tag")
    except DecodeError as error:
        return FlvFile(has_audio, has_video, tags, [(error.code, error.code.severity, error.detail)])
    return FlvFile(has_audio, has_video, tags, [])
