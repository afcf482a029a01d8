"""Media properties in three columns: declared by onMetaData, declared by the decoder configuration, measured.

Measured numbers come from `streams` where it has them, else from the media rows. A line is marked as different only if
the values contradict each other; the findings say whether the difference matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rtmp_spark.codec.media.codecs import AUDIO_FORMATS, FAMILY_OF, VIDEO_CODECS
from rtmp_spark.report import page_text, units
from rtmp_spark.report.ladder import pairs, parse_args
from rtmp_spark.report.media_summary import StreamMedia, TrackFacts

Row = dict[str, Any]
_METADATA = ("onMetaData", "@setDataFrame")
_VIDEO_IDS = {number: name for number, name in enumerate(VIDEO_CODECS) if not name.startswith("unknown")}
_AUDIO_IDS = {number: name for number, name in enumerate(AUDIO_FORMATS) if not name.startswith("unknown")}
# Names of one codec, in lower case: FourCCs, and what encoders write in onMetaData.
_SAME = {**{code.lower(): family for code, family in FAMILY_OF.items()}, "hev1": "hevc", "h264": "avc"}


@dataclass
class Line:
    """One property: in onMetaData, in the configuration record, measured."""

    name: str
    declared: str
    configured: str
    measured: str
    differs: bool = False


def metadata(commands: Sequence[Row], direction: str, stream_id: int) -> dict[str, Any]:
    """The properties of the first onMetaData of a stream, or an empty dict."""
    for row in commands:
        if row["name"] in _METADATA and row["direction"] == direction and row["stream_id"] == stream_id:
            found = [pairs(value) for value in parse_args(row["args"]) if isinstance(value, dict)]
            if found:
                return found[0]
    return {}


def lines(meta: dict[str, Any], media: StreamMedia | None, stream: Row | None) -> list[Line]:
    tracks = {track.kind: track for track in media.tracks} if media is not None else {}
    video, audio = tracks.get("video"), tracks.get("audio")
    stream = stream or {}
    out: list[Line] = []
    if video is not None or "videocodecid" in meta or meta.get("width"):
        out += _video(meta, video, stream)
    if audio is not None or "audiocodecid" in meta:
        out += _audio(meta, audio, stream)
    out += _rates(stream)
    seconds = max((track.seconds for track in tracks.values()), default=None)
    declared = _number(meta.get("duration"))
    if seconds is not None or declared:
        shown = units.MISSING if not declared else units.duration(declared * 1000)
        out.append(Line("duration", shown, "", units.duration(None if seconds is None else seconds * 1000)))
    if "encoder" in meta:
        out.append(Line("encoder", page_text.printable(meta["encoder"], 120), "", ""))
    return out


def _video(meta: dict[str, Any], track: TrackFacts | None, stream: Row) -> list[Line]:
    codec = track.codec if track else None
    declared = codec_name(meta.get("videocodecid"), _VIDEO_IDS)
    configured = _size(track.width, track.height) if track else units.MISSING
    announced = _size(meta.get("width"), meta.get("height"))
    profile = "" if track is None or track.profile is None else f"profile {track.profile}, level {track.level}"
    fps = stream.get("fps") or (track.rate if track else None)
    rate = _number(meta.get("framerate")) or _number(meta.get("fps"))
    far = bool(fps and rate and track and track.seconds > 5 and abs(fps - rate) > 0.1 * rate)
    bits = stream.get("video_bitrate") or (track.bitrate if track else None)
    found = [
        Line("video codec", declared or units.MISSING, profile, _codec(track), _unlike(declared, codec)),
        Line("resolution", announced, configured, _changes(track), _both(announced, configured)),
        Line("frame rate", units.number(rate), "", units.number(fps, 4), far),
        Line("video bitrate", _kilobits(meta.get("videodatarate")), "", units.bitrate(bits)),
    ]
    if track is not None and track.keys:
        interval = f"{units.duration(track.key_interval_p50)} median, {units.duration(track.key_interval_max)} longest"
        found.append(Line("keyframes", "", "", f"{track.keys:,}; {interval}" if track.keys > 1 else "1"))
    return found


def _audio(meta: dict[str, Any], track: TrackFacts | None, stream: Row) -> list[Line]:
    codec = track.codec if track else None
    declared = codec_name(meta.get("audiocodecid"), _AUDIO_IDS)
    rate, announced = (track.sample_rate if track else None), _number(meta.get("audiosamplerate"))
    differs = rate is not None and bool(announced) and announced not in (rate, 2 * rate)
    stereo = meta.get("stereo")
    channels = "2" if stereo is True else "1" if stereo is False else units.number(_number(meta.get("audiochannels")))
    bits = stream.get("audio_bitrate") or (track.bitrate if track else None)
    own = units.number(track.channels if track else None)
    return [
        Line("audio codec", declared or units.MISSING, "", _codec(track), _unlike(declared, codec)),
        Line("sample rate", _hertz(announced), _hertz(rate), "", differs),
        Line("channels", channels, own, "", _both(channels, own)),
        Line("audio bitrate", _kilobits(meta.get("audiodatarate")), "", units.bitrate(bits)),
    ]


def _rates(stream: Row) -> list[Line]:
    """The bitrate by media time and by wall time, and media time over wall time."""
    received, pace = stream.get("received_bitrate"), stream.get("pace")
    if received is None:
        return []
    return [
        Line("encoded bitrate", "", "", units.bitrate(units.encoded_bitrate(stream))),
        Line("received bitrate", "", "", units.bitrate(received)),
        Line("pace", "", "", units.MISSING if pace is None else f"{pace:.2f} x real time"),
    ]


def codec_name(value: Any, names: dict[int, str]) -> str | None:
    """The codec that onMetaData names: an FLV codec id, or a FourCC as number or text."""
    if isinstance(value, str):
        return page_text.printable(value, 40)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    whole = int(value)
    if whole in names:
        return names[whole]
    if whole > 0xFFFFFF and whole < 1 << 32:
        return page_text.printable(whole.to_bytes(4, "big").decode("latin-1"), 8)
    return f"number {whole}"


def _both(one: str, other: str) -> bool:
    """True if both values are known and differ."""
    return units.MISSING not in (one, other) and one != other


def _unlike(declared: str | None, codec: str | None) -> bool:
    if not declared or not codec:
        return False
    return _SAME.get(declared.lower(), declared.lower()) != _SAME.get(codec.lower(), codec.lower())


def _codec(track: TrackFacts | None) -> str:
    if track is None or not track.frames:
        return "no frames"
    many = f", {track.tracks} tracks" if track.tracks > 1 else ""
    return f"{page_text.printable(track.codec, 20)}{' (enhanced header)' if track.enhanced else ''}{many}"


def _changes(track: TrackFacts | None) -> str:
    if track is None or len(track.sizes_seen) < 2:
        return ""
    return "changed: " + ", ".join(track.sizes_seen[:6])


def _size(width: Any, height: Any) -> str:
    w, h = _number(width), _number(height)
    return f"{w:g}×{h:g}" if w and h else units.MISSING


def _kilobits(value: Any) -> str:
    rate = _number(value)
    return units.bitrate(rate * 1000) if rate else units.MISSING


def _hertz(value: float | None) -> str:
    return f"{value:,.0f} Hz" if value else units.MISSING


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e15:
        return float(value)
    return None
