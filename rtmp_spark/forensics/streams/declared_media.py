"""What onMetaData says against what the stream holds: MEDIA_DECLARED, MEDIA_TRACK_ABSENT.

Metadata is read for what it says, not believed: zeros and empty texts declare nothing. A rule is silent where the
bitstream does not tell the same thing exactly (sample rates in legacy tag headers are classes, not rates).
"""

from __future__ import annotations

from typing import Any

from rtmp_spark.capture import arguments
from rtmp_spark.capture.facts import noted
from rtmp_spark.capture.findings import Finding
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.media.tag import AUDIO_FORMATS, AUDIO_FOURCC, VIDEO_CODECS, VIDEO_FOURCC
from rtmp_spark.forensics.measure import StreamMeasure
from rtmp_spark.forensics.track import Track

FAMILIES = {
    "avc1": "avc", "hvc1": "hevc", "vvc1": "vvc", "av01": "av1", "vp09": "vp9", "vp08": "vp8", "mp4a": "aac",
    "Opus": "opus", "fLaC": "flac", ".mp3": "mp3", "mp3_8k": "mp3", "ac-3": "ac3", "ec-3": "eac3",
    "nellymoser_16k": "nellymoser", "nellymoser_8k": "nellymoser",
}  # fmt: skip
_EXACT_RATES = frozenset(("aac", "mp3", "opus", "flac", "ac3", "eac3"))
_FPS_MEDIA_MS = 5000
_ABSENT_MEDIA_MS = 2000
_NUMBERS = {
    "width": "width",
    "height": "height",
    "framerate": "fps",
    "videodatarate": "video_bitrate",
    "audiodatarate": "audio_bitrate",
    "audiosamplerate": "sample_rate",
}


@noted
def declaration(args: list[Any]) -> dict[str, Any] | None:
    """What the first object among the arguments of onMetaData declares; None where there is none."""
    given = next(filter(None, map(arguments.fields, args)), None)
    return None if given is None else read_metadata(given)


def read_metadata(fields: dict[str, Any]) -> dict[str, Any]:
    """The declared_* columns of `streams` that these fields of onMetaData fill, by the name of the measured one."""
    declared: dict[str, Any] = {}
    for name, column in _NUMBERS.items():
        value = _number(fields.get(name))
        if value is not None and value > 0:
            declared[column] = value * 1000 if column.endswith("bitrate") else value
    if "fps" not in declared and (fps := _number(fields.get("fps"))):
        declared["fps"] = fps
    channels = _number(fields.get("audiochannels"))
    if channels:
        declared["channels"] = channels
    elif isinstance(fields.get("stereo"), bool) and _codec(fields.get("audiocodecid"), "audio"):
        declared["channels"] = 2 if fields["stereo"] else 1
    for kind in ("video", "audio"):
        codec = _codec(fields.get(f"{kind}codecid"), kind)
        if codec is not None:
            declared[f"{kind}_codec"] = codec
    for column in ("width", "height", "sample_rate", "channels"):
        if column in declared:
            if declared[column] < 2**31:
                declared[column] = int(declared[column])
            else:
                del declared[column]
    return declared


def _number(value: Any) -> float | None:
    """A finite number, also one in a text; anything else declares nothing."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e15 else None


def _codec(value: Any, kind: str) -> str | None:
    """The codec that an id means: a FourCC as text or number, or the id of a legacy tag."""
    known = AUDIO_FOURCC if kind == "audio" else VIDEO_FOURCC
    if isinstance(value, str):
        return value if value in known else None
    number = _number(value)
    if number is None or number != int(number) or number <= 0:
        return None
    if number > 0xFFFFFF:
        return next((code for code in known if int.from_bytes(code.encode(), "big") == number), None)
    legacy = AUDIO_FORMATS if kind == "audio" else VIDEO_CODECS
    return legacy[int(number)] if number < len(legacy) and not legacy[int(number)].startswith("unknown") else None


def family(codec: str | None) -> str | None:
    return FAMILIES.get(codec, codec) if codec is not None else None


def contradictions(measure: StreamMeasure) -> list[Finding]:
    found: list[Finding] = []
    declared = measure.declared
    video, audio = measure.video, measure.audio

    def say(what: str, said: str, is_so: str) -> None:
        found.append(
            Finding(
                ViolationCode.MEDIA_DECLARED, f"onMetaData says {what} {said}, the stream has {is_so}", None,
                measure.author, measure.direction, measure.stream_id, declared.get("msg_no"), declared.get("frame"),
                declared.get("ts"), 1, said, is_so,
            )
        )  # fmt: skip

    for kind, track in (("video", video), ("audio", audio)):
        said = declared.get(f"{kind}_codec")
        if track is not None and track.frames and said is not None and track.codec is not None:
            if family(said) != family(track.codec) and not track.codec.startswith("unknown"):
                say(f"{kind} codec", said, track.codec)
    if video is not None and video.sizes and "width" in declared and "height" in declared:
        size = [declared["width"], declared["height"]]
        if size not in video.sizes:
            say("picture size", f"{size[0]}x{size[1]}", " and ".join(f"{w}x{h}" for w, h in video.sizes))
    if audio is not None and audio.rates and family(audio.codec) in _EXACT_RATES and "sample_rate" in declared:
        rate = declared["sample_rate"]
        if not any(rate in (one, 2 * one) or 2 * rate == one for one in audio.rates):
            say("sample rate", f"{rate} Hz", " and ".join(f"{one} Hz" for one in audio.rates))
    if video is not None and video.elapsed >= _FPS_MEDIA_MS and "fps" in declared and not measure.gaps:
        rates = [rate for rate in (video.rate(), video.steady_rate()) if rate]
        said = declared["fps"]
        if len(rates) == 2 and all(abs(rate - said) > 0.1 * said for rate in rates):
            say("frame rate", f"{said:g}", f"{rates[0]:.2f}")
    return found


def absent_tracks(measure: StreamMeasure) -> list[Finding]:
    """Announced by onMetaData or by a configuration, and no frame of it while the other track came."""
    if measure.gaps or not measure.start_known:
        return []
    found: list[Finding] = []
    longest = max((track.elapsed for track in measure.tracks.values()), default=0)
    if longest < _ABSENT_MEDIA_MS:
        return []
    for kind in ("video", "audio"):
        if measure.frames(kind):
            continue
        track: Track | None = measure.video if kind == "video" else measure.audio
        msg_no, frame, ts = (measure.declared.get(name) for name in ("msg_no", "frame", "ts"))
        if track is not None and track.configs:
            by = "its configuration was sent"
            msg_no, frame, ts = track.place or (msg_no, frame, ts)
        elif f"{kind}_codec" in measure.declared:
            by = "onMetaData announces it"
        else:
            continue
        found.append(
            Finding(
                ViolationCode.MEDIA_TRACK_ABSENT, f"no {kind} frame came in {longest / 1000:.1f} s, though {by}", None,
                measure.author, measure.direction, measure.stream_id, msg_no, frame, ts, 1,
                f"{kind} frames", "none",
            )
        )  # fmt: skip
    return found
