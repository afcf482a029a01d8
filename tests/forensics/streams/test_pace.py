"""TIME_SLOW and TIME_FAST over hand-written frames; the expected values follow from the arrival times given here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable

import pytest
from kit.handmade_facts import frame

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.findings import Finding
from rtmp_spark.forensics.streams.pace import TcpTrouble, TrackPace, fast_finding, slow_finding
from rtmp_spark.forensics.streams.stream_measure import StreamMeasure

CODE = ViolationCode
STEP = 40


def frames(seconds: float, arrival: Callable[[float], float], kind: str = "video", start_ms: int = 0) -> list[Row]:
    """Frames every 40 ms of media time; `arrival` maps media time to arrival time, both in ms."""
    times = range(start_ms, start_ms + round(seconds * 1000) + 1, STEP)
    return [frame(kind, arrival(dts), dts, key=kind == "video" and dts % 1000 == 0) for dts in times]


def measured(rows: Iterable[Row], direction: str = "c2s") -> StreamMeasure:
    measure = StreamMeasure(direction, 1, True)
    rows = sorted(rows, key=lambda row: row[2])
    measure.add(rows, list(range(1, len(rows) + 1)))
    return measure


def judged(
    measure: StreamMeasure, closed_ms: int = 0, tcp: TcpTrouble = TcpTrouble((), {})
) -> list[tuple[ViolationCode, str | None]]:
    return [(finding.code, finding.at_fault) for finding in findings(measure, closed_ms, tcp)]


def findings(measure: StreamMeasure, closed_ms: int = 0, tcp: TcpTrouble = TcpTrouble((), {})) -> list[Finding]:
    measure.close(closed_ms * 1000)
    tracks = measure.paced_tracks()
    where = (measure.direction, 1, measure.recorded)
    return slow_finding(tracks, *where, tcp) + fast_finding(tracks, *where)


def test_a_state_saved_before_the_clock_is_set_back() -> None:
    rows = frames(6, lambda dts: dts / 0.3 - 5000 * (dts >= 5000))
    saved, whole = TrackPace(), TrackPace()
    for number, row in enumerate(rows):
        ts, dts = row[2], STEP * number
        whole.add(ts, dts, (number, 0, 0))
        saved.add(ts, dts, (number, 0, 0))
        saved = TrackPace.resume(json.loads(json.dumps(saved.state())))
    assert saved.paced(0) == whole.paced(0) and whole.paced(0).parts[-1].is_notable


def test_six_seconds_of_media_in_twenty() -> None:
    """0.3 x real time: after 20 s, 6 s of media have come, 14 s are missing."""
    measure = measured(frames(6, lambda dts: dts / 0.3))
    (finding,) = findings(measure)
    assert finding.code is CODE.TIME_SLOW and finding.at_fault is None and finding.msg_no == 6000
    # The offset at the end is the median of the last second: of 8 frames, the fourth, which came 0.5 s before the end.
    assert finding.detail.startswith("media arrives at 0.30 x real time; 13.6 s behind at the end; no TCP problem")
    assert measure.pace() == pytest.approx(0.3)
    assert measure.received_bitrate() == pytest.approx((measure.video.bitrate() or 0) * 0.3, rel=0.02)  # type: ignore[union-attr]


@pytest.mark.parametrize(("speed", "seconds", "slow"), [(0.9, 20, True), (0.9, 8, False), (0.97, 60, False)])
def test_a_delay_must_be_noticeable(speed: float, seconds: float, slow: bool) -> None:
    """At 0.9, 8 s of media are 0.9 s late; at 0.97 a minute is 1.9 s late, but media comes at more than 0.95."""
    assert judged(measured(frames(seconds, lambda dts: dts / speed))) == [(CODE.TIME_SLOW, None)] * slow


def test_a_stream_that_becomes_slow() -> None:
    measure = measured(frames(40, lambda dts: dts if dts < 20_000 else 20_000 + (dts - 20_000) / 0.5))
    (finding,) = findings(measure)
    assert finding.detail.startswith("media arrives at 0.50 x real time; 19")


def test_a_stream_that_catches_up_is_not_slow() -> None:
    assert judged(measured(frames(40, lambda dts: dts + (3000 if 10_000 < dts < 25_000 else 0)))) == []


def test_the_receiver_or_the_network_may_be_seen_to_be_too_slow() -> None:
    rows = frames(6, lambda dts: dts / 0.3)
    assert judged(measured(rows), tcp=TcpTrouble((), dict.fromkeys(range(20), 600.0))) == [(CODE.TIME_SLOW, "server")]
    lossy = TcpTrouble(range(1, 15), {})
    assert judged(measured(rows), tcp=lossy) == [(CODE.TIME_SLOW, None)]  # a slow encoder on a lossy link
    bursts = frames(6, lambda dts: dts // 400 * 400 / 0.3 + dts % 400 / 10)  # ten frames, then a pause of 1.3 s
    assert judged(measured(bursts), tcp=lossy) == [(CODE.TIME_SLOW, "network")]
    (finding,) = findings(measured(bursts))
    assert finding.at_fault is None and "they waited at the client or on the way" in finding.detail


def test_a_single_stall_is_not_slowness() -> None:
    measure = measured(frames(20, lambda dts: dts + (4000 if dts > 10_000 else 0)))
    assert judged(measure) == [] and measure.stalls.count == 1


def test_many_stalls_are_slowness() -> None:
    """1.2 s of silence every two seconds: none of them explains half of the delay."""
    measure = measured(frames(20, lambda dts: dts + 1200 * (dts // 2000)))
    assert judged(measure) == [(CODE.TIME_SLOW, None)]
    assert measure.stalls.findings("c2s", 1, (), is_slow=True) == []


@pytest.mark.parametrize("gop_ms", [2000, 9000])
def test_a_cached_gop_is_neither_slow_nor_fast(gop_ms: int) -> None:
    """A server sends the last GOP to a new player at once, then frames in real time."""
    rows = frames(30, lambda dts: 500 + dts / 50 if dts < gop_ms else 500 + dts - gop_ms + gop_ms / 50)
    assert judged(measured(rows, "s2c")) == []
    assert judged(measured(rows)) == ([(CODE.TIME_FAST, "client")] if gop_ms > 5000 else [])


def test_a_file_played_as_fast_as_possible_is_no_alarm() -> None:
    measure = measured(frames(60, lambda dts: dts / 20), "s2c")
    assert judged(measure) == []
    assert measure.pace() == pytest.approx(20)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_player_with_media_in_advance_is_not_slow(recorded: bool) -> None:
    """30 s at once, then nothing for 9 s again and again: the player reads in lumps, as its buffer empties."""
    measure = measured(
        frames(90, lambda dts: dts / 100 if dts < 30_000 else 300 + 9000 * ((dts - 30_000) // 9000)), "s2c"
    )
    measure.recorded = recorded
    assert judged(measure) == []


def test_a_publisher_ahead_of_the_wall_clock() -> None:
    """ffmpeg without -re: 30 s of media in 1.5 s."""
    (finding,) = findings(measured(frames(30, lambda dts: dts / 20)))
    assert finding.code is CODE.TIME_FAST and finding.at_fault == "client" and "28.5 s ahead" in finding.detail
    assert judged(measured(frames(5.2, lambda dts: dts / 20))) == []


def test_pauses_and_seeks_are_no_alarms() -> None:
    measure = StreamMeasure("s2c", 1, True)
    for part in range(5):  # plays 4 s, pauses 10 s, and continues where it was
        rows = frames(4, lambda dts, part=part: dts + 10_000 * part, start_ms=4000 * part)  # type: ignore[misc]
        measure.add(rows, list(range(len(rows))))
        measure.suspend()
        measure.restart()
    assert judged(measure) == [] and measure.pace() == pytest.approx(1.0)


def test_timestamps_that_jump_are_another_part() -> None:
    ahead = frames(10, lambda dts: dts) + frames(10, lambda dts: dts - 50_000, start_ms=60_000)
    back = frames(10, lambda dts: dts) + frames(10, lambda dts: dts + 10_040, start_ms=0)
    stale = [frame("video", 0, 0, key=True), *frames(10, lambda dts: dts - 99_960, start_ms=100_000)]
    for rows in (ahead, back, stale):
        assert judged(measured(rows)) == []


def test_frames_after_the_receiver_closed_do_not_count() -> None:
    """SRS flushes its queue 3 s after the FIN of the player."""
    rows = frames(9, lambda dts: dts) + [frame("video", 12_300 + i, 9040 + 40 * i) for i in range(8)]
    measure = measured(rows, "s2c")
    assert judged(measure) == [] and measure.stalls.count == 1
    assert judged(measure, closed_ms=9_100) == []
    assert (measure.stalls.count, measure.stalls.total_us, measure.stalls.findings("s2c", 1, ())) == (0, 0, [])
    assert measure.pace() == pytest.approx(1.0)
    assert measure.received_bitrate() == pytest.approx(measure.video.bitrate(), rel=0.02)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(40))
def test_a_variable_frame_rate_is_healthy(seed: int) -> None:
    """Frames when the picture changes, 0.04 to 3 s apart, each sent when the next one is known."""
    chance = random.Random(seed)
    times = [0]
    while times[-1] < 120_000:
        times.append(times[-1] + round(min(3000, max(40, chance.expovariate(1 / 850)))))
    for delayed in (False, True):
        arrivals = times[1:] if delayed else times
        measure = measured([frame("video", ts, dts, key=True) for ts, dts in zip(arrivals, times)])
        assert measure.found == [] and judged(measure) == [] and measure.stalls.count == 0


def test_a_stall_of_a_steady_low_frame_rate() -> None:
    times = [500 * i for i in range(30)]
    measure = measured(
        [frame("video", t + (5000 if t > 12_000 else 0), t + (5000 if t > 12_000 else 0)) for t in times]
    )
    assert judged(measure) == [] and measure.stalls.count == 1


@pytest.mark.parametrize("cut", [1, 40, 399, 400, 780])
def test_the_state_is_a_value(cut: int) -> None:
    rows = frames(10, lambda dts: dts / 0.4) + frames(6, lambda dts: dts / 0.4 + 40_000, start_ms=0)
    whole = measured(rows)
    measure = StreamMeasure("c2s", 1, True)
    known = list(range(1, len(rows) + 1))
    measure.add(rows[:cut], known[:cut])
    measure = StreamMeasure.resume(json.loads(json.dumps(measure.state())))
    measure.add(rows[cut:], known[cut:])
    assert findings(measure) == findings(whole) != []
    assert (measure.pace(), measure.received_bitrate()) == (whole.pace(), whole.received_bitrate())
