"""Filters the rows of one connection by time, and holds them until a wanted stream is found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rtmp_spark.analysis.row_sink import RowSink
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.conversation.facts import Row
from rtmp_spark.conversation.stream_span import StreamSpan
from rtmp_spark.schema import MESSAGE_TABLES, column_names

# The column that time filters compare, in rows without uid and direction.
_TIME: Final = {"messages": "ts_last", "controls": "ts", "media_tags": "ts", "commands": "ts"}
TS_COLUMNS: Final = {table: column_names(table).index(name) - 2 for table, name in _TIME.items()}
_INTERVAL_TS: Final = column_names("intervals").index("ts_second")
_FINDING_TS: Final = column_names("findings").index("ts")
_LAST_US: Final = 999_999  # of a second
assert set(TS_COLUMNS) | {"payloads"} == set(MESSAGE_TABLES)


class _Held(NamedTuple):
    table: str
    direction: str
    rows: list[Row]


class ConnectionRows:
    """Emits the rows of one connection. With a stream filter, rows of messages wait until such a stream is found."""

    __slots__ = ("_held", "_settings", "_sink")

    def __init__(self, sink: RowSink, settings: Settings) -> None:
        self._sink = sink
        self._settings = settings
        self._held: list[_Held] | None = [] if settings.filter.stream is not None else None

    @property
    def are_held(self) -> bool:
        """Whether no stream of the wanted name was found so far."""
        return self._held is not None

    def add(self, table: str, uid: str, direction: str, rows: list[Row]) -> None:
        """Rows of a message table."""
        if not rows or not self._sink.wants(table):
            return
        if table in TS_COLUMNS:
            rows = self._settings.filter.rows_in_time(rows, TS_COLUMNS[table])
        if self._held is not None:
            self._held.append(_Held(table, direction, rows))
        else:
            self._sink.add_group(table, uid, direction, rows)

    def release(self, uid: str, spans: Iterable[StreamSpan]) -> None:
        """Emit the rows that wait if one of the streams is wanted."""
        wanted = self._settings.filter.stream
        if self._held is None or wanted is None:
            return
        if any(self._settings.redactor.matches(wanted, span.name) for span in spans):
            held, self._held = self._held, None
            for table, direction, rows in held:
                self._sink.add_group(table, uid, direction, rows)

    def add_seconds(self, rows: list[Row]) -> None:
        wanted = self._settings.filter
        in_time = [row for row in rows if wanted.admits_span(row[_INTERVAL_TS], row[_INTERVAL_TS] + _LAST_US)]
        self._sink.add("intervals", in_time)

    def add_findings(self, rows: list[Row]) -> None:
        rows = self._settings.filter.rows_in_time(rows, _FINDING_TS)
        if self._settings.rules_across_connections:
            self._sink.add_late("findings", rows)
        else:
            self._sink.add("findings", rows)
