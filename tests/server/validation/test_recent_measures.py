"""Measures of a stream over its last seconds, from frames at given times."""

from __future__ import annotations

from rtmp_relay.validation.recent_measures import WINDOW_S, Measures, RecentMeasures

START_NS = 1_750_000_000_300_000_000


def at(seconds: float) -> int:
    return START_NS + round(seconds * 1e9)


def video(measures: RecentMeasures, first_s: float, last_s: float, *, fps: int = 25, pace: float = 1.0) -> None:
    """Frames of 1000 bytes from `first_s` to before `last_s`, a keyframe every 2 seconds of media."""
    for number in range(round(first_s * fps), round(last_s * fps)):
        dts = round(number * 1000 / fps * pace)
        measures.add(at(number / fps), "video", dts, 1000, is_key=dts % 2000 == 0)


def test_nothing_is_known_of_a_stream_without_frames() -> None:
    assert RecentMeasures().measures(at(9)) == Measures(None, None, None, None, None)


def test_a_steady_stream() -> None:
    measures = RecentMeasures()
    video(measures, 0, 20)
    found = measures.measures(at(20))
    assert found.frame_rate is not None and abs(found.frame_rate - 25) < 0.3
    assert found.bitrate is not None and abs(found.bitrate - 200_000) < 2500
    assert found.pace is not None and abs(found.pace - 1) < 0.001
    assert found.gop_ms == 2000
    assert found.skew_ms is None  # no audio


def test_a_change_is_complete_after_the_window() -> None:
    measures = RecentMeasures()
    video(measures, 0, 10)
    video(measures, 10, 10 + WINDOW_S, fps=50)
    found = measures.measures(at(10 + WINDOW_S))
    assert found.frame_rate is not None and abs(found.frame_rate - 50) < 0.5


def test_a_slow_stream_has_its_pace() -> None:
    measures = RecentMeasures()
    video(measures, 0, 10, pace=0.5)
    found = measures.measures(at(10))
    assert found.pace is not None and abs(found.pace - 0.5) < 0.01


def test_a_stream_that_stopped_goes_to_zero() -> None:
    measures = RecentMeasures()
    video(measures, 0, 10)
    half = measures.measures(at(12.5))
    assert half.frame_rate is not None and 5 < half.frame_rate < 20
    assert half.pace is not None and 0.2 < half.pace < 0.8
    assert measures.measures(at(10 + WINDOW_S + 1)) == Measures(0.0, 0.0, 0.0, None, 2000)


def test_rates_need_a_second_of_media() -> None:
    measures = RecentMeasures()
    video(measures, 0, 0.5)
    assert measures.measures(at(0.5)) == Measures(None, None, None, None, None)


def test_audio_minus_video() -> None:
    measures = RecentMeasures()
    for number in range(300):
        measures.add(at(number / 50), "audio", number * 20 + 150, 100)
        if number % 2 == 0:
            measures.add(at(number / 50), "video", number * 20, 1000)
    found = measures.measures(at(6))
    assert found.skew_ms == 150
    assert found.bitrate is not None and abs(found.bitrate - 240_000) < 8000


def test_a_stream_of_audio_has_a_pace_and_no_frame_rate() -> None:
    measures = RecentMeasures()
    for number in range(300):
        measures.add(at(number / 50), "audio", number * 20, 100)
    found = measures.measures(at(6))
    assert (found.frame_rate, found.gop_ms, found.skew_ms) == (None, None, None)
    assert found.pace is not None and abs(found.pace - 1) < 0.001


def test_memory_is_bounded_and_the_clock_may_step_back() -> None:
    measures = RecentMeasures()
    video(measures, 0, 600)
    measures.add(at(-50), "video", 600_000, 1000)
    assert measures.kept_seconds <= WINDOW_S + 1
    found = measures.measures(at(600))
    assert found.frame_rate is not None and abs(found.frame_rate - 25) < 1
