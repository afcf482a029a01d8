"""The tags of one direction in order: what a tag means together with earlier ones.

The configuration in effect fills the columns of the frames that follow it, keyframes count GOPs, and a tag that
contradicts earlier ones is a fault. The state of a `TagReader` is a value. A `TagReader` never raises on peer bytes and
never decodes a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Final
from zlib import crc32

from ..errors import DecodeError, Fault, Severity, UserError, ViolationCode
from ..limits import CACHED_RECORDS, MAX_TRACKS, RECORD_BYTES
from ..message import AUDIO
from . import audio, nal, video
from .codecs import CONFIG_NEEDED, CONFIG_PARSERS, FAMILY_OF, NAL_FAMILIES
from .record import VideoConfig, bad
from .tag import MediaTag, TagHeader, Track, make_tag, read_headers

_new: Final = tuple.__new__  # builds a NamedTuple at a third of its constructor's cost


class TagReader:
    """The tags of one direction in order. With `midstream`, earlier tags were not seen, so a missing configuration is
    not reported."""

    VERSION: ClassVar[int] = 1

    __slots__ = ("_by_stream", "_midstream", "_tracks")

    def __init__(self, *, midstream: bool = False) -> None:
        self._midstream = midstream
        self._tracks: dict[tuple[int, int, int], Track] = {}
        self._by_stream: dict[int, list[tuple[int, int, int]]] = {}  # the keys of the tracks of each stream id

    def receive_gap(self) -> None:
        """Messages were lost; a configuration may have been among them."""
        self._midstream = True

    def forget(self, stream_id: int) -> None:
        """The stream was closed; the next one with its id is another stream."""
        for key in self._by_stream.pop(stream_id, ()):
            del self._tracks[key]

    def renew(self, stream_id: int) -> None:
        """The stream may restart under the same id or continue, with or without sending its configuration again."""
        for used in {stream_id, 0}:  # Node-Media-Server sends the media of stream 1 on 0
            for key in self._by_stream.get(used, ()):
                self._tracks[key].renewed = True

    def state(self) -> dict[str, Any]:
        tracks = [[*key, *(getattr(track, name) for name in Track.__slots__)] for key, track in self._tracks.items()]
        return {"version": self.VERSION, "midstream": self._midstream, "tracks": tracks}

    @classmethod
    def resume(cls, state: dict[str, Any]) -> TagReader:
        if state.get("version") != cls.VERSION:
            raise UserError("The saved state of a media stream has another version.", "Ingest its captures again.")
        self = cls(midstream=bool(state["midstream"]))
        for stream_id, type_id, track_id, *values in state["tracks"]:
            track = self._new_track((stream_id, type_id, track_id))
            for name, value in zip(Track.__slots__, values):
                setattr(track, name, value)
        return self

    def read(
        self, type_id: int, stream_id: int, timestamp: int, payload: bytes, complete: bool = True
    ) -> tuple[list[MediaTag], list[Fault]]:
        """Tags with every column filled, and their faults. Of an incomplete message only the header is used: its body
        neither configures a track nor counts as damaged."""
        if type_id == AUDIO and complete:
            track = self._tracks.get((stream_id, AUDIO, 0))
            if track is not None and track.family == "aac" and track.config is not None and len(payload) > 1:
                if payload[1] == 1 and payload[0] >> 4 == 10 and payload[2:3] != b"\xff":
                    return [_raw_aac(track, stream_id, timestamp, len(payload))], []
        faults: list[Fault] = []
        headers: list[TagHeader] = []
        reserved: list[str] = []
        try:
            read_headers(type_id, payload, headers, reserved)
        except DecodeError as error:
            if complete:
                faults.append((error.code, error.code.severity, error.detail))
        if reserved and headers:
            faults += [(ViolationCode.MEDIA_RESERVED, Severity.WARNING, detail) for detail in reserved]
        tags = []
        for found in headers:
            key = (stream_id, type_id, found.track_id)
            track = self._tracks.get(key) or self._new_track(key)
            nal_types = self._body(found, track, payload, faults) if complete else None
            if reserved and complete and found.packet_type == "frame" and found.frame_type is None:
                found = _with_frame_type(found, track, payload, nal_types)
            tags.append(make_tag(found, track, stream_id, timestamp, nal_types))
        return tags, faults

    def _new_track(self, key: tuple[int, int, int]) -> Track:
        if len(self._tracks) >= MAX_TRACKS:
            oldest = next(iter(self._tracks))
            del self._tracks[oldest]
            self._by_stream[oldest[0]].remove(oldest)
            self._midstream = True
        track = self._tracks[key] = Track()
        self._by_stream.setdefault(key[0], []).append(key)
        return track

    def _body(self, found: TagHeader, track: Track, payload: bytes, faults: list[Fault]) -> list[int] | None:
        codec, packet_type, start, end = found.codec, found.packet_type, found.start, found.end
        if codec is None or packet_type == "command":
            return None
        family = FAMILY_OF.get(codec, codec)
        if family == "hevc" and not found.enhanced:
            faults.append((ViolationCode.MEDIA_HEVC_ID12, Severity.INFO, "HEVC sent with legacy codec id 12"))
        elif family == codec and (found.enhanced or codec.startswith("unknown")):
            word = "FourCC" if found.enhanced else "codec id"
            detail = f"unknown {word} {codec.removeprefix('unknown_')}"
            faults.append((ViolationCode.MEDIA_CODEC_UNKNOWN, Severity.WARNING, detail))
            return None
        try:
            if packet_type == "frame":
                return self._frame(family, found, track, payload, faults)
            if packet_type == "config":
                _configure(family, track, payload[start:end], faults)
            elif packet_type == "multichannel_config":
                if end - start < 2:
                    raise bad(end, "the multichannel configuration ends before its channel count")
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
        if track.config is None and not self._midstream and family in CONFIG_NEEDED:
            detail = f"a frame of {found.codec} before its configuration"
            faults.append((ViolationCode.MEDIA_CONFIG_MISSING, CONFIG_NEEDED[family], detail))
        if family == "aac":
            if payload[start : start + 1] == b"\xff" and audio.is_adts(payload[:end], start):
                faults.append((ViolationCode.MEDIA_ADTS, Severity.ERROR, "an ADTS header before the raw AAC frame"))
            return None
        frame_type = found.frame_type
        key = None if frame_type is None else frame_type == "key" or frame_type == "generated"
        nal_types = random_access = None
        if family in NAL_FAMILIES:
            length_size = track.length_size
            if length_size is None:
                length_size, nal_types = _guess_nals(family, payload, start, end)
            else:
                nal_types = nal.walk_nals(payload, length_size, family, start, end)
            if key is nal.IDR_TYPES[family].isdisjoint(nal_types):  # the keyframe flag may be wrong
                random_access = nal.random_access(family, nal_types, payload, length_size, start, end)
        elif found.kind == "video":
            stop = end if family == "av1" else min(end, start + 16)
            random_access, width, height = video.frame_header(family, payload[start:stop])
            if width and height:
                track.width, track.height = width, height
        elif family in ("mp3", "ac3", "eac3"):
            format_ = audio.frame_format(family, payload, start)
            if format_:
                track.sample_rate, track.channels = format_
        if random_access is not None and key is not None and random_access != key:
            detail = "a frame is flagged as key, but a decoder cannot start at it"
            if random_access:
                detail = f"a decoder can start at a frame that is flagged as {frame_type}"
            faults.append((ViolationCode.MEDIA_KEY_FLAG, Severity.WARNING, detail))
        return nal_types


def _raw_aac(track: Track, stream_id: int, dts: int, end: int) -> MediaTag:
    """A frame of AAC after its configuration: half of the messages of most streams, and nothing to check in it."""
    return _new(
        MediaTag,
        (
            stream_id, "audio", "aac", False, 0, "frame", None, False, False, dts, None, dts, None, end - 2, None,
            track.width, track.height, track.profile, track.level, track.sample_rate or None, track.channels or None,
            None, 2, end,
        ),
    )  # fmt: skip


def _guess_nals(family: str, payload: bytes, start: int, end: int) -> tuple[int, list[int]]:
    """NAL units of a frame whose configuration was not seen: nearly all senders use lengths of 4 bytes."""
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


def _with_frame_type(found: TagHeader, track: Track, payload: bytes, nal_types: list[int] | None) -> TagHeader:
    """The header of a video frame whose frame type is reserved, with the type that the frame itself shows."""
    if found.kind != "video" or found.codec is None:
        return found
    family = FAMILY_OF.get(found.codec, found.codec)
    if nal_types is not None:
        length_size = track.length_size or _guess_nals(family, payload, found.start, found.end)[0]
        is_key = nal.is_entry_point(family, nal_types, payload, length_size, found.start, found.end)
    else:
        try:
            is_key = video.frame_header(family, payload[found.start : found.end])[0]
        except DecodeError:  # `_body` has reported it
            is_key = None
    return found if is_key is None else found._replace(frame_type="key" if is_key else "inter")


def _reset(track: Track) -> None:
    gop_no = track.gop_no
    track.__init__()  # type: ignore[misc]
    track.gop_no = gop_no


@lru_cache(CACHED_RECORDS)
def _parsed(parse: Callable[[bytes], Any], record: bytes) -> Any:
    return parse(record)


def _configure(family: str, track: Track, record: bytes, faults: list[Fault]) -> None:
    if not record and CONFIG_NEEDED.get(family) is not Severity.ERROR:
        return  # FFmpeg 7 sends an empty record for AV1 first
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
        config = _parsed(parse, record) if len(record) <= RECORD_BYTES else parse(record)
        track.profile = config.profile
        if isinstance(config, VideoConfig):
            track.level, track.width, track.height = config.level, config.width, config.height
            track.length_size = config.length_size
        else:
            track.sample_rate, track.channels = config.sample_rate, config.channels
    if changed:
        after = track.width, track.height, track.sample_rate
        visible = any(old and new and old != new for old, new in zip(before, after))
        detail = f"the {family} configuration changed during the stream"
        if visible:
            detail += f": {_format(*before)} to {_format(*after)}"
        severity = Severity.WARNING if visible else Severity.INFO
        faults.append((ViolationCode.MEDIA_CONFIG_CHANGED, severity, detail))


def _format(width: int | None, height: int | None, sample_rate: int | None) -> str:
    return f"{width}x{height}" if width else f"{sample_rate} Hz"
