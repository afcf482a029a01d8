"""What was announced against what came: onMetaData, the decoder configuration, and the wire.

Numbers come from `streams` where rules have filled them, else from the media rows. A cell that disagrees is flagged
here only when the two values cannot both be true; whether that matters is for the findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rtmp_spark.report import text
from rtmp_spark.report.ladder import pairs, parse_args
from rtmp_spark.report.media import StreamMedia, TrackFacts

Row = dict[str, Any]
_METADATA = ("onMetaData", "@setDataFrame")
_VIDEO_IDS = {2: "h263", 3: "screen", 4: "vp6", 5: "vp6a", 6: "screen2", 7: "avc", 12: "hevc"}
_AUDIO_IDS = {0: "pcm", 1: "adpcm", 2: "mp3", 3: "pcm_le", 7: "g711a", 8: "g711u", 10: "aac", 11: "speex", 14: "mp3_8k"}
_SAME = {"avc1": "avc", "hvc1": "hevc", "hev1": "hevc", "mp4a": "aac", ".mp3": "mp3", "h264": "avc"}


@dataclass
class Line:
    """One property: as declared, by the configuration record, on the wire."""

    name: str
    declared: str
    configured: str
    measured: str
    differs: bool = False


def metadata(commands: Sequence[Row], direction: str, stream_id: int) -> dict[str, Any]:
    """The properties of the first onMetaData of a stream; empty when there was none."""
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
    seconds = max((track.seconds for track in tracks.values()), default=None)
    declared = _number(meta.get("duration"))
    if seconds is not None or declared:
        shown = text.MISSING if not declared else text.span(declared * 1000)
        out.append(Line("duration", shown, "", text.span(None if seconds is None else seconds * 1000)))
    if "encoder" in meta:
        out.append(Line("encoder", text.harmless(meta["encoder"], 120), "", ""))
    return out


def _video(meta: dict[str, Any], track: TrackFacts | None, stream: Row) -> list[Line]:
    codec = track.codec if track else None
    declared = codec_name(meta.get("videocodecid"), _VIDEO_IDS)
    configured = _size(track.width, track.height) if track else text.MISSING
    announced = _size(meta.get("width"), meta.get("height"))
    profile = "" if track is None or track.profile is None else f"profile {track.profile}, level {track.level}"
    fps = stream.get("fps") or (track.rate if track else None)
    rate = _number(meta.get("framerate")) or _number(meta.get("fps"))
    far = bool(fps and rate and track and track.seconds > 5 and abs(fps - rate) > 0.1 * rate)
    bits = stream.get("video_bitrate") or (track.bitrate if track else None)
    found = [
        Line("video codec", declared or text.MISSING, profile, _codec(track), _unlike(declared, codec)),
        Line("picture size", announced, configured, _changes(track), _both(announced, configured)),
        Line("frames a second", text.number(rate), "", text.number(fps, 4), far),
        Line("video bitrate", _kilobits(meta.get("videodatarate")), "", text.bitrate(bits)),
    ]
    if track is not None and track.keys:
        interval = f"{text.span(track.key_interval_p50)} median, {text.span(track.key_interval_max)} longest"
        found.append(Line("key frames", "", "", f"{track.keys:,}; {interval}" if track.keys > 1 else "1"))
    return found


def _audio(meta: dict[str, Any], track: TrackFacts | None, stream: Row) -> list[Line]:
    codec = track.codec if track else None
    declared = codec_name(meta.get("audiocodecid"), _AUDIO_IDS)
    rate, announced = (track.sample_rate if track else None), _number(meta.get("audiosamplerate"))
    differs = rate is not None and bool(announced) and announced not in (rate, 2 * rate)
    stereo = meta.get("stereo")
    channels = "2" if stereo is True else "1" if stereo is False else text.number(_number(meta.get("audiochannels")))
    bits = stream.get("audio_bitrate") or (track.bitrate if track else None)
    own = text.number(track.channels if track else None)
    return [
        Line("audio codec", declared or text.MISSING, "", _codec(track), _unlike(declared, codec)),
        Line("sample rate", _hertz(announced), _hertz(rate), "", differs),
        Line("channels", channels, own, "", _both(channels, own)),
        Line("audio bitrate", _kilobits(meta.get("audiodatarate")), "", text.bitrate(bits)),
    ]


def codec_name(value: Any, names: dict[int, str]) -> str | None:
    """A codec of onMetaData: a number of FLV, a FourCC as number or text."""
    if isinstance(value, str):
        return text.harmless(value, 40)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    whole = int(value)
    if whole in names:
        return names[whole]
    if whole > 0xFFFFFF and whole < 1 << 32:
        return text.harmless(whole.to_bytes(4, "big").decode("latin-1"), 8)
    return f"number {whole}"


def _both(one: str, other: str) -> bool:
    """Both are known and differ."""
    return text.MISSING not in (one, other) and one != other


def _unlike(declared: str | None, codec: str | None) -> bool:
    if not declared or not codec:
        return False
    return _SAME.get(declared.lower(), declared.lower()) != _SAME.get(codec.lower(), codec.lower())


def _codec(track: TrackFacts | None) -> str:
    if track is None or not track.frames:
        return "none came"
    many = f", {track.tracks} tracks" if track.tracks > 1 else ""
    return f"{text.harmless(track.codec, 20)}{' (enhanced header)' if track.enhanced else ''}{many}"


def _changes(track: TrackFacts | None) -> str:
    if track is None or len(track.sizes_seen) < 2:
        return ""
    return "changed: " + ", ".join(track.sizes_seen[:6])


def _size(width: Any, height: Any) -> str:
    w, h = _number(width), _number(height)
    return f"{w:g}×{h:g}" if w and h else text.MISSING


def _kilobits(value: Any) -> str:
    rate = _number(value)
    return text.bitrate(rate * 1000) if rate else text.MISSING


def _hertz(value: float | None) -> str:
    return f"{value:,.0f} Hz" if value else text.MISSING


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e15:
        return float(value)
    return None
