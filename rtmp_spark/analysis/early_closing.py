"""Closes small connections as soon as both sides have ended, instead of when no more packets can belong to them.

A closed connection still owns the packets of its endpoints for a minute (LINGER_NS), and its session, rules and
decoders take 30 kB. They are not needed any more if each side has acknowledged the FIN of the other and all bytes are
decoded: late packets (retransmissions, resets) are rare. So the rows of its end are made at once and kept until no
packet can belong to it, and its bytes go into a temporary file. If a packet comes late, the connection is decoded again
from these bytes, and its rows are made again, with the final counters of TCP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from rtmp_spark.analysis.connection_analysis import AnalysisContext, ConnectionAnalysis, ConnectionObserver
from rtmp_spark.analysis.recorded_rows import Call, RecordedRows, make_calls
from rtmp_spark.analysis.row_sink import RowSink
from rtmp_spark.analysis.rows.interval_rows import TcpSecond
from rtmp_spark.capture.tcp.stream_items import Item, Run
from rtmp_spark.capture.tcp.tcp_connection import Connection
from rtmp_spark.codec.limits import KEPT_RUN_BYTES, KEPT_RUN_BYTES_TOTAL, RUN_FILE_BYTES, RUN_WRITE_BYTES

_new = tuple.__new__  # creates a NamedTuple at a third of its constructor's cost
_Second = tuple[int, int, TcpSecond]  # direction, second, figures


class _RunFile:
    """The bytes of closed connections. The file is deleted when the last of these connections is."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._written = 0
        self._waiting = bytearray()

    @property
    def size_bytes(self) -> int:
        return self._written + len(self._waiting)

    def add(self, packed: bytes) -> int:
        """Returns the place of these bytes."""
        place = self.size_bytes
        self._waiting += packed
        return place

    def write_waiting(self) -> None:
        """Write what was added, if it is much. If it cannot be written, an OSError says why and it stays in memory."""
        if len(self._waiting) < RUN_WRITE_BYTES:
            return
        if self._file is None:
            from tempfile import TemporaryFile  # not needed for most captures

            self._file = TemporaryFile()  # noqa: SIM115 - closed when it is freed
        self._file.seek(self._written)
        self._file.write(self._waiting)
        self._file.flush()
        self._written += len(self._waiting)
        self._waiting.clear()

    def read(self, place: int, size: int) -> bytes:
        if place >= self._written or self._file is None:
            start = place - self._written
            return bytes(self._waiting[start : start + size])
        self._file.seek(place)
        return self._file.read(size)


class _Shape(NamedTuple):
    """What a file does not contain of a run."""

    direction: int
    offset: int
    bytes: int
    segments: int


class _Saved(NamedTuple):
    """Runs in a file, each as its bytes and three columns of 8 bytes."""

    file: _RunFile
    place: int
    runs: tuple[_Shape, ...]


class ClosedEarly:
    """A connection whose rows are made, in place of its analysis."""

    __slots__ = (
        "_calls", "_context", "_gave_rows", "_packets", "_saved", "_seconds", "connection", "refusal", "uid",
    )  # fmt: skip

    def __init__(
        self,
        analysis: ConnectionAnalysis,
        context: AnalysisContext,
        seconds: list[_Second],
        saved: _Saved,
        gave_rows: bool,
        calls: list[Call],
    ) -> None:
        """`calls` add the rows to the tables of `context`."""
        self.connection = analysis.connection
        self.uid = analysis.uid
        self.refusal = analysis.refusal
        self._context = context
        self._gave_rows = gave_rows
        self._seconds = seconds
        self._saved = saved
        self._calls = calls
        self._packets = _packets(self.connection)

    def receive_second(self, side: int, second: int, figures: TcpSecond) -> None:
        """Figures of TCP about late packets."""
        self._seconds.append((side ^ self.connection.origin, second, figures))
        self._packets = -1

    @property
    def is_final(self) -> bool:
        """Whether no packet came since the rows were made."""
        return self._packets == _packets(self.connection)

    def close(self) -> bool:
        """Add the rows to the tables; returns whether there are any."""
        context = self._context
        make_calls(self._calls, context.sink, context.deliveries, context.observer)
        return self._gave_rows

    def reopen(self) -> ConnectionAnalysis:
        """The analysis of the connection, as if its rows had not been made."""
        context = self._context
        quiet = context._replace(sink=RowSink(()), observer=ConnectionObserver(), deliveries=None)
        analysis = ConnectionAnalysis(self.connection, quiet)
        file, place, shapes = self._saved
        for shape in shapes:
            size = shape.bytes + 3 * 8 * shape.segments
            packed = file.read(place, size)
            columns = np.frombuffer(packed, np.int64, offset=shape.bytes).reshape(3, -1)
            analysis.receive(Run(self.connection, shape.direction, shape.offset, packed[: shape.bytes], *columns))
            place += size
        for direction, second, figures in self._seconds:
            analysis.receive_second(direction ^ self.connection.origin, second, figures)
        analysis.advance(0, 0)
        analysis.write_to(context._replace(observer=_NoteOf(context.observer, self._calls)))
        return analysis


