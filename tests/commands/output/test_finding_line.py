"""A finding of live traffic in one line."""

from __future__ import annotations

import time

import pytest

from rtmp_relay.validation.validator import ReportedFinding
from rtmp_spark.codec.errors import Severity, ViolationCode
from rtmp_spark.commands.output.finding_line import finding_line
from rtmp_spark.forensics.catalogue.entry import NO_ACTION
from rtmp_spark.forensics.catalogue.rules import CATALOGUE

FINDING = ReportedFinding(
    1_750_000_000_123_456_789, 3, "live/key-abc", "publish", "client", Severity.ERROR, ViolationCode.MEDIA_ANNEXB,
    "start codes instead of NAL unit lengths",
)  # fmt: skip
REMEDY = "Convert to length-prefixed NAL units, and move SPS and PPS into the configuration record."


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)


def test_a_line_has_time_stream_rule_detail_and_remedy() -> None:
    assert finding_line(FINDING) == (
        "15:06:40.123 live/key-abc publish: error MEDIA_ANNEXB (client): start codes instead of NAL unit lengths "
        f"-> {REMEDY}"
    )


def test_a_finding_without_a_stream_names_the_connection() -> None:
    line = finding_line(FINDING._replace(stream=None, role=None, at_fault=None))
    assert line.startswith("15:06:40.123 connection 3: error MEDIA_ANNEXB: start codes")


def test_text_of_a_peer_cannot_control_the_terminal() -> None:
    line = finding_line(FINDING._replace(stream="li\x1b[2Jve/x", detail="a\nb"))
    assert line.startswith("15:06:40.123 li.[2Jve/x publish: error MEDIA_ANNEXB (client): a.b -> ")


def test_a_rule_that_needs_no_action_has_no_remedy() -> None:
    code = next(code for code, found in CATALOGUE.items() if found.remedy == NO_ACTION)
    assert "->" not in finding_line(FINDING._replace(code=code))
