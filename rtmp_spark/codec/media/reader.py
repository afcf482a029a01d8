"""The tags of one direction in their order: what a tag only means together with earlier ones.

The configuration in effect fills the columns of the frames that follow it, key frames count groups of pictures, and
what contradicts what came before is a fault. The state of a `TagReader` is a value. It never raises on peer bytes and
never decodes a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

from ..errors import DecodeError, Fault, Severity, UserError, ViolationCode
from ..message import AUDIO
from . import audio, nal, video
from .record import AudioConfig, VideoConfig, bad
from .tag import MediaTag, TagHeader, Track, make_tag, read_headers

_new = tuple.__new__  # a NamedTuple at a third of its constructor's cost

_FAMILIES = {
    "avc1": "avc", "hvc1": "hevc", "vvc1": "vvc", "av01": "av1", "vp09": "vp9", "vp08": "vp8", "mp4a": "aac",
    "Opus": "opus", "fLaC": "flac", ".mp3": "mp3", "mp3_8k": "mp3", "ac-3": "ac3", "ec-3": "eac3",
}  # fmt: skip
_NAL_CODECS = frozenset(("avc", "hevc", "vvc"))
_CONFIG_NEEDED = {
    **dict.fromkeys(("aac", "avc", "hevc", "vvc", "flac"), Severity.ERROR),
    **dict.fromkeys(("av1", "vp9"), Severity.WARNING),
}
CONFIG_PARSERS: dict[str, Callable[[bytes], VideoConfig | AudioConfig]] = {
    "avc": nal.parse_avc_config,
    "hevc": nal.parse_hevc_config,
    "vvc": nal.parse_vvc_config,
    "av1": video.parse_av1_config,
    "vp9": video.parse_vp9_config,
    "aac": audio.parse_aac_config,
    "opus": audio.parse_opus_config,
    "flac": audio.parse_flac_config,
}


class TagReader:
    """The tags of one direction in their order. `midstream`: earlier ones were not seen, so none is missed."""

    VERSION = 1
    MAX_TRACKS = 1024  # stream and track ids come from the wire; beyond this the oldest is forgotten

    __slots__ = ("_midstream", "_tracks")

    def __init__(self, *, midstream: bool = False) -> None:
        self._midstream = midstream
        self._tracks: dict[tuple[int, int, int], Track] = {}

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
        tracks = [[*key, *(getattr(track, name) for name in Track.__slots__)] for key, track in self._tracks.items()]
        return {"version": self.VERSION, "midstream": self._midstream, "tracks": tracks}

    @classmethod
    def resume(cls, state: dict[str, Any]) -> TagReader:
        if state.get("version") != cls.VERSION:
            raise UserError("The saved state of a media stream is of another version.", "Ingest its captures again.")
        reader = cls(midstream=bool(state["midstream"]))
        for stream_id, type_id, track_id, *values in state["tracks"]:
            track = reader._tracks[stream_id, type_id, track_id] = Track()
            for name, value in zip(Track.__slots__, values):
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
        headers: list[TagHeader] = []
        try:
            read_headers(type_id, payload, headers)
        except DecodeError as error:
            if complete:
                faults.append((error.code, error.code.severity, error.detail))
        tags = []
        for found in headers:
            key = (stream_id, type_id, found.track_id)
            track = self._tracks.get(key) or self._new_track(key)
            nal_types = self._body(found, track, payload, faults) if complete else None
            tags.append(make_tag(found, track, stream_id, timestamp, nal_types))
        return tags, faults

    def _new_track(self, key: tuple[int, int, int]) -> Track:
        if len(self._tracks) >= self.MAX_TRACKS:
            del self._tracks[next(iter(self._tracks))]
            self._midstream = True
        track = self._tracks[key] = Track()
        return track

    def _body(self, found: TagHeader, track: Track, payload: bytes, faults: list[Fault]) -> list[int] | None:
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
                    raise bad(end, "a multichannel configuration that ends before its channel count")
                track.channels = payload[start + 1]
        except DecodeError as error:
            faults.append((error.code, error.code.severity, error.detail))
        return None

    def _frame(
        self, family: str, found: TagHeader, track: Track, payload: bytes, faults: list[Fault]
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
            if payload[start : start + 1] == b"\xff" and audio.is_adts(payload[:end], start):
                faults.append((ViolationCode.MEDIA_ADTS, Severity.ERROR, "an ADTS header in front of raw AAC"))
            return None
        key = found.frame_type == "key" or found.frame_type == "generated"
        nal_types = random_access = None
        if family in _NAL_CODECS:
            length_size = track.length_size
            if length_size is None:
                length_size, nal_types = _guess_nals(family, payload, start, end)
            else:
                nal_types = nal.walk_nals(payload, length_size, family, start, end)
            if key is nal.IDR_TYPES[family].isdisjoint(nal_types):  # the flag is in doubt
                random_access = nal.random_access(family, nal_types, payload, length_size, start, end)
        elif found.kind == "video":
            stop = end if family == "av1" else min(end, start + 16)
            random_access, width, height = video.picture(family, payload[start:stop])
            if width and height:
                track.width, track.height = width, height
        elif family in ("mp3", "ac3", "eac3"):
            heard = audio.sound(family, payload, start)
            if heard:
                track.sample_rate, track.channels = heard
        if random_access is not None and random_access != key:
            detail = "a frame flagged as key that no decoder can start at"
            if random_access:
                detail = f"a random-access picture flagged as {found.frame_type}"
            faults.append((ViolationCode.MEDIA_KEY_FLAG, Severity.WARNING, detail))
        return nal_types


def _raw_aac(track: Track, stream_id: int, dts: int, end: int) -> MediaTag:
    """A frame of AAC after its configuration: every other message of most streams, and nothing to find in it."""
    return _new(
        MediaTag,
        (
            stream_id, "audio", "aac", False, 0, "frame", None, False, False, dts, None, dts, None, end - 2, None,
            track.width, track.height, track.profile, track.level, track.sample_rate or None, track.channels or None,
            None, 2, end,
        ),
    )  # fmt: skip


def _guess_nals(family: str, payload: bytes, start: int, end: int) -> tuple[int, list[int]]:
    """The configuration was not seen: nearly all senders use lengths of 4 bytes."""
    try:
        return 4, nal.walk_nals(payload, 4, family, start, end)
    except DecodeError as error:
        if error.code is not ViolationCode.MEDIA_ANNEXB:
            for other in (2, 3):
                try:
                    return other, nal.walk_nals(payload, other, family, start, end)
                except DecodeError:
                    continue
        raise


def _reset(track: Track) -> None:
    gop_no = track.gop_no
    track.__init__()  # type: ignore[misc]
    track.gop_no = gop_no


_REPEATED_BYTES = 4096


@lru_cache(256)  # encoders send the same record with every connection
def _parsed(parse: Callable[[bytes], Any], record: bytes) -> Any:
    return parse(record)


def _configure(family: str, track: Track, record: bytes, faults: list[Fault]) -> None:
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
    parse = CONFIG_PARSERS.get(family)
    if parse is not None:
        config = _parsed(parse, record) if len(record) <= _REPEATED_BYTES else parse(record)
        track.profile = config.profile
        if isinstance(config, VideoConfig):
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
