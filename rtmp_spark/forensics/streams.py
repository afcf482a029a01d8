"""The measured and declared columns of `streams`, and the verdict: one word, the finding behind it, one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rtmp_spark.capture.findings import CAPTURE, CLIENT, SERVER, Finding
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.measure import StreamMeasure
from rtmp_spark.forensics.stalls import TRACK_WORDS

# What spoils a stream though it is only a warning, the worst first; and the sentence for it.
_DEGRADES: dict[ViolationCode, str] = {
    ViolationCode.TIME_STALL: "frames stopped coming for a second or more",
    ViolationCode.FLOW_ACK_STARVED: "the sender was left without acknowledgements",
    ViolationCode.TIME_SKEW: "sound and picture drift apart",
    ViolationCode.TIME_JUMP: "its timestamps leap",
    ViolationCode.TIME_BACKWARDS: "its timestamps go back",
    ViolationCode.MEDIA_TRACK_ABSENT: "a track that was announced never came",
    ViolationCode.MEDIA_START_NOT_KEY: "it starts with pictures that cannot be decoded",
    ViolationCode.MEDIA_KEY_FLAG: "its keyframe flags are wrong",
    ViolationCode.MEDIA_CONFIG_CHANGED: "its picture size or sample rate changed in mid-stream",
    ViolationCode.TCP_GAP: "bytes of it were lost on the way",
    ViolationCode.TCP_RESET: "the connection was reset",
}
# How a connection can end under a stream that was being published.
_BROKEN_OFF = {
    ("peer_vanished", CLIENT): "it broke off: the client was gone without a goodbye",
    ("peer_vanished", SERVER): "it broke off: the server reset the connection",
    ("peer_vanished", None): "it broke off: the other side, or the way to it, was gone",
    ("idle_timeout", SERVER): "it fell silent, and the server closed",
    ("unknown", SERVER): "it broke off: the server closed the connection",
}
_SKEW_PER_MINUTE, _SKEW_MINUTES, _SKEW_MS = 20.0, 1.0, 100.0


def skew_finding(measure: StreamMeasure) -> list[Finding]:
    """Sound and picture that part steadily, for a minute or more, by 100 ms in all."""
    speed = measure.drift.steady_per_minute()
    if speed is None or abs(speed) <= _SKEW_PER_MINUTE:
        return []
    minutes = measure.drift.minutes()
    if minutes < _SKEW_MINUTES or abs(speed) * minutes <= _SKEW_MS:
        return []
    sound = measure.audio
    msg_no, frame, ts = sound.place if sound is not None and sound.place else (None, None, None)
    ahead = "ahead of" if speed > 0 else "behind"
    text = f"sound runs {ahead} the picture by {abs(speed):.0f} ms a minute, {abs(speed) * minutes:.0f} ms in all"
    return [
        Finding(
            ViolationCode.TIME_SKEW, text, None, measure.author, measure.direction, measure.stream_id, msg_no, frame,
            ts, 1, f"at most {_SKEW_PER_MINUTE:.0f} ms a minute", f"{speed:.0f} ms a minute",
        )
    ]  # fmt: skip


def columns(measure: StreamMeasure, connect_ts: int | None) -> dict[str, Any]:
    """Columns of `streams` that this stream's frames fill."""
    video, audio = measure.video, measure.audio
    row: dict[str, Any] = {
        "first_is_key": measure.first_is_key if measure.start_known else None,
        "stalls": measure.stalls.count,
        "stall_ms": measure.stalls.total_us / 1000,
        "gaps": measure.gaps,
        "av_skew_ms": measure.drift.apart_ms(),
        "av_drift_ms_per_min": measure.drift.per_minute() if measure.drift.minutes() >= _SKEW_MINUTES else None,
    }
    if connect_ts is not None and measure.first_coded is not None:
        row["startup_ms"] = (measure.first_coded - connect_ts) / 1000
    if video is not None:
        row |= {"video_codec": video.codec, "width": video.width, "height": video.height}
        row |= {"fps": video.rate(), "video_bitrate": video.bitrate()}
        row |= {
            "keyframe_interval_ms_p50": video.key_gaps.median(),
            "keyframe_interval_ms_max": video.key_gaps.largest(),
        }
    if audio is not None:
        row |= {"audio_codec": audio.codec, "audio_bitrate": audio.bitrate()}
        row |= {"sample_rate": audio.sample_rate, "channels": audio.channels}
    for name, value in measure.declared.items():
        row[f"declared_{name}"] = value
    return row


def verdict(
    measure: StreamMeasure,
    refused: bool,
    known: Iterable[Finding],
    broken_off: tuple[str | None, str | None] | None = None,
) -> tuple[str, str | None, str]:
    """`known` are the findings of the connection, with their severities settled; `broken_off` is what ended the
    connection while this was being published, and who did."""
    frames = measure.frames("video") + measure.frames("audio")
    about = [f for f in known if f.stream_id in (None, measure.stream_id) and f.direction in (None, measure.direction)]
    errors = [f for f in about if f.severity is Severity.ERROR]
    if refused:
        told = next((f for f in known if f.code.value in ("CMD_REFUSED", "SESSION_BAD_NAME", "CMD_AUTH_ROUND")), None)
        if told is not None:
            return "failed", told.code.value, told.detail
        return "failed", ViolationCode.CMD_REFUSED.value, "it was refused"
    if not frames:
        if errors:
            return "failed", errors[0].code.value, errors[0].detail
        if measure.gaps or not measure.start_known:
            return "unknown", None, "not in this capture, because bytes of it are missing"
        told = next((f for f in about if f.code.value in ("SESSION_NO_MEDIA", "CMD_NO_RESPONSE")), None)
        if told is not None and told.code is ViolationCode.CMD_NO_RESPONSE:
            return "failed", told.code.value, told.detail
        return "no_media", None if told is None else told.code.value, "no media came" if told is None else told.detail
    if errors:
        return "degraded", errors[0].code.value, errors[0].detail
    lost_by_recorder = [f for f in about if f.code is ViolationCode.TCP_GAP and f.at_fault == CAPTURE]
    codes = {f.code for f in about if f.severity is not Severity.INFO and f not in lost_by_recorder}
    for code, sentence in _DEGRADES.items():
        if code in codes:
            stalls = measure.stalls
            if code is ViolationCode.TIME_STALL and not stalls.kept and stalls.of_tracks:
                sentence = "its {} stopped while the {} went on".format(*TRACK_WORDS[stalls.of_tracks[0].kind])
            return "degraded", code.value, sentence
    if broken_off in _BROKEN_OFF and not (measure.gaps and broken_off[0] == "unknown"):
        return "degraded", ViolationCode.SESSION_END.value, _BROKEN_OFF[broken_off]
    if measure.gaps:  # no fault of the stream, and none can be ruled out
        rule = ViolationCode.TCP_GAP if lost_by_recorder else ViolationCode.CAPTURE_SNAPLEN
        return "unknown", rule.value, "what was recorded of it is fine, but bytes of it are missing in the recording"
    return "ok", None, "it arrived as it should"
