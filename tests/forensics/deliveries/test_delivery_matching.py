"""Published and played streams matched by content, with frames whose delivery is known."""

from __future__ import annotations

import csv
from zlib import crc32

import pytest
from kit.handmade_facts import SAMPLES, recorded

from rtmp_spark.forensics.deliveries.delivery_frames import Frames, Stream
from rtmp_spark.forensics.deliveries.delivery_matching import delivery, match_all
from rtmp_spark.schema import column_names

SECOND = 1_000_000
_COLUMNS = column_names("deliveries")


def frames(*messages: tuple[bytes, int, int, int]) -> Frames:
    """(payload, arrival in ms, dts, 1 coded frame or 2 configuration)"""
    own = Frames()
    for payload, arrival, dts, kind in messages:
        own.key.append((len(payload) << 8 | 9) << 32 | crc32(payload))
        own.ts.append(arrival * 1000)
        own.dts.append(dts)
        own.kind.append(kind)
    return own


def row(publish: Frames, play: Frames, asked_ms: int = 0) -> dict[str, object]:
    (found,) = match_all([Stream("P", 1, 0, publish)], [Stream("V", 1, asked_ms * 1000, play)]).rows
    return dict(zip(_COLUMNS, found))


SENT = [(b"frame %d" % i, 1000 + i * 40, i * 40, 1) for i in range(100)]


def test_everything_arrives_30_ms_later() -> None:
    got = [(payload, at + 30, dts + 7000, kind) for payload, at, dts, kind in SENT]
    found = row(frames(*SENT), frames(*got))
    assert found["latency_ms_p50"] == found["latency_ms_p99"] == 30
    assert (found["frames_published"], found["frames_missing"], found["frames_changed"]) == (100, 0, 0)
    assert found["burst_ms"] == 0


def test_lost_and_changed_frames() -> None:
    got = [(p, at + 30, dts, k) for p, at, dts, k in SENT if dts not in (400, 440)]
    got = [(b"other" if dts == 800 else p, at, dts, k) for p, at, dts, k in got]
    found = row(frames(*SENT), frames(*got))
    assert (found["frames_published"], found["frames_missing"], found["frames_changed"]) == (100, 2, 1)


def test_timestamps_that_lag_after_a_gap_in_the_capture() -> None:
    """Two gaps of 10 and 30 frames: their deltas are missing in the timestamps after them."""
    lag = [0 if i < 40 else 400 if i < 60 else 1600 for i in range(100)]
    kept = [i for i in range(100) if not (30 <= i < 40 or 50 <= i < 80)]
    got = [(SENT[i][0], SENT[i][1] + 30, SENT[i][2] - lag[i], 1) for i in kept]
    found = row(frames(*SENT), frames(*got))
    assert (found["frames_published"], found["frames_missing"]) == (100, 40)


def test_a_cached_gop_is_a_burst_without_latency() -> None:
    """Play at 3000 ms: the 50 frames of 1000 to 2960 ms arrive at once, the others when they are published."""
    got = [(p, max(at, 3000) + 10, dts, k) for p, at, dts, k in SENT]
    found = row(frames((b"sps", 900, 0, 2), *SENT), frames((b"sps", 3005, 0, 2), *got), asked_ms=3000)
    assert found["burst_ms"] == 49 * 40
    assert found["latency_ms_p50"] == 10
    assert found["headers_replayed"] == 1
    assert found["first_frame_ms"] == 10


def test_a_slow_player_misses_frames() -> None:
    """It receives a frame every 80 ms although one is published every 40 ms, and leaves at 5 s with 50 of 100. The last
    was published at 4960 ms; frames of the last half second may be in flight."""
    got = [(payload, 1020 + i * 80, dts, kind) for i, (payload, _, dts, kind) in enumerate(SENT[:50])]
    play = Stream("V", 1, 0, frames(*got), 5 * SECOND)
    (found,) = match_all([Stream("P", 1, 0, frames(*SENT))], [play]).rows
    known = dict(zip(_COLUMNS, found))
    late = sorted(i * 40 + 20 for i in range(25))[12]  # the median of the first 25, in ms
    due = sum(at < 5000 - 2 * late for _, at, _, _ in SENT)
    assert (known["frames_published"], known["frames_missing"]) == (due, due - 50)
    assert due > 70


def test_frames_in_flight_at_the_end_are_not_missing() -> None:
    """A player 300 ms behind leaves at 4 s: it has the frames published by 3.7 s."""
    got = [(payload, at + 300, dts, kind) for payload, at, dts, kind in SENT if at + 300 <= 4000]
    (found,) = match_all([Stream("P", 1, 0, frames(*SENT))], [Stream("V", 1, 0, frames(*got), 4 * SECOND)]).rows
    known = dict(zip(_COLUMNS, found))
    assert (known["frames_published"], known["frames_missing"]) == (len(got), 0)


def test_frames_with_the_same_bytes_are_matched_by_timestamp() -> None:
    """Nine of ten frames have the same bytes."""
    sent = [(b"silence" if i % 10 else b"tone %d" % i, 1000 + i * 23, i * 23, 1) for i in range(500)]
    got = [(p, at + 5, dts, k) for p, at, dts, k in sent if dts >= 230 * 23]
    found = row(frames(*sent), frames(*got))
    assert (found["frames_published"], found["frames_missing"]) == (270, 0)
    assert found["latency_ms_p99"] == 5


