"""Rules of time over frames written by hand; the expected numbers are worked out beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulekit import config, frame

from rtmp_spark.capture.facts import Row
from rtmp_spark.capture.findings import Finding
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.forensics.declared import absent_tracks, contradictions, read_metadata
from rtmp_spark.forensics.measure import StreamMeasure
from rtmp_spark.forensics.streams import columns, skew_finding, verdict

CODE = ViolationCode


def measured(rows: Iterable[Row], direction: str = "c2s", start_known: bool = True) -> StreamMeasure:
    measure = StreamMeasure(direction, 1, start_known)
    rows = list(rows)
    measure.add(rows, list(range(1, len(rows) + 1)))
    return measure


def pictures(count: int, *, step: int = 40, key_every: int = 25, start: int = 0, late_ms: float = 0) -> list[Row]:
    return [frame("video", start + i * step + late_ms, start + i * step, key=i % key_every == 0) for i in range(count)]


def codes(measure: StreamMeasure) -> list[ViolationCode]:
    return [finding.code for finding in measure.found]


def test_steady_pictures_raise_nothing() -> None:
    measure = measured(pictures(100))
    assert measure.found == [] and measure.gop_finding() == [] and measure.stalls.count == 0
    assert measure.video is not None
    assert measure.video.rate() == 25.0
    assert measure.video.key_gaps.median() == 1000.0


def test_a_frame_that_goes_back() -> None:
    rows = pictures(10)
    rows[5] = frame("video", 200, 100)  # 160 before it
    measure = measured(rows)
    (finding,) = measure.found
    assert finding.code is CODE.TIME_BACKWARDS and "60 ms" in finding.detail
    assert finding.at_fault == "client" and finding.msg_no == 100


def test_each_track_has_its_own_clock() -> None:
    rows = [frame("video", 0, 500, key=True), frame("audio", 1, 0), frame("video", 40, 540), frame("audio", 41, 23)]
    assert measured(rows).found == []


def test_a_leap_against_arrival() -> None:
    """5 s of media within 40 ms of arrival, at usual steps of 40 ms."""
    rows = pictures(10) + pictures(10, start=5400, late_ms=-5000)
    measure = measured(rows)
    (finding,) = measure.found
    assert finding.code is CODE.TIME_JUMP and finding.msg_no == 5400
    assert "5040 ms" in finding.detail


def test_a_time_that_is_known_to_be_wrong_is_told_once() -> None:
    """The 20 s at 400 ms is somebody else's finding; the leap to 5400 ms is a leap all the same."""
    spoilt = frame("video", 400, 20_000)
    rows = [*pictures(10), spoilt, *pictures(10, start=440), *pictures(10, start=5400, late_ms=-4500)]
    measure = StreamMeasure("c2s", 1, True)
    measure.excuse(20_000)  # the number of a message made by `frame` is its time
    measure.add(rows, list(range(len(rows))))
    (finding,) = measure.found
    assert finding.code is CODE.TIME_JUMP and finding.msg_no == 5400
    assert codes(measured(rows)) == [CODE.TIME_JUMP, CODE.TIME_BACKWARDS, CODE.TIME_JUMP]


def test_a_pause_for_lack_of_acknowledgements_is_told_as_that() -> None:
    stalls = measured(burst(2400)).stalls
    assert stalls.findings("c2s", 1, set(), [[360_000, 2_400_000]]) == []
    assert len(stalls.findings("c2s", 1, set(), [[60_000_000, 62_000_000]])) == 1


def test_a_pause_of_the_encoder_is_no_leap() -> None:
    """5 s of media in 5 s: nothing leaps against arrival, but nothing came either."""
    measure = measured(pictures(10) + pictures(10, start=5400))
    assert CODE.TIME_JUMP not in codes(measure)
    (finding,) = measure.stalls.findings("c2s", 1, set())
    assert "the encoder made nothing" in finding.detail and finding.at_fault == "client"


