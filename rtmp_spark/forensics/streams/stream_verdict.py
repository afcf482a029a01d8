"""The measured and declared columns of `streams`, and the verdict: a word, the rule it is based on, and a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.facts import CLIENT, SERVER
from rtmp_spark.forensics.findings import CAPTURE, Finding
from rtmp_spark.forensics.position import NO_POSITION
from rtmp_spark.forensics.streams.stalls import OTHER_KIND
from rtmp_spark.forensics.streams.stream_measure import StreamMeasure
from rtmp_spark.forensics.streams.track import Track
from rtmp_spark.forensics.thresholds import SKEW_MINUTES, SKEW_MS, SKEW_MS_PER_MINUTE

# Warnings that degrade a stream, the worst first, and their texts. Texts of verdicts start in lower case, like details.
_DETAILED: Final = (ViolationCode.TIME_SLOW, ViolationCode.TIME_STALL)  # whose details say what was seen of the cause
_DEGRADES: Final[dict[ViolationCode, str]] = {
    ViolationCode.TIME_SLOW: "media arrives slower than real time",
    ViolationCode.TIME_STALL: "no frames arrived for a second or more",
    ViolationCode.FLOW_ACK_STARVED: "the sender received no Acknowledgements",
    ViolationCode.TIME_SKEW: "audio and video drift apart",
    ViolationCode.TIME_JUMP: "timestamps jump",
    ViolationCode.TIME_BACKWARDS: "timestamps go backwards",
    ViolationCode.MEDIA_TRACK_ABSENT: "an announced track has no frames",
    ViolationCode.MEDIA_START_NOT_KEY: "the stream starts with frames that cannot be decoded",
    ViolationCode.MEDIA_KEY_FLAG: "keyframe flags are wrong",
    ViolationCode.MEDIA_CONFIG_CHANGED: "the resolution or sample rate changed mid-stream",
    ViolationCode.TCP_GAP: "the network lost data of the stream",
    ViolationCode.TCP_LOSS: "the network lost packets, which were retransmitted",
    ViolationCode.TCP_RESET: "the connection was reset",
}
# Texts for the end of a connection while a stream was being published, by close_cause and closed_by.
_BROKEN_OFF: Final = {
    ("peer_vanished", CLIENT): "the client disconnected without FCUnpublish or deleteStream",
    ("peer_vanished", SERVER): "the server reset the connection during the stream",
    ("peer_vanished", None): "the other side or the link to it disappeared during the stream",
    ("idle_timeout", SERVER): "the publisher stopped sending, and the server closed the connection",
    ("unknown", SERVER): "the server closed the connection during the stream",
}
_REFUSALS: Final = (
    ViolationCode.CMD_REFUSED, ViolationCode.CMD_STREAM_NAME, ViolationCode.CMD_STREAM_ID,
    ViolationCode.SESSION_BAD_NAME, ViolationCode.CMD_AUTH_ROUND,
)  # fmt: skip
_SEVERITIES: Final = tuple(Severity)  # worst first
_NO_TRACK: Final = Track("")
_new: Final = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
_NO_MEDIA: Final = (ViolationCode.SESSION_NO_MEDIA, ViolationCode.CMD_NO_RESPONSE)


class StreamVerdict(NamedTuple):
    """`verdict`, `verdict_rule_id` and `verdict_text` of a row of `streams`."""

    word: str
    rule_id: str | None
    text: str


class StreamColumns(NamedTuple):
    """Columns of `streams` that are measured on the frames of a stream or declared in onMetaData, and the verdict."""

    video_codec: str | None = None
    declared_video_codec: str | None = None
    audio_codec: str | None = None
    declared_audio_codec: str | None = None
    width: int | None = None
    declared_width: int | None = None
    height: int | None = None
    declared_height: int | None = None
    fps: float | None = None
    declared_fps: float | None = None
    video_bitrate: float | None = None
    declared_video_bitrate: float | None = None
    audio_bitrate: float | None = None
    declared_audio_bitrate: float | None = None
    sample_rate: int | None = None
    declared_sample_rate: int | None = None
    channels: int | None = None
    declared_channels: int | None = None
    keyframe_interval_ms_p50: float | None = None
    keyframe_interval_ms_max: int | None = None
    av_skew_ms: float | None = None
    av_drift_ms_per_min: float | None = None
    startup_ms: float | None = None
    first_is_key: bool | None = None
    stalls: int | None = None
    stall_ms: float | None = None
    gaps: int = 0
    verdict: str = "unknown"
    verdict_rule_id: str | None = None
    verdict_text: str | None = None
    pace: float | None = None
    received_bitrate: float | None = None


def skew_finding(measure: StreamMeasure) -> list[Finding]:
    """Return the finding TIME_SKEW if audio and video drift apart steadily."""
    speed = measure.drift.steady_per_minute()
    if speed is None or abs(speed) <= SKEW_MS_PER_MINUTE:
        return []
    minutes = measure.drift.minutes()
    if minutes < SKEW_MINUTES or abs(speed) * minutes <= SKEW_MS:
        return []
    audio = measure.audio
    position = audio.place if audio is not None and audio.place else NO_POSITION
    ahead = "ahead of" if speed > 0 else "behind"
    text = f"audio drifts {ahead} video by {abs(speed):.0f} ms per minute, {abs(speed) * minutes:.0f} ms in total"
    return [
        Finding(
            ViolationCode.TIME_SKEW, text, None, measure.author, measure.direction, measure.stream_id, *position,
            expected=f"at most {SKEW_MS_PER_MINUTE:.0f} ms per minute", actual=f"{speed:.0f} ms per minute",
        )
    ]  # fmt: skip


def columns(measure: StreamMeasure, connect_ts: int | None, verdict: StreamVerdict) -> StreamColumns:
    video, audio, declared = measure.video or _NO_TRACK, measure.audio or _NO_TRACK, measure.declared.get
    drift, started = measure.drift, measure.first_coded
    return _new(
        StreamColumns,
        (
            video.codec, declared("video_codec"), audio.codec, declared("audio_codec"),
            video.width, declared("width"), video.height, declared("height"),
            video.rate(), declared("fps"), video.bitrate(), declared("video_bitrate"),
            audio.bitrate(), declared("audio_bitrate"),
            audio.sample_rate, declared("sample_rate"), audio.channels, declared("channels"),
            video.key_gaps.median(), video.key_gaps.largest(), drift.median_offset_ms(),
            drift.per_minute() if drift.minutes() >= SKEW_MINUTES else None,
            None if connect_ts is None or started is None else (started - connect_ts) / 1000,
            measure.first_is_key if measure.start_known else None,
            measure.stalls.count, measure.stalls.total_us / 1000, measure.gaps, *verdict,
            measure.pace(), measure.received_bitrate(),
        ),
    )  # fmt: skip


def verdict(
    measure: StreamMeasure,
    refused: bool,
    known: Iterable[Finding],
    broken_off: tuple[str | None, str | None] | None = None,
) -> StreamVerdict:
    """Return the verdict on a stream.

    Args:
        measure: The measured stream.
        refused: The server refused it.
        known: All findings of the connection, with their final severities.
        broken_off: close_cause and closed_by, if the connection ended while the stream was being published.
    """
    known = list(known)
    about = [f for f in known if f.stream_id in (None, measure.stream_id) and f.direction in (None, measure.direction)]
    if refused:
        refusals = [f for f in known if f.code in _REFUSALS]
        refusal = min(refusals, key=lambda f: _SEVERITIES.index(f.severity or Severity.INFO), default=None)
        if refusal is not None:
            return _because_of("failed", refusal)
        return StreamVerdict("failed", ViolationCode.CMD_REFUSED.value, "the server refused the stream")
    error = next((f for f in about if f.severity is Severity.ERROR), None)
    if not measure.has_frames:
        return _verdict_without_frames(measure, error, about)
    if error is not None:
        return _because_of("degraded", error)
    judged = _verdict_on_frames(measure, about, broken_off)
    if judged.word == "ok" and any(f.severity is Severity.WARNING for f in known):
        return judged._replace(text="the media arrived without problems, but the connection has warnings")
    return judged


def _because_of(word: str, finding: Finding) -> StreamVerdict:
    return StreamVerdict(word, finding.code.value, finding.detail)


def _verdict_without_frames(measure: StreamMeasure, error: Finding | None, about: list[Finding]) -> StreamVerdict:
    if error is not None:
        return _because_of("failed", error)
    if measure.gaps or not measure.start_known:
        return StreamVerdict("unknown", None, "the media is missing from the capture")
    reason = next((f for f in about if f.code in _NO_MEDIA), None)
    if reason is None:
        return StreamVerdict("no_media", None, "no media was sent")
    return _because_of("failed" if reason.code is ViolationCode.CMD_NO_RESPONSE else "no_media", reason)


def _verdict_on_frames(
    measure: StreamMeasure, about: list[Finding], broken_off: tuple[str | None, str | None] | None
) -> StreamVerdict:
    """The verdict on a stream with frames and without errors."""
    dropped_by_capture = [f for f in about if f.code is ViolationCode.TCP_GAP and f.at_fault == CAPTURE]
    codes = {f.code for f in about if f.severity is not Severity.INFO and f not in dropped_by_capture}
    for code, sentence in _DEGRADES.items() if codes else ():
        if code in codes:
            stalls = measure.stalls
            if code is ViolationCode.TIME_STALL and not stalls.kept and stalls.of_tracks:
                kind = stalls.of_tracks[0].kind
                sentence = f"{kind} stopped while {OTHER_KIND[kind]} continued"
            elif code in _DETAILED:
                sentence = next(f.detail for f in about if f.code is code and f.severity is not Severity.INFO)
            return StreamVerdict("degraded", code.value, sentence)
    if broken_off in _BROKEN_OFF and not (measure.gaps and broken_off[0] == "unknown"):
        return StreamVerdict("degraded", ViolationCode.SESSION_END.value, _BROKEN_OFF[broken_off])
    if measure.gaps:  # the stream shows no problem, but the missing data may contain one
        rule = ViolationCode.TCP_GAP if dropped_by_capture else ViolationCode.CAPTURE_SNAPLEN
        return StreamVerdict("unknown", rule.value, "no problems in the captured part, but data is missing")
    return StreamVerdict("ok", None, "no problems found")
