"""What `demo` prints about its findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtmp_spark.commands.output.demo_output import DemoResult, print_result


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("start codes instead of NAL unit lengths", False),
        ("Start codes instead of NAL unit lengths.", False),
        ("start codes instead of NAL unit lengths; a start code instead of the configuration record", True),
    ],
)
def test_a_detail_is_printed_if_it_says_more_than_the_title(
    detail: str, shown: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # the width decides where lines are wrapped
    row = {
        "rule_id": "MEDIA_ANNEXB", "severity": "error", "party": "publisher", "at_fault": "client", "uid": None,
        "frame": 1, "count": 1, "title": "Annex B start codes instead of NAL unit lengths", "detail": detail,
        "clause": None, "fix_hint": "Send lengths.",
    }  # fmt: skip
    print_result(DemoResult(tmp_path, "MEDIA_ANNEXB", findings=[row]), 1.0)
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("error    MEDIA_ANNEXB, publisher: Annex B start codes instead of NAL unit lengths.")
    assert (lines[first + 1].strip() == detail) == shown
    assert (lines[first + 1].strip() == "-> Send lengths.") != shown