def burst(arrival: float) -> list[Row]:
    """Two seconds of media, 2 ms of arrival each frame, then on time again."""
    late = [frame("video", arrival + i * 2, 400 + i * 40) for i in range(50)]
    return pictures(10) + late


@pytest.mark.parametrize(("troubled", "who"), [(set(), "client"), ({1}, "network"), ({60}, "client")])
def test_a_burst_behind_a_pause_means_that_delivery_stalled(troubled: set[int], who: str) -> None:
    measure = measured(burst(2400))
    assert measure.stalls.count == 1
    (finding,) = measure.stalls.findings("c2s", 1, troubled)
    assert finding.at_fault == who
    assert "a burst caught it up" in finding.detail


def test_a_clock_that_stands_still() -> None:
    rows = pictures(10) + [frame("video", 3000 + i * 40, 400 + i * 40) for i in range(60)]
    (finding,) = measured(rows).stalls.findings("c2s", 1, set())
    assert "clock stood still" in finding.detail
    (played,) = measured(rows).stalls.findings("s2c", 1, set())
    assert played.at_fault is None and "slower than the stream" in played.detail


def test_slow_pictures_are_no_stall() -> None:
    """One picture every two seconds is what this encoder does."""
    assert measured(pictures(10, step=2000, key_every=1)).stalls.count == 0


def test_a_file_played_out_ahead_of_time_starves_nobody() -> None:
    """Ten seconds of media in 100 ms, then a pause of two seconds."""
    rows = [frame("video", i * 0.4, i * 40, key=i % 25 == 0) for i in range(250)] + [frame("video", 2100, 10_000)]
    assert measured(rows, "s2c").stalls.count == 0


def test_what_was_interrupted_is_not_compared() -> None:
    measure = StreamMeasure("s2c", 1, True)
    measure.add(pictures(10, start=60_000), [1] * 10)
    measure.suspend()
    measure.add([frame("video", 60_500, 60_400)], [2])  # still on its way when the seek was asked for
    measure.go_on()
    measure.add(pictures(10, start=0, late_ms=63_000), [3] * 10)
    assert measure.found == [] and measure.stalls.count == 0


def test_keyframes_far_apart() -> None:
    (finding,) = measured(pictures(130, key_every=125)).gop_finding()  # 5 s
    assert finding.severity is Severity.INFO and "5.0 s" in finding.detail
    (finding,) = measured(pictures(300, key_every=1000)).gop_finding()  # one key in 12 s
    assert finding.severity is Severity.WARNING


def test_the_first_picture() -> None:
    rows = [config("video", 0), frame("video", 1, 0), frame("video", 41, 40, key=True)]
    (finding,) = measured(rows, "s2c").found
    assert finding.code is CODE.MEDIA_START_NOT_KEY and finding.at_fault == "server"
    assert measured(rows, "s2c", start_known=False).found == []


@pytest.mark.parametrize(
    ("around", "word"), [(1 << 24, "2^24"), (1 << 31, "2^31"), (1 << 32, "2^32")], ids=["24", "31", "32"]
)
def test_boundaries_are_crossed_once(around: int, word: str) -> None:
    rows = [frame("video", i * 40, around - 200 + i * 40, key=i == 0) for i in range(12)]
    (finding,) = measured(rows).found
    assert finding.code is CODE.TIME_WRAP and word in finding.detail


def test_composition_before_decoding() -> None:
    rows = [frame("video", 0, 0, key=True), frame("video", 40, 40, cts=-40), frame("video", 80, 80, cts=40)]
    assert codes(measured(rows)) == [CODE.TIME_PTS_BEFORE_DTS]


def sound_and_picture(minutes: float, drift_per_minute: float, step_at: float | None = None) -> list[Row]:
    rows = []
    for i in range(int(minutes * 60 * 25)):
        at = i * 40
        apart = (
            drift_per_minute * at / 60_000 if step_at is None else (drift_per_minute if at > step_at * 60_000 else 0)
        )
        rows += [frame("audio", at, at + round(apart)), frame("video", at + 1, at, key=i % 25 == 0)]
    return rows


