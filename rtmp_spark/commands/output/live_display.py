"""The live display of `relay` and `tap`: a table that is rewritten in place on a terminal, otherwise lines.

Neither needs a thread: the caller decides when the streams are shown.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rtmp_spark.commands.output.colours import HEADING, SEVERITY_STYLES
from rtmp_spark.commands.output.finding_line import local_time
from rtmp_spark.commands.output.tables.column_table import fitted
from rtmp_spark.commands.output.terminal_escape import escape_for_terminal
from rtmp_spark.report.units import MISSING, bitrate, counted

if TYPE_CHECKING:
    from rtmp_relay.validation.stream_rows import StreamRow

_HEADINGS = ("stream", "role", "fps", "kb/s", "pace", "a-v ms", "GOP s", "players", "last finding")
_TEXTS = (True, True, False, False, False, False, False, False, True)  # aligned to the left
_FIRM = (False, True, True, True, True, True, True, True, False)  # not cut to fit the terminal
_GAP = "  "
_LINES_AROUND_THE_TABLE = 4  # heading, number of streams left out, and room for the log


def stream_table(rows: list[StreamRow], left_out: int, width: int) -> list[Text]:
    """The lines of the table, none wider than `width`."""
    if not rows:
        return [Text("No streams.", style="dim")]
    table = [_HEADINGS, *map(_cells, rows)]
    widths = fitted([max(len(cells[column]) for cells in table) for column in range(len(_HEADINGS))], _FIRM, width)
    lines = [Text(_GAP.join(_aligned(_HEADINGS, widths)), style=HEADING)]
    for row, cells in zip(rows, table[1:]):
        *others, last = _aligned(cells, widths)
        shows_finding = len(widths) == len(_HEADINGS) and row.last_finding is not None
        style = SEVERITY_STYLES[row.last_finding[1].value] if shows_finding and row.last_finding else ""
        lines.append(Text.assemble(_GAP.join([*others, ""]), (last, style)))
    return lines + ([Text(_more(left_out), style="dim")] if left_out else [])


def _aligned(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    cut = [cell if len(cell) <= width else cell[: width - 1] + "…" for cell, width in zip(cells, widths)]
    return [cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(cut, widths, _TEXTS)]


def _cells(row: StreamRow) -> tuple[str, ...]:
    frame_rate, bits, pace, skew_ms, gop_ms = row.measures
    return (
        escape_for_terminal(row.name),
        row.role,
        MISSING if frame_rate is None else f"{frame_rate:.1f}",
        MISSING if bits is None else f"{bits / 1000:,.0f}",
        MISSING if pace is None else f"{pace:.2f}",
        MISSING if skew_ms is None else f"{skew_ms:+.0f}",
        MISSING if gop_ms is None else f"{gop_ms / 1000:.1f}",
        MISSING if row.players is None else str(row.players),
        MISSING if row.last_finding is None else row.last_finding[0].value,
    )


def stream_line(row: StreamRow, time_ns: int) -> str:
    """One stream as a sentence of a log."""
    frame_rate, bits, pace, skew_ms, gop_ms = row.measures
    parts = [
        "" if frame_rate is None else f"{frame_rate:.1f} fps",
        "no media yet" if bits is None else bitrate(bits),
        "" if pace is None else f"pace {pace:.2f}",
        "" if skew_ms is None else f"audio-video {skew_ms:+.0f} ms",
        "" if gop_ms is None else f"GOP {gop_ms / 1000:.1f} s",
        "" if row.players is None else counted(row.players, "player"),
        "" if row.last_finding is None else f"last finding {row.last_finding[0].value}",
    ]
    name = escape_for_terminal(row.name)
    return f"{local_time(time_ns, milliseconds=False)} {name} {row.role}: {', '.join(filter(None, parts))}"


def _more(left_out: int) -> str:
    return f"and {counted(left_out, 'more stream')}"


class LiveTable:
    """A context manager. Lines that are printed while it is open, and the log, appear above the table."""

    interval_s = 1.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stderr=sys.stderr.isatty()
        )  # fmt: skip

    @property
    def most_rows(self) -> int:
        return max(1, self._console.height - _LINES_AROUND_THE_TABLE)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, rows: list[StreamRow], left_out: int, time_ns: int) -> None:
        self._live.update(Group(*stream_table(rows, left_out, self._console.width)), refresh=True)

    def print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class LiveLines:
    """Lines on standard output. If its reader ends, the output ends and the traffic continues."""

    interval_s = 5.0
    most_rows = 50

    def __init__(self) -> None:
        self._closed = False

    def __enter__(self) -> LiveLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, rows: list[StreamRow], left_out: int, time_ns: int) -> None:
        for row in rows:
            self.print(stream_line(row, time_ns))
        if left_out:
            self.print(f"{local_time(time_ns, milliseconds=False)} {_more(left_out)}")

    def print(self, line: str) -> None:
        if self._closed:
            return
        try:
            print(line, flush=True)
        except BrokenPipeError:
            self._closed = True
            with suppress(OSError):  # it may not be a file
                # Python still holds the line, and would fail to write it at the end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
