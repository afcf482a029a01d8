"""One connection as a page needs it: rows, ladder, media and figures, each fetched or computed once, when asked for.

It draws nothing and decides nothing; panels.py turns it into HTML.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rtmp_spark.report import declared, flow, ladder, verdict
from rtmp_spark.report.figure import Figure
from rtmp_spark.report.media import Media, StreamMedia
from rtmp_spark.report.source import Tables

Row = dict[str, Any]


class Session:
    def __init__(self, tables: Tables, connection: Row, captures: list[Row]) -> None:
        self.tables = tables
        self.connection = connection
        self.uid: str = connection["uid"]
        self.start: int = connection["ts_start"]
        own = set(connection["capture_ids"])
        self.captures = [row for row in captures if row["capture_id"] in own] or captures

    def _rows(self, table: str) -> list[Row]:
        return self.tables.rows(table, self.uid)

    @cached_property
    def streams(self) -> list[Row]:
        return sorted(self._rows("streams"), key=lambda row: (row["ts_start"], row["stream_id"]))

    @cached_property
    def findings(self) -> list[Row]:
        return verdict.ordered(self._rows("findings"))

    @cached_property
    def handshake(self) -> Row | None:
        return next(iter(self._rows("handshakes")), None)

    @cached_property
    def commands(self) -> list[Row]:
        return sorted(self._rows("commands"), key=lambda row: (row["ts"], row["frame"], row["msg_no"]))

    @cached_property
    def controls(self) -> list[Row]:
        return sorted(self._rows("controls"), key=lambda row: (row["ts"], row["frame"], row["msg_no"]))

    @cached_property
    def intervals(self) -> list[Row]:
        return self._rows("intervals")

    @cached_property
    def deliveries(self) -> list[Row]:
        return self._rows("deliveries")

    @cached_property
    def message_counts(self) -> list[Row]:
        return self.tables.message_counts(self.uid)

    @cached_property
    def verdict(self) -> verdict.Verdict:
        return verdict.judge(self.connection, self.streams, self.findings)

    @cached_property
    def ladder(self) -> ladder.Ladder:
        return ladder.build(self.connection, self.handshake, self.commands, self.controls)

    @cached_property
    def media(self) -> Media:
        found = self.tables.media(self.uid, self.start, self.ladder.events)
        return found if found is not None else Media()

    @property
    def end(self) -> int:
        return int(self.connection["ts_end"])

    @property
    def duration_ms(self) -> float:
        return float(self.connection["ts_end"] - self.start) / 1000

    @property
    def x_range(self) -> tuple[float, float]:
        return 0.0, max(self.duration_ms / 1000, 0.001)

    # -- figures ----------------------------------------------------------------------------------------------

    @cached_property
    def bitrate(self) -> Figure:
        drawn = [s for _, figure in self.media_figures("frames") for s in figure.series if s.role == "key"]
        return flow.bitrate(self.intervals, self.start, sorted(x for series in drawn for x in series.x))

    @cached_property
    def flow_control(self) -> list[Figure]:
        return [
            flow.acknowledgements(self.intervals, self.controls, self.start, self.end),
            flow.tcp(self.intervals, self.start, self.end),
            flow.round_trips(self.intervals, self.controls, self.start, self.end),
        ]

    def media_figures(self, *keys: str) -> list[tuple[StreamMedia, Figure]]:
        """The plots of these kinds, stream by stream."""
        return [(stream, f) for stream in self.media.streams for f in stream.figures if f.key in keys]

    def declared(self, stream: StreamMedia) -> list[declared.Line]:
        meta = declared.metadata(self.commands, stream.direction, stream.stream_id)
        row = next(
            (r for r in self.streams if r["stream_id"] == stream.stream_id and r["direction"] == stream.direction), None
        )
        return declared.lines(meta, stream, row)

    @property
    def capture_name(self) -> dict[str, str]:
        return {row["capture_id"]: row["path"].rpartition("/")[2] for row in self.captures}


def sessions(tables: Tables, uids: list[str] | None = None) -> list[Session]:
    """The connections of a source, in the order of time."""
    captures = tables.rows("captures")
    rows = sorted(tables.rows("connections"), key=lambda row: (row["ts_start"], row["uid"]))
    return [Session(tables, row, captures) for row in rows if uids is None or row["uid"] in uids]