def test_two_publishes_of_the_same_file_are_distinguished() -> None:
    """A player joins after frame 20 of the first publish, misses 10 of its frames, and receives all of the second."""
    again = [(payload, at + 6000, dts, kind) for payload, at, dts, kind in SENT]
    got = [(p, at + 30, dts, k) for p, at, dts, k in [*SENT[20:50], *SENT[60:], *again]]
    tries = [Stream("P1", 1, 0, frames(*SENT), 5 * SECOND), Stream("P2", 1, 6 * SECOND, frames(*again), 11 * SECOND)]
    first, second = match_all(tries, [Stream("V", 1, 1_790_000, frames(*got), 12 * SECOND)]).rows
    for found, published, missing in ((first, 80, 10), (second, 100, 0)):
        known = dict(zip(_COLUMNS, found))
        assert (known["latency_ms_p50"], known["latency_ms_p99"], known["burst_ms"]) == (30, 30, 0)
        assert (known["frames_published"], known["frames_missing"], known["frames_changed"]) == (published, missing, 0)


def test_an_earlier_publish_of_the_same_content_is_not_matched() -> None:
    """The frames arrive in real time; from a cache they would arrive at once."""
    before = Stream("P1", 1, 0, frames(*SENT), 5 * SECOND)
    later = [(payload, at + 6000, dts, kind) for payload, at, dts, kind in SENT]
    play = Stream("V", 1, 6 * SECOND, frames(*((p, at + 30, dts, k) for p, at, dts, k in later)), 12 * SECOND)
    assert delivery(before, play) is None
    assert delivery(Stream("P2", 1, 6 * SECOND, frames(*later), 11 * SECOND), play) is not None
    cached = play._replace(frames=frames(*((p, 6000 + i // 10, dts, k) for i, (p, _, dts, k) in enumerate(SENT))))
    assert delivery(before, cached) is not None


def test_streams_with_nothing_in_common() -> None:
    other = [(b"else %d" % i, at, dts, k) for i, (_, at, dts, k) in enumerate(SENT)]
    assert delivery(Stream("P", 1, 0, frames(*SENT)), Stream("V", 1, 0, frames(*other))) is None
    silent = [(b"silence", at, dts, k) for _, at, dts, k in SENT]
    assert delivery(Stream("P", 1, 0, frames(*silent)), Stream("V", 1, 0, frames(*silent))) is None


@pytest.mark.parametrize(
    "name", ["ffmpeg_publish_bframes_rtmpdump_play", "extended_timestamps_ffmpeg_publish_rtmpdump_play"]
)
def test_a_real_relay_compared_with_the_file_of_the_player(name: str) -> None:
    """The file of rtmpdump has the frames that arrived, the recording of nginx-rtmp those that were published."""
    (found,) = recorded(SAMPLES / f"{name}.pcap", "deliveries")["deliveries"]
    played = _bodies(f"{name}.received_by_rtmpdump")
    sent = _bodies(f"{name}.server_record")
    last = max(i for i, body in enumerate(sent) if body in played)
    first = min(i for i, body in enumerate(sent) if body in played)
    assert found["frames_published"] == last - first + 1
    assert found["frames_missing"] == sum(body not in played for body in sent[first : last + 1])
    assert found["frames_changed"] == 0 and found["headers_replayed"] == 2
    assert 0 <= found["latency_ms_p50"] < 5


def test_frames_outside_a_time_filter_are_not_compared() -> None:
    """Configurations from before the filter are not in the rows, so they do not count as replayed."""
    path = SAMPLES / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
    (found,) = recorded(path, "deliveries", arguments=["--since", "2026-11-16T00:02:30Z"])["deliveries"]
    assert found["headers_replayed"] == 0 and found["frames_published"] > 0


def _bodies(name: str) -> list[str]:
    """Checksums of the coded frames of an FLV listing, in order."""
    with open(SAMPLES / "oracle" / f"{name}.flvtags.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        r["body_sha256"] for r in rows
        if r["tag_type"] in ("8", "9") and int(r["body_size"]) and r["first_bytes_hex"][2:4] == "01"
    ]  # fmt: skip


def test_names_and_times_select_the_pairs() -> None:
    """The same content is published twice at the same time: the name decides if it is known."""
    sent = frames(*SENT)
    first, second = Stream("A", 1, 0, sent, 5 * SECOND, "one"), Stream("B", 1, 0, sent, 5 * SECOND, "two")
    later = Stream("C", 1, 100 * SECOND, sent, 105 * SECOND, "one")
    published = [first, second, later]

    def found_by(name: str | None) -> list[str]:
        rows = match_all(published, [Stream("V", 1, 0, sent, 5 * SECOND, name)]).rows
        return [dict(zip(_COLUMNS, r))["publish_uid"] for r in rows]

    assert found_by("one") == ["A"]
    assert found_by("renamed") == found_by(None) == ["A", "B"]
    assert match_all(published, [Stream("V", 1, 500 * SECOND, sent, 505 * SECOND, "one")]).rows == []


def test_frames_published_after_the_player_left_are_ignored() -> None:
    """A publisher that streams for days repeats its frames; plays of the first minute do not change."""
    play = Stream("V", 1, 0, frames(*SENT), 6 * SECOND)
    again = [(payload, at + 3_600_000, dts + 3_600_000, kind) for payload, at, dts, kind in SENT]
    short, long = (Stream("P", 1, 0, frames(*sent)) for sent in (SENT, [*SENT, *again]))
    assert delivery(short, play) == delivery(long, play) is not None
