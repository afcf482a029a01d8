"""MEDIA_DECLARED, MEDIA_TRACK_ABSENT: onMetaData compared with the stream.

Zeros and empty strings in metadata declare nothing. A value is compared only if the bitstream contains it exactly:
sample rates in legacy tag headers are classes, not rates.
"""

from __future__ import annotations

from typing import Final, cast

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.json_value import Json
from rtmp_spark.codec.media.codecs import AUDIO_FORMATS, AUDIO_FOURCC, FAMILY_OF, VIDEO_CODECS, VIDEO_FOURCC
from rtmp_spark.codec.shared_arguments import noted
from rtmp_spark.conversation import command_arguments
from rtmp_spark.forensics.findings import Finding
from rtmp_spark.forensics.streams.stream_measure import Declared, StreamMeasure
from rtmp_spark.forensics.thresholds import ABSENT_MEDIA_MS, DECLARED_FPS_MEDIA_MS, DECLARED_FPS_SHARE

FAMILIES: Final = {**FAMILY_OF, "nellymoser_16k": "nellymoser", "nellymoser_8k": "nellymoser"}
_EXACT_RATES: Final = frozenset(("aac", "mp3", "opus", "flac", "ac3", "eac3"))
# Fields of onMetaData with numbers, and the columns of `streams` that they declare.
_NUMBERS: Final = {
    "width": "width",
    "height": "height",
    "framerate": "fps",
    "videodatarate": "video_bitrate",
    "audiodatarate": "audio_bitrate",
    "audiosamplerate": "sample_rate",
}


@noted
def declaration(args: list[Json]) -> Declared | None:
    """What the first object among the arguments of onMetaData declares; None without an object."""
    given = next(filter(None, map(command_arguments.fields, args)), None)
    return None if given is None else read_metadata(given)


def read_metadata(fields: dict[str, Json]) -> Declared:
    """The declared_* columns of `streams` for these fields of onMetaData, by the name of the measured column."""
    declared: dict[str, float] = {}
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
    codecs = {f"{kind}_codec": _codec(fields.get(f"{kind}codecid"), kind) for kind in ("video", "audio")}
    for column in ("width", "height", "sample_rate", "channels"):
        if column in declared:
            if declared[column] < 2**31:
                declared[column] = int(declared[column])
            else:
                del declared[column]
    return cast("Declared", declared | {column: codec for column, codec in codecs.items() if codec is not None})


def _number(value: Json) -> float | None:
    """A finite number, also one in a string; None for anything else, which declares nothing."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e15 else None


def _codec(value: Json, kind: str) -> str | None:
    """The codec of an id in metadata: a FourCC as string or number, or the codec id of a legacy tag."""
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
    """One name for the legacy and enhanced names of a codec."""
    return FAMILIES.get(codec, codec) if codec is not None else None


def contradictions(measure: StreamMeasure) -> list[Finding]:
    """Return the findings MEDIA_DECLARED of a stream."""
    found: list[Finding] = []
    declared = measure.declared
    if not declared:
        return []
    video, audio = measure.video, measure.audio

    def report(what: str, said: str, measured: str) -> None:
        found.append(
            Finding(
                ViolationCode.MEDIA_DECLARED, f"onMetaData declares {what} {said}, the stream has {measured}", None,
                measure.author, measure.direction, measure.stream_id, declared.get("msg_no"), declared.get("frame"),
                declared.get("ts"), 1, said, measured,
            )
        )  # fmt: skip

    codecs = declared.get("video_codec"), declared.get("audio_codec")
    for kind, track, said in (("video", video, codecs[0]), ("audio", audio, codecs[1])):
        if track is not None and track.frames and said is not None and track.codec is not None:
            if family(said) != family(track.codec) and not track.codec.startswith("unknown"):
                report(f"{kind} codec", said, track.codec)
    if video is not None and video.sizes and "width" in declared and "height" in declared:
        size = [declared["width"], declared["height"]]
        if size not in video.sizes:
            report("resolution", f"{size[0]}x{size[1]}", " and ".join(f"{w}x{h}" for w, h in video.sizes))
    if audio is not None and audio.rates and family(audio.codec) in _EXACT_RATES and "sample_rate" in declared:
        rate = declared["sample_rate"]
        if not any(rate in (one, 2 * one) or 2 * rate == one for one in audio.rates):
            report("sample rate", f"{rate} Hz", " and ".join(f"{one} Hz" for one in audio.rates))
    if video is not None and video.elapsed >= DECLARED_FPS_MEDIA_MS and "fps" in declared and not measure.gaps:
        rates = [rate for rate in (video.rate(), video.rate_without_pauses()) if rate]
        fps = declared["fps"]
        if len(rates) == 2 and all(abs(rate - fps) > DECLARED_FPS_SHARE * fps for rate in rates):
            report("frame rate", f"{fps:g}", f"{rates[0]:.2f}")
    return found


def absent_tracks(measure: StreamMeasure) -> list[Finding]:
    """Return the findings MEDIA_TRACK_ABSENT of a stream: a track that was announced has no frame, the other has."""
    if measure.gaps or not measure.start_known:
        return []
    found: list[Finding] = []
    longest = max((track.elapsed for track in measure.tracks.values()), default=0)
    if longest < ABSENT_MEDIA_MS:
        return []
    for kind in ("video", "audio"):
        if measure.frames(kind):
            continue
        track = measure.video if kind == "video" else measure.audio
        declared = measure.declared
        msg_no, frame, ts = declared.get("msg_no"), declared.get("frame"), declared.get("ts")
        if track is not None and track.configs:
            announced = "its configuration was sent"
            msg_no, frame, ts = track.place or (msg_no, frame, ts)
        elif f"{kind}_codec" in declared:
            announced = "onMetaData declares it"
        else:
            continue
        found.append(
            Finding(
                ViolationCode.MEDIA_TRACK_ABSENT, f"no {kind} frame in {longest / 1000:.1f} s, although {announced}",
                None,
                measure.author, measure.direction, measure.stream_id, msg_no, frame, ts, 1,
                f"{kind} frames", "none",
            )
        )  # fmt: skip
    return found