@pytest.mark.parametrize(("minutes", "drift", "told"), [(3, 60, 1), (3, -60, 1), (3, 15, 0), (0.9, 300, 0), (3, 0, 0)])
def test_drift(minutes: float, drift: float, told: int) -> None:
    measure = measured(sound_and_picture(minutes, drift))
    found = skew_finding(measure)
    assert len(found) == told
    if minutes >= 1:
        assert columns(measure, None)["av_drift_ms_per_min"] == pytest.approx(drift, abs=2)


def test_a_step_is_no_drift() -> None:
    assert skew_finding(measured(sound_and_picture(4, 400, step_at=2))) == []


# -- metadata -----------------------------------------------------------------------------------------------------


def declared(rows: list[Row], **fields: Any) -> StreamMeasure:
    measure = measured(rows)
    measure.declared = read_metadata(fields)
    return measure


GOOD = {"width": 320, "height": 240, "framerate": 25, "videocodecid": 7, "audiocodecid": 10, "audiosamplerate": 44100}
BOTH = [row for pair in zip(pictures(150), [frame("audio", i * 40 + 1, i * 40) for i in range(150)]) for row in pair]


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
    """FFmpeg's onMetaData says 6, Nellymoser, whatever the tags say: 4 at 16 kHz, 5 at 8 kHz."""
    for codec in ("nellymoser_16k", "nellymoser_8k"):
        sound = [frame("audio", i * 40, i * 40, codec=codec) for i in range(150)]
        assert contradictions(declared(sound, audiocodecid=6)) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"width": 640}, "picture size"),
        ({"framerate": 30}, "frame rate"),
        ({"videocodecid": 12}, "video codec"),
        ({"audiocodecid": 2}, "audio codec"),
        ({"audiosamplerate": 48000}, "sample rate"),
    ],
)
def test_metadata_that_contradicts(fields: dict[str, Any], word: str) -> None:
    (finding,) = contradictions(declared(BOTH, **(GOOD | fields)))
    assert word in finding.detail and finding.expected and finding.actual


def test_an_announced_track_that_never_came() -> None:
    (finding,) = absent_tracks(declared(pictures(100), **GOOD))
    assert "no audio frame" in finding.detail
    assert absent_tracks(declared(pictures(20), **GOOD)) == []  # less than two seconds
    assert absent_tracks(declared(pictures(100), width=320)) == []
    hole = declared(pictures(100), **GOOD)
    hole.gap()
    assert absent_tracks(hole) == []


# -- one track of two ---------------------------------------------------------------------------------------------


def with_sound(rows: list[Row], seconds: float, **other: Any) -> list[Row]:
    """Those frames with sound beside them every 20 ms, in the order of arrival."""
    sound = [frame("audio", i * 20, i * 20, **other) for i in range(round(seconds * 50))]
    return sorted([*rows, *sound], key=lambda row: row[2])


def told_of_tracks(measure: StreamMeasure) -> list[Finding]:
    measure.end()
    return measure.stalls.track_findings("c2s", 1, measure.author)


def test_pictures_that_end_while_sound_goes_on() -> None:
    """The last of 100 pictures is at 3.96 s, the last sound at 13.98 s."""
    measure = measured(with_sound(pictures(100), 14))
    (finding,) = told_of_tracks(measure)
    assert finding.code is CODE.TIME_STALL and finding.at_fault == "client" and finding.msg_no == 3960
    assert finding.detail == "no picture for the last 10.0 s while the sound went on"
    assert columns(measure, 0)["stall_ms"] == 10_020
    word, rule, text = verdict(measure, False, [finding._replace(severity=CODE.TIME_STALL.severity)])
    assert (word, rule) == ("degraded", "TIME_STALL") and "picture stopped while the sound went on" in text


def test_pictures_that_come_back() -> None:
    """From 3.96 s to 9 s, and from 12.96 s to 17 s, there is sound alone."""
    rows = pictures(100) + pictures(100, start=9000) + pictures(50, start=17_000)
    found = told_of_tracks(measured(with_sound(rows, 19)))
    assert [finding.msg_no for finding in found] == [9000, 17_000]
    assert {finding.detail for finding in found} == {"no picture for 5.0 s and 4.0 s while the sound went on"}


