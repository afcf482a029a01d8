"""One connection as the panels need it: rows, ladder, media and figures, each fetched or computed on first use.

The modules of panels/ turn it into HTML.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rtmp_spark.report import ladder, metadata_comparison, verdict
from rtmp_spark.report.figures import wire_figures
from rtmp_spark.report.figures.figure import Figure, Mark
from rtmp_spark.report.media_summary import Media, StreamMedia
from rtmp_spark.report.table_source import Tables

Row = dict[str, Any]
MOST_FLAGS = 60
_FLAGGED = {"error": "bad", "warning": "warn"}


class ConnectionData:
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
    def paths(self) -> list[Row]:
        """The same connection at other sensors."""
        return [row for row in self.tables.rows("paths") if self.uid in (row["uid_a"], row["uid_b"])]

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
    def media_end(self) -> int:
        """Until when media was expected: the end of the streams after a teardown, otherwise of the connection."""
        if self.connection["close_cause"] == "teardown" and self.streams:
            return int(max(row["ts_end"] for row in self.streams))
        return self.end

    @property
    def duration_ms(self) -> float:
        return float(self.connection["ts_end"] - self.start) / 1000

    @property
    def x_range(self) -> tuple[float, float]:
        return 0.0, max(self.duration_ms / 1000, 0.001)

    @cached_property
    def flags(self) -> list[Mark]:
        """Errors and warnings at their times, for the plots."""
        found = [row for row in self.findings if row["ts"] is not None and row["severity"] in _FLAGGED][:MOST_FLAGS]
        return [
            Mark(
                round((row["ts"] - self.start) / 1e6, 3),
                _FLAGGED[row["severity"]],
                f"{row['rule_id']}, packet {row['frame']}" if row["frame"] else row["rule_id"],
            )
            for row in found
        ]

    @property
    def packets(self) -> list[tuple[float, int]]:
        """(seconds, packet number) of some packets; empty if several captures number them."""
        return self.media.packets if len(self.captures) == 1 else []

    # -- figures ----------------------------------------------------------------------------------------------

    @cached_property
    def bitrate(self) -> Figure:
        drawn = [s for _, figure in self.media_figures("frames") for s in figure.series if s.role == "key"]
        keys = sorted(x for series in drawn for x in series.x)
        return wire_figures.bitrate(self.intervals, self.start, self.media_end, keys)

    @cached_property
    def flow_control(self) -> list[Figure]:
        return [
            wire_figures.acknowledgements(self.intervals, self.controls, self.start, self.end),
            wire_figures.tcp(self.intervals, self.start, self.end),
            wire_figures.round_trips(self.intervals, self.controls, self.start, self.end),
        ]

    def media_figures(self, *keys: str) -> list[tuple[StreamMedia, Figure]]:
        """The figures with these keys, grouped by stream."""
        return [(stream, f) for stream in self.media.streams for f in stream.figures if f.key in keys]

    def declared(self, stream: StreamMedia) -> list[metadata_comparison.Line]:
        meta = metadata_comparison.metadata(self.commands, stream.direction, stream.stream_id)
        row = next(
            (r for r in self.streams if r["stream_id"] == stream.stream_id and r["direction"] == stream.direction), None
        )
        return metadata_comparison.lines(meta, stream, row)

    @property
    def capture_name(self) -> dict[str, str]:
        return {row["capture_id"]: row["path"].rpartition("/")[2] for row in self.captures}


def all_connections(tables: Tables, uids: list[str] | None = None) -> list[ConnectionData]:
    """The connections of a source by start time: all, or those in `uids`."""
    captures = tables.rows("captures")
    rows = sorted(tables.rows("connections"), key=lambda row: (row["ts_start"], row["uid"]))
    return [ConnectionData(tables, row, captures) for row in rows if uids is None or row["uid"] in uids]
