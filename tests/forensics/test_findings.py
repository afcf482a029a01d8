"""Texts and order of findings."""

from __future__ import annotations

import json

import pytest

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.codec.limits import DETAIL_CHARACTERS
from rtmp_spark.forensics.findings import Finding, FindingFold, lasting, stream_key
from rtmp_spark.schema import column_names


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
def test_durations_as_text(microseconds: int, words: str) -> None:
    assert lasting(microseconds) == words


def test_of_two_findings_at_one_packet_the_lower_layer_comes_first() -> None:
    fold = FindingFold()
    for code in (ViolationCode.SESSION_END, ViolationCode.CHUNK_RESYNC, ViolationCode.TCP_GAP, ViolationCode.HS_ECHO):
        fold.add(Finding(code, "", frame=7))
    fold.add(Finding(ViolationCode.MEDIA_TAG, "", frame=3))
    codes = [finding.code.value for finding in fold.first_ones()]
    assert codes == ["MEDIA_TAG", "TCP_GAP", "HS_ECHO", "CHUNK_RESYNC", "SESSION_END"]


def test_a_fold_keeps_the_streams_in_which_a_kind_was_seen() -> None:
    fold = FindingFold()
    for began in (10, 10, 30):
        fold.add(Finding(ViolationCode.MEDIA_NAL, "", stream_id=1, ts=began + 5, stream_ts=began))
    fold.add(Finding(ViolationCode.TCP_GAP, "", ts=15))
    for known in (fold, FindingFold.resume(json.loads(json.dumps(fold.state())))):
        about = {
            began: {f.code.value: f.times for f in known.first_ones([stream_key(began, 1)])} for began in (10, 20, 30)
        }
        everywhere = {"TCP_GAP": 1}
        assert about == {10: {"MEDIA_NAL": 3} | everywhere, 20: everywhere, 30: {"MEDIA_NAL": 3} | everywhere}


def test_rows_show_no_part_of_a_secret() -> None:
    secret = "s3cr3t-stream-key"
    fold = FindingFold()
    cut_inside = "x" * (DETAIL_CHARACTERS - 8) + secret
    fold.add(Finding(ViolationCode.CMD_BEFORE_CONNECT, cut_inside, expected=f"not {secret}", actual=secret))
    (row,) = fold.rows("C1", lambda text: text.replace(secret, "key-1"))
    shown = dict(zip(column_names("findings"), row))
    assert (shown["expected"], shown["actual"]) == ("not key-1", "key-1")
    assert shown["detail"].endswith("xkey-1")
    assert not any("s3cr3t" in str(value) for value in row)


def test_the_words_of_a_rule_are_not_stream_names() -> None:
    """A stream may be called "video"; only texts that contain words of a peer are searched for names."""
    codes = (ViolationCode.TIME_STALL, ViolationCode.CMD_BEFORE_CONNECT)
    timing, command = (Finding(code, "no video for 2 s") for code in codes)
    assert timing.without_secrets(lambda text: text.replace("video", "key-1")) == timing
    assert command.without_secrets(lambda text: text.replace("video", "key-1")).detail == "no key-1 for 2 s"
