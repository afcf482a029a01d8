"""Which connections of a lake have parts in captures that arrive late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.ingest.captures.late_captures import found_late

SECOND, HOUR = 1_000_000_000, 3_600_000_000_000
CLIENT, SERVER = ("10.0.0.1", 40000), ("10.0.0.2", 1935)
BEGUN, ENDED = 100 * HOUR, 101 * HOUR


def connection(**of_it: Any) -> dict[str, Any]:
    ends = {"orig_h": CLIENT[0], "orig_p": CLIENT[1], "resp_h": SERVER[0], "resp_p": SERVER[1]}
    times = {"ts_start": BEGUN // 1000, "ts_end": ENDED // 1000}
    return {"uid": "C", "midstream": False, "close_kind": "fin", **ends, **times, **of_it}


@pytest.mark.parametrize(
    ("first", "last", "of_it", "found"),
    [
        (BEGUN - HOUR, BEGUN - SECOND, {}, False),  # its SYN is there: nothing came before
        (BEGUN - HOUR, BEGUN - SECOND, {"midstream": True}, True),
        (BEGUN - 26 * HOUR, BEGUN - 25 * HOUR, {"midstream": True}, False),
        (BEGUN - HOUR, BEGUN + SECOND, {}, True),
        (BEGUN + SECOND, BEGUN + 2 * SECOND, {}, True),
        (ENDED + 59 * SECOND, ENDED + HOUR, {}, True),
        (ENDED + 61 * SECOND, ENDED + HOUR, {}, False),
        (ENDED + 23 * HOUR, ENDED + 24 * HOUR, {"close_kind": "open"}, True),
        (ENDED + 25 * HOUR, ENDED + 26 * HOUR, {"close_kind": "open"}, False),
        (BEGUN + SECOND, BEGUN + 2 * SECOND, {"orig_p": 40001}, False),
    ],
)
def test_by_endpoints_and_times(first: int, last: int, of_it: dict[str, Any], found: bool) -> None:
    assert found_late([connection(**of_it)], {frozenset((CLIENT, SERVER)): (first, last)}) == (
        {"C"} if found else set()
    )


def test_a_part_of_a_connection_that_is_over(sample_pcaps: Path, tmp_path: Path) -> None:
    """Its state was dropped when a capture of hours later was ingested; captures in order of time are never late."""
    lake = tmp_path / "lake"
    first, *rest = sorted(sample_pcaps.glob("rotated_*_0?.pcap"))
    later = sample_pcaps / "rtmps_tls12_ffmpeg_publish.pcap"
    assert ingest_in_process(lake, [*rest, later]).late == []
    (joined,) = (row for row in lake_rows(lake, "connections") if row["midstream"])
    assert joined["uid"] not in [row["uid"] for row in lake_rows(lake, "open_flows")]
    (warning,) = ingest_in_process(lake, [first]).late
    assert warning.startswith(f"a part of {joined['uid']};") and "--redo" in warning