class _NoteOf(ConnectionObserver):
    """Passes on the note that was made when the connection was closed first: it does not depend on late packets."""

    def __init__(self, observer: ConnectionObserver, calls: Sequence[Call]) -> None:
        self._observer = observer
        self._calls = calls

    def closed(self, connection: ConnectionAnalysis) -> None:
        for name, values in self._calls:
            if name == "noted":
                self._observer.noted(*values)


class _Kept(NamedTuple):
    """What an open connection has received."""

    runs: list[Run]
    size_bytes: int


_TOO_LARGE = _Kept([], 0)


class EarlyClosing:
    """Call `received` for each connection and its items of a window, and `forget` for each that is closed."""

    def __init__(self, context: AnalysisContext, tables: Sequence[str]) -> None:
        self._context = context
        self._rows = RecordedRows(tables)
        self._to_rows = context._replace(
            sink=self._rows,
            observer=self._rows.observer(context.observer),
            deliveries=None if context.deliveries is None else self._rows.deliveries,
        )
        self._kept: dict[int, _Kept] = {}  # of open connections
        self._kept_bytes = 0
        self._file = _RunFile()
        self._disk_failed = False  # from now on connections are closed when they are over

    @staticmethod
    def applies(context: AnalysisContext) -> bool:
        """Whether the rows of a connection's end depend only on what can be kept."""
        settings = context.settings
        if settings.helpers is not None or settings.hook is not None or settings.filter.by_content:
            return False
        return type(context.observer).closed is ConnectionObserver.closed  # else it may keep the connection

    def received(self, analysis: ConnectionAnalysis, items: list[Item], *, is_over: bool) -> ClosedEarly | None:
        """Close the connection if it is over; else keep its items if they are few and simple."""
        conversation = analysis.conversation
        number = conversation.connection.number
        kept = self._kept.get(number)
        if kept is _TOO_LARGE:
            return None
        size = sum([_size(item) for item in items])
        if kept is not None:
            size += kept.size_bytes
        is_simple = conversation.refusal is None and conversation.wrapping is None and not analysis.gave_seconds
        if size > KEPT_RUN_BYTES or not is_simple or self._disk_failed:
            self._keep(number, _TOO_LARGE)
            return None
        runs: list[Run] = items if kept is None else [*kept.runs, *items]  # type: ignore[assignment, list-item]
        if is_over and _is_complete(analysis, runs):
            self.forget(number)
            return self._close(analysis, runs)
        fits = self._kept_bytes + size <= KEPT_RUN_BYTES_TOTAL
        self._keep(number, _Kept([_own(run) for run in runs], size) if fits else _TOO_LARGE)
        return None

    def forget(self, number: int) -> None:
        """This connection is closed."""
        kept = self._kept.pop(number, None)
        if kept is not None:
            self._kept_bytes -= kept.size_bytes

    def _keep(self, number: int, kept: _Kept) -> None:
        self.forget(number)
        self._kept[number] = kept
        self._kept_bytes += kept.size_bytes

    def _close(self, analysis: ConnectionAnalysis, runs: list[Run]) -> ClosedEarly:
        saved = self._save(runs)
        seconds = [(n, *figures) for n, known in enumerate(analysis.seconds) for figures in known.state()[0]]
        analysis.write_to(self._to_rows)
        gave_rows = analysis.close()
        return ClosedEarly(analysis, self._context, seconds, saved, gave_rows, self._rows.take_calls())

    def _save(self, runs: list[Run]) -> _Saved:
        parts: list[Any] = [part for run in runs for part in run[3:]]  # the bytes and the columns
        shapes = [_new(_Shape, (run[1], run[2], len(run[3]), len(run[4]))) for run in runs]
        if self._file.size_bytes > RUN_FILE_BYTES:
            self._file = _RunFile()
        saved = _Saved(self._file, self._file.add(b"".join(parts)), tuple(shapes))
        try:
            self._file.write_waiting()
        except OSError:
            self._disk_failed = True
        return saved


def _packets(connection: Connection) -> int:
    """The number of its packets so far: without another one, its counters do not change."""
    low, high = connection.sides
    return low.packets + low.duplicate_packets + high.packets + high.duplicate_packets


def _is_complete(analysis: ConnectionAnalysis, runs: Sequence[Run]) -> bool:
    """Whether both FINs were acknowledged, and `runs` are all bytes and leave nothing to decode. Only another packet
    can then change what is known of the connection."""
    connection = analysis.connection
    low, high = connection.sides
    decoders = analysis.directions
    return (
        connection.reset_side is None and low.settled and high.settled
        and low.zero_since_ns is None and high.zero_since_ns is None
        and decoders[0] is not None and decoders[0].is_settled and decoders[1] is not None and decoders[1].is_settled
        and sum([len(run.data) for run in runs]) == low.delivered_bytes + high.delivered_bytes
    )  # fmt: skip


def _size(item: Item) -> int:
    """The bytes and columns of a run; other items cannot be kept."""
    return len(item.data) + 3 * 8 * len(item.seg_frames) if type(item) is Run else KEPT_RUN_BYTES + 1


def _own(run: Run) -> Run:
    """A run whose columns are not parts of those of a whole batch."""
    return run._replace(seg_frames=run.seg_frames.copy(), seg_ts_ns=run.seg_ts_ns.copy())
