"""Verdicts of connections without streams."""

from __future__ import annotations

from rtmp_spark.report.verdict import judge


def test_a_decrypted_connection_is_judged_by_its_content() -> None:
    row = {"service": "rtmps", "app": None, "close_cause": "refused"}
    assert judge(row, [], []).word == "unknown"
    assert judge(row | {"app": "live"}, [], []).word == "failed"
