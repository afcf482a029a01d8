"""Every sample capture yields exactly the results in the tables of tests/expectations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from kit.handmade_facts import SAMPLES, recorded, table

# RTMPS and RTMPT have tests of their own.
WRAPPED = ("rtmps_", "p1980_rtmpt")
CAPTURES = sorted(p for p in SAMPLES.glob("*.pcap*") if not p.name.startswith(WRAPPED))


def test_the_tables_name_existing_captures() -> None:
    names = {path.name for path in CAPTURES}
    for file in ("findings.tsv", "software.tsv", "endings.tsv", "verdicts.tsv"):
        assert {row["capture"] for row in table(file)} <= names


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_a_capture_has_exactly_the_expected_findings(path: Path) -> None:
    found = recorded(path, "findings", "connections")
    actual = Counter(
        tuple(str(f[name] if f[name] is not None else "-") for name in
              ("rule_id", "severity", "at_fault", "direction", "frame", "count"))
        for f in found["findings"] if f["rule_id"] != "SESSION_END"
    )  # fmt: skip
    expected = Counter(
        tuple(row[name] for name in ("rule_id", "severity", "at_fault", "direction", "frame", "count"))
        for row in table("findings.tsv") if row["capture"] == path.name
    )  # fmt: skip
    assert actual == expected
    ends = [f for f in found["findings"] if f["rule_id"] == "SESSION_END"]
    assert len(ends) == len(found["connections"])
    assert all(f["title"] and f["fix_hint"] is not None for f in found["findings"] if f["severity"] == "error")
    for row in table("software.tsv"):
        if row["capture"] == path.name:
            own = next(c for c in found["connections"] if str(c["orig_p"]) == row["client_port"])
            assert (own["software"] or "-", own["server_software"] or "-") == (row["client"], row["server"])
            for side, known in (("client", own["software"]), ("server", own["server_software"])):
                assert any(e.startswith(side) for e in own["software_evidence"]) == (known is not None)
    for row in table("endings.tsv"):
        if row["capture"] == path.name:
            own = next(c for c in found["connections"] if str(c["orig_p"]) == row["client_port"])
            end = (own["closed_by"] or "-", own["close_kind"], own["close_cause"])
            assert end == (row["closed_by"], row["close_kind"], row["close_cause"])


def test_a_second_publish_of_a_name_refers_to_the_first() -> None:
    streams = recorded(SAMPLES / "republish_same_name.pcap", "streams")["streams"]
    assert [s["attempt_no"] for s in streams] == [1, 2]
    assert streams[1]["prev_uid"] == streams[0]["uid"]
    assert streams[1]["down_ms"] > 0


def test_a_seek_causes_no_timestamp_finding() -> None:
    """Timestamps restart at the seek point; without the exception they would go backwards by two seconds."""
    (stream,) = recorded(SAMPLES / "ffmpeg_vod_seek.pcap", "streams")["streams"]
    assert stream["verdict"] == "ok" and stream["stalls"] == 0


def test_drift_is_measured_as_large_as_it_was_made() -> None:
    """The audio clock of this capture is 0.5 % fast."""
    (stream,) = recorded(SAMPLES / "audio_drifts_ahead_of_video.pcap", "streams")["streams"]
    assert stream["av_drift_ms_per_min"] == pytest.approx(0.005 * 60_000, rel=0.02)


def test_declared_and_measured_values_agree() -> None:
    """The settings that ffmpeg wrote into its metadata, compared with the bitstream."""
    publish, play = recorded(SAMPLES / "ffmpeg_publish_bframes_rtmpdump_play.pcap", "streams")["streams"]
    for name, value in (("width", 320), ("height", 240), ("fps", 25), ("video_codec", "avc"), ("audio_codec", "aac")):
        assert publish[name] == publish[f"declared_{name}"] == value
    assert publish["sample_rate"] == publish["declared_sample_rate"] == 44100
    assert publish["keyframe_interval_ms_p50"] == 2000  # -g 50 at 25 frames per second
    assert publish["first_is_key"] is True and play["first_is_key"] is True
    assert publish["startup_ms"] > 0


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.pcap*")), ids=lambda path: path.name)
def test_a_stream_is_ok_unless_expected_otherwise(path: Path) -> None:
    found = recorded(path, "streams", "connections")
    ports = {c["uid"]: str(c["orig_p"]) for c in found["connections"]}
    actual = Counter(
        (ports[s["uid"]], s["role"], s["verdict"], s["verdict_rule_id"])
        for s in found["streams"] if s["verdict"] != "ok"
    )  # fmt: skip
    expected = Counter(
        tuple(row[name] for name in ("client_port", "role", "verdict", "rule_id"))
        for row in table("verdicts.tsv") if row["capture"] == path.name
    )  # fmt: skip
    assert actual == expected
