"""The index of checksums finds the pairs that a comparison of all pairs finds; its limits are reported."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.handmade_facts import SAMPLES, recorded
from kit.pairwise_deliveries import match_pairwise

from rtmp_spark.codec.limits import COMPARED_STREAMS
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.deliveries import delivery_matching, shared_frames
from rtmp_spark.forensics.deliveries.delivery_frames import Frames, Stream
from rtmp_spark.forensics.deliveries.delivery_matching import match_all
from rtmp_spark.schema import column_names

SECOND = 1_000_000
_PUBLISHER = column_names("deliveries").index("publish_uid")
_DETAIL, _RULE, _UID = (column_names("findings").index(c) for c in ("detail", "rule_id", "uid"))


def live(keys: Sequence[int], start: int, step_ms: int = 40, late_ms: int = 0) -> Frames:
    """Coded frames at a regular pace, as sent or `late_ms` later."""
    own = Frames()
    for n, key in enumerate(keys):
        own.key.append(key)
        own.ts.append(start + (n * step_ms + late_ms) * 1000)
        own.dts.append(n * step_ms)
        own.kind.append(1)
    return own


def stream(uid: str, keys: Sequence[int], start: int = 0, name: str | None = None, late_ms: int = 0) -> Stream:
    frames = live(keys, start, late_ms=late_ms)
    return Stream(uid, 1, start, frames, max(frames.ts, default=start) + SECOND, name, "s2c")


def some_keys(rng: random.Random, count: int) -> list[int]:
    return [rng.getrandbits(64) for _ in range(count)]


@pytest.mark.parametrize("seed", range(30))
def test_the_same_rows_as_a_comparison_of_all_pairs(seed: int) -> None:
    """Looped clips, streams that share a quarter of their frames, silence, renamed and nameless streams, repeats."""
    rng = random.Random(seed)
    silence = some_keys(rng, 4)
    names = [None, "one", "two", "three"]
    published: list[Stream] = []
    for n in range(14):
        clip = some_keys(rng, rng.choice((5, 30, 90)))
        keys = clip * rng.choice((1, 1, 3))
        if published and rng.random() < 0.4:  # a quarter of the frames of another stream
            other = list(rng.choice(published).frames.key)
            keys[: len(keys) // 4] = other[: len(keys) // 4]
        if rng.random() < 0.3:
            keys = [key for pair in zip(keys, silence * len(keys)) for key in pair]
        published.append(stream(f"P{n:02}", keys, rng.randrange(100) * SECOND, rng.choice(names)))
    played: list[Stream] = []
    for n in range(20):
        source = rng.choice(published)
        keys = list(source.frames.key)[rng.randrange(4) :]
        if rng.random() < 0.3:  # a share near the least that a match needs
            kept = int(len(keys) * rng.choice((0.15, 0.2, 0.25)))
            keys = keys[:kept] + some_keys(rng, len(keys) - kept)
        start = source.ts_start + rng.choice((0, 0, 2, 200)) * SECOND
        played.append(stream(f"V{n:02}", keys, start, rng.choice([source.name, *names]), rng.choice((0, 30))))
    found = match_all(published, played)
    assert sorted(found.rows, key=repr) == sorted(match_pairwise(published, played), key=repr)
    assert found.findings == []


def test_so_many_random_streams_give_enough_rows_to_compare() -> None:
    rng = random.Random(5)
    published = [stream(f"P{n}", some_keys(rng, 40), n * SECOND, "one") for n in range(30)]
    played = [stream(f"V{n}", list(p.frames.key), p.ts_start, "one", 10) for n, p in enumerate(published)]
    assert len(match_all(published, played).rows) == len(match_pairwise(published, played)) == 30


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_every_sample(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[Row] = []

    def compared(published: Sequence[Stream], played: Sequence[Stream]) -> delivery_matching.Matched:
        expected.extend(match_pairwise(published, played))
        return match_all(published, played)

    monkeypatch.setattr(delivery_matching, "match_all", compared)
    found = recorded(path, "deliveries")["deliveries"]
    assert sorted(tuple(row.values())[:-1] for row in found) == sorted(expected)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    keys = some_keys(rng, 50)
    published = [stream(f"P{n:02}", keys[: 10 + n], n * SECOND) for n in range(40)]
    played = [stream(f"V{n:02}", keys, n * SECOND, late_ms=5) for n in range(5)]
    whole = match_all(published, played)
    monkeypatch.setattr(shared_frames, "INDEXED_FRAMES", 100)
    assert match_all(published, played) == whole


def test_the_same_content_published_too_often() -> None:
    """The streams with the most frames in common are compared; the finding counts the others."""
    keys = some_keys(random.Random(1), 50)
    published = [stream(f"P{n:02}", keys[: 11 + n], 0, "one") for n in range(40)]
    found = match_all(published, [stream("V", keys, 0, "one", 5)])
    assert [row[_PUBLISHER] for row in found.rows] == [f"P{n:02}" for n in range(40 - COMPARED_STREAMS, 40)]
    (finding,) = found.findings
    assert (finding[_RULE], finding[_UID]) == ("CAPTURE_LIMIT", "V")
    assert finding[_DETAIL] == "the frames of this play are in 40 published streams; it was compared with 16 of them"
    assert len(match_pairwise(published, [stream("V", keys, 0, "one", 5)])) == 40


def test_frames_in_very_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at a limit on the frames found, counted over the streams of the time of the play only."""
    monkeypatch.setattr(shared_frames, "SHARED_FRAMES", 0)
    monkeypatch.setattr(shared_frames, "SHARED_FRAMES_EACH", 3)
    keys = some_keys(random.Random(1), 20)
    published = [stream(f"P{n:02}", keys, n * SECOND // 10) for n in range(5)]
    play = stream("V", keys, 0, late_ms=5)
    found = match_all(published, [play])
    assert [row[_PUBLISHER] for row in found.rows] == ["P00", "P01", "P02"]
    (finding,) = found.findings
    assert "very many published streams; it was compared with 3 of them" in finding[_DETAIL]
    monkeypatch.setattr(shared_frames, "INDEXED_FRAMES", 20)  # one stream per block
    assert match_all(published, [play]) == found
    long_before = [stream(f"B{n:02}", keys, -1000 * SECOND - n) for n in range(5)]
    assert match_all([*long_before, *published], [play]) == found


def test_a_stream_of_the_name_that_began_early_and_runs_late() -> None:
    """The stream of the play's name that is still running began before a short one that is over."""
    keys = some_keys(random.Random(1), 20)
    long = stream("P1", some_keys(random.Random(2), 20), 0, "one")._replace(ts_end=900 * SECOND)
    short = stream("P2", some_keys(random.Random(3), 20), SECOND, "one")
    other = stream("P3", keys, 800 * SECOND, "two")
    play = stream("V", keys, 800 * SECOND, "one", 5)
    assert match_all([long, short, other], [play]).rows == match_pairwise([long, short, other], [play]) == []
    assert len(match_all([short, other], [play]).rows) == 1
