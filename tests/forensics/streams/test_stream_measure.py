"""Measures and rules over hand-written frames; the expected values are calculated next to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.handmade_facts import config, frame

from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.findings import Finding
from rtmp_spark.forensics.streams.declared_media import absent_tracks, contradictions, read_metadata
from rtmp_spark.forensics.streams.keyframe_interval import long_gop_findings
from rtmp_spark.forensics.streams.stream_measure import StreamMeasure
from rtmp_spark.forensics.streams.stream_verdict import StreamVerdict, columns, skew_finding, verdict

CODE = ViolationCode
OK = StreamVerdict("ok", None, "")


def measured(rows: Iterable[Row], direction: str = "c2s", start_known: bool = True) -> StreamMeasure:
    measure = StreamMeasure(direction, 1, start_known)
    rows = list(rows)
    measure.add(rows, list(range(1, len(rows) + 1)))
    return measure


def video_frames(count: int, *, step: int = 40, key_every: int = 25, start: int = 0, late_ms: float = 0) -> list[Row]:
    return [frame("video", start + i * step + late_ms, start + i * step, key=i % key_every == 0) for i in range(count)]


def codes(measure: StreamMeasure) -> list[ViolationCode]:
    return [finding.code for finding in measure.found]


def test_regular_video_has_no_findings() -> None:
    measure = measured(video_frames(100))
    assert measure.found == [] and long_gop_findings(measure) == [] and measure.stalls.count == 0
    assert measure.video is not None
    assert measure.video.rate() == 25.0
    assert measure.video.key_gaps.median() == 1000.0


def test_a_timestamp_that_goes_backwards() -> None:
    rows = video_frames(10)
    rows[5] = frame("video", 200, 100)  # 160 before it
    measure = measured(rows)
    (finding,) = measure.found
    assert finding.code is CODE.TIME_BACKWARDS and "60 ms" in finding.detail
    assert finding.at_fault == "client" and finding.msg_no == 100


def test_timestamps_are_compared_per_track() -> None:
    rows = [frame("video", 0, 500, key=True), frame("audio", 1, 0), frame("video", 40, 540), frame("audio", 41, 23)]
    assert measured(rows).found == []


def test_a_jump_relative_to_arrival() -> None:
    """5 s of media within 40 ms of arrival, with frame intervals of 40 ms."""
    rows = video_frames(10) + video_frames(10, start=5400, late_ms=-5000)
    measure = measured(rows)
    (finding,) = measure.found
    assert finding.code is CODE.TIME_JUMP and finding.msg_no == 5400
    assert "5040 ms" in finding.detail


def test_an_ignored_timestamp_is_not_compared() -> None:
    """Another rule reports the 20 s at 400 ms; the jump to 5400 ms is still reported."""
    wrong = frame("video", 400, 20_000)
    rows = [*video_frames(10), wrong, *video_frames(10, start=440), *video_frames(10, start=5400, late_ms=-4500)]
    measure = StreamMeasure("c2s", 1, True)
    measure.ignore_timestamp(20_000)  # `frame` uses the timestamp as the msg_no
    measure.add(rows, list(range(len(rows))))
    (finding,) = measure.found
    assert finding.code is CODE.TIME_JUMP and finding.msg_no == 5400
    assert codes(measured(rows)) == [CODE.TIME_JUMP, CODE.TIME_BACKWARDS, CODE.TIME_JUMP]


def test_a_stall_that_is_a_wait_for_acknowledgements_is_not_reported() -> None:
    stalls = measured(burst(2400)).stalls
    assert stalls.findings("c2s", 1, set(), {}, [(360_000, 2_400_000)]) == []
    assert len(stalls.findings("c2s", 1, set(), {}, [(60_000_000, 62_000_000)])) == 1


def test_a_pause_of_the_encoder_is_a_stall_and_not_a_jump() -> None:
    """5 s of media time in 5 s without frames."""
    measure = measured(video_frames(10) + video_frames(10, start=5400))
    assert CODE.TIME_JUMP not in codes(measure)
    (finding,) = measure.stalls.findings("c2s", 1, set())
    assert "the encoder produced nothing" in finding.detail and finding.at_fault == "client"


def burst(arrival: float) -> list[Row]:
    """A pause, then two seconds of media with a frame every 2 ms."""
    late = [frame("video", arrival + i * 2, 400 + i * 40) for i in range(50)]
    return video_frames(10) + late


@pytest.mark.parametrize(("retransmissions", "at_fault"), [(set(), None), ({1}, "network"), ({60}, None)])
def test_a_burst_after_a_stall_means_that_delivery_stalled(retransmissions: set[int], at_fault: str | None) -> None:
    """Without a TCP problem, the bytes may have waited anywhere in front of the point of capture."""
    measure = measured(burst(2400))
    assert measure.stalls.count == 1
    (finding,) = measure.stalls.findings("c2s", 1, retransmissions)
    assert finding.at_fault == at_fault
    assert "a burst followed" in finding.detail


def test_timestamps_that_do_not_advance_during_a_stall() -> None:
    rows = video_frames(10) + [frame("video", 3000 + i * 40, 400 + i * 40) for i in range(60)]
    for direction in ("c2s", "s2c"):  # a throttled link in front of the point of capture looks the same
        (finding,) = measured(rows).stalls.findings(direction, 1, set())
        assert finding.at_fault is None and "slower than the stream" in finding.detail


def test_a_low_frame_rate_is_not_a_stall() -> None:
    """This encoder sends one frame every two seconds."""
    measure = measured(video_frames(10, step=2000, key_every=1))
    measure.close(0)
    assert measure.stalls.count == 0


def slides_with_audio(outage_ms: int = 0) -> list[Row]:
    """A slide every 2 s; FFmpeg holds the audio back until the next slide. At 10 s the network may delay everything."""
    rows = []
    for slide in range(12):
        arrival = 2000 * slide + (outage_ms if slide == 5 else 0)
        audio = range(2000 * slide - 2000, 2000 * slide, 20) if slide else ()
        rows += [frame("audio", arrival + n * 0.1, dts) for n, dts in enumerate(audio)]
        rows.append(frame("video", arrival + 11, 2000 * slide, key=True))
    return rows + [frame("audio", 24_000 + n * 0.1, 22_000 + n * 20) for n in range(100)]


@pytest.mark.parametrize(("outage_ms", "stalls"), [(0, 0), (1900, 1)])
def test_audio_that_waits_for_the_next_slide_is_not_a_stall(outage_ms: int, stalls: int) -> None:
    measure = measured(slides_with_audio(outage_ms))
    measure.close(0)
    assert measure.stalls.count == stalls


def test_a_pause_of_a_file_delivered_ahead_is_not_a_stall() -> None:
    """Ten seconds of media in 100 ms, then a pause of two seconds."""
    rows = [frame("video", i * 0.4, i * 40, key=i % 25 == 0) for i in range(250)] + [frame("video", 2100, 10_000)]
    assert measured(rows, "s2c").stalls.count == 0


def test_frames_before_and_after_a_seek_are_not_compared() -> None:
    measure = StreamMeasure("s2c", 1, True)
    measure.add(video_frames(10, start=60_000), [1] * 10)
    measure.suspend()
    measure.add([frame("video", 60_500, 60_400)], [2])  # in flight when the client requested the seek
    measure.restart()
    measure.add(video_frames(10, start=0, late_ms=63_000), [3] * 10)
    assert measure.found == [] and measure.stalls.count == 0


def test_long_keyframe_intervals() -> None:
    (finding,) = long_gop_findings(measured(video_frames(130, key_every=125)))  # 5 s
    assert finding.severity is Severity.INFO and "5.0 s" in finding.detail
    (finding,) = long_gop_findings(measured(video_frames(300, key_every=1000)))  # one keyframe in 12 s
    assert finding.severity is Severity.WARNING


def test_a_first_frame_that_is_not_a_keyframe() -> None:
    rows = [config("video", 0), frame("video", 1, 0), frame("video", 41, 40, key=True)]
    (finding,) = measured(rows, "s2c").found
    assert finding.code is CODE.MEDIA_START_NOT_KEY and finding.at_fault == "server"
    assert measured(rows, "s2c", start_known=False).found == []


@pytest.mark.parametrize(
    ("around", "word"), [(1 << 24, "2^24"), (1 << 31, "2^31"), (1 << 32, "2^32")], ids=["24", "31", "32"]
)
def test_a_field_boundary_is_reported_once(around: int, word: str) -> None:
    rows = [frame("video", i * 40, around - 200 + i * 40, key=i == 0) for i in range(12)]
    (finding,) = measured(rows).found
    assert finding.code is CODE.TIME_WRAP and word in finding.detail


def test_a_negative_composition_time() -> None:
    rows = [frame("video", 0, 0, key=True), frame("video", 40, 40, cts=-40), frame("video", 80, 80, cts=40)]
    assert codes(measured(rows)) == [CODE.TIME_PTS_BEFORE_DTS]


def audio_and_video(minutes: float, drift_per_minute: float, step_at: float | None = None) -> list[Row]:
    rows = []
    for i in range(int(minutes * 60 * 25)):
        at = i * 40
        apart = (
            drift_per_minute * at / 60_000 if step_at is None else (drift_per_minute if at > step_at * 60_000 else 0)
        )
        rows += [frame("audio", at, at + round(apart)), frame("video", at + 1, at, key=i % 25 == 0)]
    return rows


@pytest.mark.parametrize(("minutes", "drift", "count"), [(3, 60, 1), (3, -60, 1), (3, 15, 0), (0.9, 300, 0), (3, 0, 0)])
def test_drift_between_audio_and_video(minutes: float, drift: float, count: int) -> None:
    measure = measured(audio_and_video(minutes, drift))
    found = skew_finding(measure)
    assert len(found) == count
    if minutes >= 1:
        assert columns(measure, None, OK).av_drift_ms_per_min == pytest.approx(drift, abs=2)


def test_a_single_step_is_not_drift() -> None:
    assert skew_finding(measured(audio_and_video(4, 400, step_at=2))) == []


# -- metadata -----------------------------------------------------------------------------------------------------


def declared(rows: list[Row], **fields: Any) -> StreamMeasure:
    measure = measured(rows)
    measure.declared = read_metadata(fields)
    return measure


GOOD = {"width": 320, "height": 240, "framerate": 25, "videocodecid": 7, "audiocodecid": 10, "audiosamplerate": 44100}
BOTH = [
    row for pair in zip(video_frames(150), [frame("audio", i * 40 + 1, i * 40) for i in range(150)]) for row in pair
]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"audiosamplerate": 88200},  # SBR
        {"videocodecid": "avc1", "audiocodecid": float(int.from_bytes(b"mp4a", "big"))},
        {"width": 0, "height": 0, "framerate": 0, "videocodecid": 0, "audiosamplerate": 0},
        {"framerate": 27},
        {"width": "wide", "framerate": float("inf"), "videocodecid": {"$undefined": True}},
    ],
)
def test_metadata_that_contradicts_nothing(fields: dict[str, Any]) -> None:
    assert contradictions(declared(BOTH, **(GOOD | fields))) == []


def test_a_codec_with_an_id_for_each_sample_rate_is_one_codec() -> None:
    """FFmpeg declares 6 (Nellymoser) in onMetaData, although its tags have 4 (16 kHz) or 5 (8 kHz)."""
    for codec in ("nellymoser_16k", "nellymoser_8k"):
        audio = [frame("audio", i * 40, i * 40, codec=codec) for i in range(150)]
        assert contradictions(declared(audio, audiocodecid=6)) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"width": 640}, "resolution"),
        ({"framerate": 30}, "frame rate"),
        ({"videocodecid": 12}, "video codec"),
        ({"audiocodecid": 2}, "audio codec"),
        ({"audiosamplerate": 48000}, "sample rate"),
    ],
)
def test_metadata_that_contradicts(fields: dict[str, Any], word: str) -> None:
    (finding,) = contradictions(declared(BOTH, **(GOOD | fields)))
    assert word in finding.detail and finding.expected and finding.actual


def test_an_announced_track_without_frames() -> None:
    (finding,) = absent_tracks(declared(video_frames(100), **GOOD))
    assert "no audio frame" in finding.detail
    assert absent_tracks(declared(video_frames(20), **GOOD)) == []  # less than two seconds
    assert absent_tracks(declared(video_frames(100), width=320)) == []
    incomplete = declared(video_frames(100), **GOOD)
    incomplete.gap(1)
    assert absent_tracks(incomplete) == []


# -- one track of two ---------------------------------------------------------------------------------------------


def with_audio(rows: list[Row], seconds: float, **other: Any) -> list[Row]:
    """The frames with an audio frame every 20 ms, in order of arrival."""
    audio = [frame("audio", i * 20, i * 20, **other) for i in range(round(seconds * 50))]
    return sorted([*rows, *audio], key=lambda row: row[2])


def track_findings(measure: StreamMeasure) -> list[Finding]:
    measure.end()
    return measure.stalls.track_findings("c2s", 1, measure.author)


def test_video_that_ends_while_audio_continues() -> None:
    """The last of 100 video frames is at 3.96 s, the last audio frame at 13.98 s."""
    measure = measured(with_audio(video_frames(100), 14))
    (finding,) = track_findings(measure)
    assert finding.code is CODE.TIME_STALL and finding.at_fault == "client" and finding.msg_no == 3960
    assert finding.detail == "no video for the last 10.0 s; audio continued"
    assert columns(measure, 0, OK).stall_ms == 10_020
    word, rule, text = verdict(measure, False, [finding._replace(severity=CODE.TIME_STALL.severity)])
    assert (word, rule) == ("degraded", "TIME_STALL") and text == "video stopped while audio continued"


def test_video_that_stops_and_continues() -> None:
    """From 3.96 s to 9 s, and from 12.96 s to 17 s, there is only audio."""
    rows = video_frames(100) + video_frames(100, start=9000) + video_frames(50, start=17_000)
    found = track_findings(measured(with_audio(rows, 19)))
    assert [finding.msg_no for finding in found] == [9000, 17_000]
    assert {finding.detail for finding in found} == {"no video for 5.0 s and 4.0 s; audio continued"}


def test_audio_that_ends_while_video_continues() -> None:
    (finding,) = track_findings(measured(with_audio(video_frames(250), 5)))
    assert finding.detail.startswith("no audio for the last 5.0 s")


SLIDES = [frame("video", at, at, key=True) for i in range(30) for at in (i * 2700, i * 2700 + 100)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(with_audio(video_frames(100), 5.5), id="short"),
        pytest.param(with_audio(video_frames(60, step=1000, key_every=1), 67), id="one frame per second"),
        pytest.param(with_audio(SLIDES, 88), id="irregular video"),
        pytest.param(with_audio(video_frames(5), 20), id="few video frames"),
        pytest.param(with_audio(video_frames(500), 8, codec="speex"), id="audio that pauses in silence"),
        pytest.param(
            with_audio([*video_frames(100), frame("video", 4000, 4000, packet_type="end")], 14), id="announced end"
        ),
        pytest.param(with_audio(video_frames(100, start=10_000), 14), id="only audio at first"),
    ],
)
def test_one_track_alone_that_is_not_a_stall(rows: list[Row]) -> None:
    assert track_findings(measured(rows)) == []


def test_a_stall_of_both_tracks_is_not_reported_again_for_one() -> None:
    """No frames from 4 s to 9 s; then audio continues first."""
    rows = [*with_audio(video_frames(100), 4), frame("audio", 9000, 9000), *video_frames(40, start=9020)]
    measure = measured(rows)
    assert track_findings(measure) == [] and measure.stalls.count == 1


def test_a_track_that_the_player_switched_off() -> None:
    """receiveVideo calls `interrupt`."""
    measure = measured(with_audio(video_frames(100), 4), "s2c")
    measure.interrupt()
    rows = [frame("audio", 4000 + i * 20, 4000 + i * 20) for i in range(500)] + video_frames(50, start=14_000)
    measure.add(rows, [1] * len(rows))
    assert track_findings(measure) == []


def test_a_track_stall_before_stream_eof_is_reported() -> None:
    """Stream EOF and UnpublishNotify call `restart`."""
    measure = measured(with_audio(video_frames(100), 14), "s2c")
    measure.restart()
    measure.restart()
    (finding,) = track_findings(measure)
    assert finding.at_fault is None and finding.msg_no == 3960


def test_stalls_of_one_cause_share_a_detail() -> None:
    """Three pauses of the encoder: 1.2 s, 2.2 s and 3.2 s."""
    rows = (
        video_frames(50) + video_frames(50, start=3160) + video_frames(50, start=7320) + video_frames(50, start=12_480)
    )
    found = measured(rows).stalls.findings("c2s", 1, set())
    assert len(found) == 3
    assert {finding.detail for finding in found} == {
        "no coded frame for 1.2 s, 2.2 s and 3.2 s; timestamps jumped by the length of the stall: "
        "the encoder produced nothing"
    }


# -- state --------------------------------------------------------------------------------------------------------

_ROWS = st.lists(
    st.builds(
        lambda kind, wait, dts, key, cts: (kind, wait, dts, key, cts),
        st.sampled_from(["audio", "video"]), st.integers(0, 3000), st.integers(0, 1 << 25), st.booleans(),
        st.integers(-50, 50),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(_ROWS, st.integers(0, 40), st.integers(0, 3))
def test_a_resumed_measure_continues_like_the_original(
    steps: list[tuple[str, int, int, bool, int]], cut: int, what: int
) -> None:
    rows, at = [], 0
    for kind, wait, dts, key, cts in steps:
        at += wait
        rows.append(frame(kind, at, dts, key=key and kind == "video", cts=cts))
    known = list(range(len(rows)))

    def between(measure: StreamMeasure) -> None:
        (lambda: None, lambda: measure.gap(1), measure.suspend, measure.restart)[what]()

    whole = StreamMeasure("c2s", 1, True)
    whole.add(rows[:cut], known[:cut])
    between(whole)
    resumed = StreamMeasure.resume(json.loads(json.dumps(whole.state())))
    for measure in (whole, resumed):
        measure.add(rows[cut:], known[cut:])
    assert resumed.found == whole.found
    assert json.dumps(resumed.state()) == json.dumps(whole.state())
    assert columns(resumed, 0, OK) == columns(whole, 0, OK)
