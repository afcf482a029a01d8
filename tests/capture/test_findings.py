"""How findings are worded and ordered."""

from __future__ import annotations

import pytest

from rtmp_spark.capture.findings import Finding, FindingFold, lasting
from rtmp_spark.codec.errors import ViolationCode


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (999, "less than 1 ms"),
        (43_400, "43 ms"),
        (950_000, "950 ms"),
        (999_499, "999 ms"),
        (999_500, "1.0 s"),
        (9_040_000, "9.0 s"),
    ],
)
def test_a_length_of_time_in_words(microseconds: int, words: str) -> None:
    assert lasting(microseconds) == words


def test_of_two_findings_at_one_packet_the_lower_layer_comes_first() -> None:
    fold = FindingFold()
    for code in (ViolationCode.SESSION_END, ViolationCode.CHUNK_RESYNC, ViolationCode.TCP_GAP, ViolationCode.HS_ECHO):
        fold.add(Finding(code, "", frame=7))
    fold.add(Finding(ViolationCode.MEDIA_TAG, "", frame=3))
    told = [finding.code.value for finding in fold.first_ones()]
    assert told == ["MEDIA_TAG", "TCP_GAP", "HS_ECHO", "CHUNK_RESYNC", "SESSION_END"]