def test_sound_that_ends_while_pictures_go_on() -> None:
    (finding,) = told_of_tracks(measured(with_sound(pictures(250), 5)))
    assert finding.detail.startswith("no sound for the last 5.0 s")


SLIDES = [frame("video", at, at, key=True) for i in range(30) for at in (i * 2700, i * 2700 + 100)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(with_sound(pictures(100), 5.5), id="not long"),
        pytest.param(with_sound(pictures(60, step=1000, key_every=1), 67), id="a picture every second"),
        pytest.param(with_sound(SLIDES, 88), id="pictures at any time"),
        pytest.param(with_sound(pictures(5), 20), id="hardly any pictures"),
        pytest.param(with_sound(pictures(500), 8, codec="speex"), id="sound that is not sent in silence"),
        pytest.param(
            with_sound([*pictures(100), frame("video", 4000, 4000, packet_type="end")], 14), id="an end was announced"
        ),
        pytest.param(with_sound(pictures(100, start=10_000), 14), id="sound alone at first"),
    ],
)
def test_one_track_alone_that_is_no_stall(rows: list[Row]) -> None:
    assert told_of_tracks(measured(rows)) == []


def test_a_stop_of_both_is_not_told_of_one_track_as_well() -> None:
    """Nothing from 4 s to 9 s; then sound comes first."""
    rows = [*with_sound(pictures(100), 4), frame("audio", 9000, 9000), *pictures(40, start=9020)]
    measure = measured(rows)
    assert told_of_tracks(measure) == [] and measure.stalls.count == 1


def test_a_track_that_the_player_did_without() -> None:
    """receiveVideo is followed by `interrupt`."""
    measure = measured(with_sound(pictures(100), 4), "s2c")
    measure.interrupt()
    rows = [frame("audio", 4000 + i * 20, 4000 + i * 20) for i in range(500)] + pictures(50, start=14_000)
    measure.add(rows, [1] * len(rows))
    assert told_of_tracks(measure) == []


def test_a_player_is_told_that_the_stream_is_over_and_misses_pictures_all_the_same() -> None:
    """Stream EOF and UnpublishNotify are followed by `go_on`."""
    measure = measured(with_sound(pictures(100), 14), "s2c")
    measure.go_on()
    measure.go_on()
    (finding,) = told_of_tracks(measure)
    assert finding.at_fault is None and finding.msg_no == 3960


def test_pauses_of_one_cause_say_it_once() -> None:
    """Three pauses of the encoder: 1.2 s, 2.2 s and 3.2 s."""
    rows = pictures(50) + pictures(50, start=3160) + pictures(50, start=7320) + pictures(50, start=12_480)
    found = measured(rows).stalls.findings("c2s", 1, set())
    assert len(found) == 3
    assert {finding.detail for finding in found} == {
        "no coded frame for 1.2 s, 2.2 s and 3.2 s; media time leaps with it: the encoder made nothing"
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
def test_the_state_is_a_value(steps: list[tuple[str, int, int, bool, int]], cut: int, what: int) -> None:
    rows, at = [], 0
    for kind, wait, dts, key, cts in steps:
        at += wait
        rows.append(frame(kind, at, dts, key=key and kind == "video", cts=cts))
    known = list(range(len(rows)))

    def between(measure: StreamMeasure) -> None:
        (lambda: None, measure.gap, measure.suspend, measure.go_on)[what]()

    whole = StreamMeasure("c2s", 1, True)
    whole.add(rows[:cut], known[:cut])
    between(whole)
    resumed = StreamMeasure.resume(json.loads(json.dumps(whole.state())))
    for measure in (whole, resumed):
        measure.add(rows[cut:], known[cut:])
    assert resumed.found == whole.found
    assert json.dumps(resumed.state()) == json.dumps(whole.state())
    assert columns(resumed, 0) == columns(whole, 0)
