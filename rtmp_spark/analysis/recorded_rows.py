"""The rows of some connections, recorded in one process and added to the tables in another.

Each entry has a key. Entries of all processes, sorted by it, are in the order in which one process would add them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from rtmp_spark.analysis.connection_analysis import ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.row_sink import RowSink
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.deliveries.delivery_matching import Deliveries


class Stage(IntEnum):
    """When rows are added: after a window, at the end for connections of a few packets, then for all others."""

    WINDOW = 0
    BRIEF_FLOWS = 1
    END = 2


Call = tuple[str, tuple[object, ...]]  # the name of a method and its arguments


class Recorded(NamedTuple):
    """What one connection added. `frame` is its first packet."""

    stage: int
    is_over: bool
    frame: int
    calls: list[Call]

    @property
    def key(self) -> tuple[int, bool, int]:
        return self[:3]


class RecordedRows(RowSink):
    """Records calls instead of collecting rows; `mark` ends those of one connection."""

    def __init__(self, tables: Iterable[str]) -> None:
        super().__init__(tables)
        self._calls: list[Call] = []
        self._entries: list[Recorded] = []
        self.deliveries = _RecordedDeliveries(self._calls)

    def observer(self, observer: ConnectionObserver) -> ConnectionObserver:
        """Records the notes of this observer."""
        return _RecordedNotes(observer, self._calls)

    def add_group(self, table: str, uid: str, direction: str, rows: Sequence[Row]) -> None:
        if self.wants(table) and rows:
            self._calls.append(("add_group", (table, uid, direction, rows)))

    def add(self, table: str, rows: Sequence[Row]) -> None:
        if self.wants(table) and rows:
            self._calls.append(("add", (table, rows)))

    def add_late(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            self._calls.append(("add_late", (table, rows)))

    def take_calls(self) -> list[Call]:
        """The calls since the last `mark` or `take_calls`."""
        calls = self._calls[:]
        self._calls.clear()
        return calls

    def mark(self, stage: Stage, is_over: bool, frame: int) -> None:
        if self._calls:
            self._entries.append(Recorded(int(stage), is_over, frame, self.take_calls()))

    def take(self) -> list[Recorded]:
        entries, self._entries = self._entries, []
        return entries


class _RecordedDeliveries(Deliveries):
    def __init__(self, calls: list[Call]) -> None:
        super().__init__()
        self._calls = calls

    def collect(self, uid: str, direction: str, messages: Sequence[Row], media: Sequence[Row]) -> None:
        self._calls.append(("collect", (uid, direction, messages, media)))


class _RecordedNotes(ConnectionObserver):
    def __init__(self, observer: ConnectionObserver, calls: list[Call]) -> None:
        self._observer = observer
        self._calls = calls

    def first_commands_wanted(self) -> bool:
        return self._observer.first_commands_wanted()

    def note(self, connection: ConnectionAnalysis) -> object:
        return self._observer.note(connection)

    def noted(self, note: object) -> None:
        self._calls.append(("noted", (note,)))


def replay(
    entries: Iterable[Recorded], sink: RowSink, deliveries: Deliveries | None, observer: ConnectionObserver
) -> int:
    """Make the recorded calls; returns how many notes the observer got."""
    return sum([make_calls(entry.calls, sink, deliveries, observer) for entry in entries])


def make_calls(calls: list[Call], sink: RowSink, deliveries: Deliveries | None, observer: ConnectionObserver) -> int:
    """Returns how many notes the observer got."""
    notes = 0
    for name, values in calls:
        receiver = observer if name == "noted" else deliveries if name == "collect" else sink
        getattr(receiver, name)(*values)
        notes += receiver is observer
    return notes
