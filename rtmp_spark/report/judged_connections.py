"""Every connection with its streams, findings and verdict: the rows that pages about several connections count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rtmp_spark.forensics.thresholds import LOSS_PACKETS
from rtmp_spark.report import verdict

Row = dict[str, Any]


class JudgedConnection(NamedTuple):
    row: Row
    streams: list[Row]
    findings: list[Row]
    verdict: verdict.Verdict


class JudgedConnections:
    """All connections in the order of their rows; `of_files` are the findings about capture files."""

    def __init__(self, connections: Sequence[Row], streams: Sequence[Row], findings: Sequence[Row]) -> None:
        own_streams: dict[str, list[Row]] = {}
        own_findings: dict[str | None, list[Row]] = {}
        for row in streams:
            own_streams.setdefault(row["uid"], []).append(row)
        for row in findings:
            own_findings.setdefault(row["uid"], []).append(row)
        self.all: list[JudgedConnection] = []
        for row in connections:
            mine, found = own_streams.get(row["uid"], []), own_findings.get(row["uid"], [])
            self.all.append(JudgedConnection(row, mine, found, verdict.judge(row, mine, found)))
        self.of_files = own_findings.get(None, [])

    def by_capture(self) -> dict[str, Counter[str]]:
        """Connections per verdict for each capture id. A connection that spans several captures counts in each."""
        counted: dict[str, Counter[str]] = {}
        for connection in self.all:
            for capture in connection.row["capture_ids"]:
                counted.setdefault(capture, Counter())[connection.verdict.word] += 1
        return counted

    def ranked(self) -> list[JudgedConnection]:
        """Worst first: by verdict, then by the number of errors and warnings, then by time."""
        return sorted(
            self.all,
            key=lambda connection: (
                verdict.VERDICTS.index(connection.verdict.word),
                -sum(f["severity"] == "error" for f in connection.findings),
                -sum(f["severity"] == "warning" for f in connection.findings),
                connection.row["ts_start"],
                connection.row["uid"],
            ),
        )


def loss(row: Row, direction: str | None = None) -> str:
    """The packet loss of a row of `connections` in a direction, else the larger of both; empty if there is none or
    there are too few packets for a rate."""
    ways = ("c2s", "s2c") if direction is None else (direction,)
    lost = [row.get(f"loss_pct_{way}") or 0 for way in ways if row[f"packets_{way}"] >= LOSS_PACKETS]
    return f"{max(lost):.1f} %" if lost and max(lost) >= 0.05 else ""


def software(row: Row) -> str:
    """The client software of a row of `connections`: recognised, else as announced, else `unknown`."""
    return row["software"] or row["flash_ver"] or "unknown"
