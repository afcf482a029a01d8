"""Durations and bitrates as text."""

from __future__ import annotations

import pytest

from rtmp_spark.report import units


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0.5, "0.5 ms"), (44, "44 ms"), (5200, "5.2 s"), (150_000, "2 min 30 s"), (16_777_215, "4 h 39 min")],
)
def test_durations(milliseconds: float, words: str) -> None:
    assert units.duration(milliseconds) == words


@pytest.mark.parametrize(
    ("bits", "words"), [(0, "0 kb/s"), (64_300, "64.3 kb/s"), (999_000, "999 kb/s"), (5_440_000, "5.44 Mb/s")]
)
def test_bitrates(bits: float, words: str) -> None:
    assert units.bitrate(bits) == words
