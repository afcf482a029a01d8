"""One connection in a notebook: it renders itself, plots, dumps bytes and exports.

Every panel is HTML in a notebook and text where it is printed. Dumps and exports read the capture files again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rtmp_spark.codec.errors import UserError
from rtmp_spark.report import page_text, units, verdict
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.export import export_flv, export_pcap
from rtmp_spark.report.figures.figure import Figure
from rtmp_spark.report.figures.svg import value_text
from rtmp_spark.report.hexdump.dump_panel import dump_handshake, dump_message
from rtmp_spark.report.ladder import as_text as ladder_text
from rtmp_spark.report.panel import Panel
from rtmp_spark.report.panels.deliveries_panel import deliveries_panel
from rtmp_spark.report.panels.identity_panel import identity_panel, wireshark_filter
from rtmp_spark.report.panels.ladder_panel import ladder_panel
from rtmp_spark.report.panels.media_panels import bitrate_panel, declared_panel, drawn
from rtmp_spark.report.panels.verdict_panel import verdict_panel
from rtmp_spark.report.table_source import ArrowTables

Row = dict[str, Any]


class ConnectionView:
    """One connection. The columns of its row in `connections` are attributes: `view.app`, `view.close_cause`."""

    def __init__(self, data: ConnectionData, paths: Sequence[str], *, keep_secrets: bool = False) -> None:
        self._data = data
        self._paths = list(paths)
        self._keep_secrets = keep_secrets
        self.uid = data.uid

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._data.connection:
            raise AttributeError(name)
        return self._data.connection[name]

    @property
    def row(self) -> Row:
        return dict(self._data.connection)

    @property
    def verdict(self) -> str:
        return self._data.verdict.word

    @property
    def findings(self) -> list[Row]:
        """Rows of `findings`, errors first."""
        return list(self._data.findings)

    @property
    def streams(self) -> list[Row]:
        return list(self._data.streams)

    def table(self, name: str) -> pa.Table:
        """The rows of this connection in one table."""
        tables = self._data.tables
        if isinstance(tables, ArrowTables):
            return tables.arrow(name, self.uid)
        return pa.Table.from_pylist(tables.rows(name, self.uid))

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __str__(self) -> str:
        return self.summary().text

    __repr__ = __str__

    def summary(self) -> Panel:
        """Verdict, identity and bitrate."""
        data = self._data
        row, judged = data.connection, data.verdict
        client, server = units.endpoint(row["orig_h"], row["orig_p"]), units.endpoint(row["resp_h"], row["resp_p"])
        lines = [
            f"{self.uid}  {client} -> {server}",
            f"{units.spaced(judged.word)}: {page_text.printable(judged.sentence, 400)}",
            f"{units.utc_time(row['ts_start'])} UTC for {units.duration(data.duration_ms)}; {verdict.ending(row)}",
        ]
        lines += [_finding_line(f) for f in verdict.worst_findings(data.findings)]
        html = f"{verdict_panel(data)}{identity_panel(data)}{bitrate_panel(data)}"
        return Panel(html, "\n".join(lines))

    def ladder(self) -> Panel:
        """Handshake, commands and control messages in order, with response times."""
        data = self._data
        return Panel(ladder_panel(data), ladder_text(data.ladder, data.media.runs))

    def declared(self) -> Panel:
        """What onMetaData and the configuration records declare, next to what was measured."""
        data = self._data
        lines = []
        for stream in data.media.streams:
            for line in data.declared(stream):
                mark = "  <- differs" if line.differs else ""
                words = f"{line.name:<16} {line.declared:<22} {line.configured:<24} {line.measured}{mark}"
                lines.append(words.rstrip())
        return Panel(declared_panel(data), "\n".join(lines) or "No media was recorded.")

    def bitrate(self) -> Panel:
        """Audio and video bits per second, with retransmissions, missing data and zero windows below."""
        return self._plots([self._data.bitrate])

    def gop(self) -> Panel:
        """Keyframe intervals and frame sizes."""
        return self._plots([figure for _, figure in self._data.media_figures("gop", "frames")])

    def timestamps(self) -> Panel:
        """Timestamps against arrival time, audio against video, and jitter."""
        return self._plots([figure for _, figure in self._data.media_figures("clock", "skew", "jitter")])

    def flow_control(self) -> Panel:
        """Bytes sent, acknowledgements, windows and round-trip times."""
        return self._plots(self._data.flow_control)

    def _plots(self, figures: Sequence[Figure]) -> Panel:
        html = drawn(figures, self._data) if figures else "<p class='missing'>No media was recorded.</p>"
        return Panel(html, "\n".join(_figure_text(f) for f in figures) or "No media was recorded.")

    def deliveries(self) -> Panel:
        """Latency and missing frames between the publisher of the stream and this player."""
        rows = self._data.deliveries
        lines = [
            f"from {row['publish_uid']}: latency {units.duration(row['latency_ms_p50'])} median, "
            f"{units.duration(row['latency_ms_p95'])} p95; "
            f"first frame after {units.duration(row['first_frame_ms'])}, burst {units.duration(row['burst_ms'])}; "
            f"{row['frames_missing']} of {row['frames_published']} frames missing"
            for row in rows
        ]
        missing = "The publisher of this stream is not in the recording."
        html = deliveries_panel(self._data) or f"<p class='missing'>{missing}</p>"
        return Panel(html, "\n".join(lines) or missing)

    # -- packets ----------------------------------------------------------------------------------------------

    def wireshark_filter(self, msg_no: int | None = None, direction: str = "c2s") -> str:
        """A Wireshark display filter for the packets of the connection, or of one message."""
        if msg_no is None:
            return wireshark_filter(self._data.connection)
        row = self._message(msg_no, direction)
        if row["frame_first"] == row["frame_last"]:
            return f"frame.number == {row['frame_first']}"
        return f"frame.number >= {row['frame_first']} && frame.number <= {row['frame_last']}"

    def hexdump(
        self, what: int | str, direction: str = "c2s", *, keep_secrets: bool | None = None, whole: bool = False
    ) -> Panel:
        """The bytes of a message (by its number) or of a handshake part (`C1`, `S2`), with named fields."""
        reveal = self._keep_secrets if keep_secrets is None else keep_secrets
        if isinstance(what, str):
            found = dump_handshake(self._data.connection, self._captures(), what.upper(), whole=whole)
        else:
            rows = self._messages(direction)
            self._message(what, direction)
            found = dump_message(
                self._data.connection, self._captures(), rows, what, direction, keep_secrets=reveal, whole=whole
            )
        return Panel(*found)

    def _messages(self, direction: str) -> list[Row]:
        return [row for row in self._data.tables.rows("messages", self.uid) if row["direction"] == direction]

    def _message(self, msg_no: int, direction: str) -> Row:
        for row in self._messages(direction):
            if row["msg_no"] == msg_no:
                return row
        raise UserError(f"{self.uid} has no message {msg_no} {direction}.", "`.table('messages')` lists them.")

    def _captures(self) -> list[str]:
        lost = [path for path in self._paths if not Path(path).exists()]
        if lost or not self._paths:
            name = lost[0] if lost else "its capture"
            raise UserError(
                f"The packets of {self.uid} cannot be read: {name} is missing.", "Restore the capture file."
            )
        return self._paths

    def export_flv(self, path: str | os.PathLike[str]) -> list[str]:
        """Write the published or played media as FLV and return the paths of the files.

        A path that ends in `.flv` is a file for one stream; any other path is a directory with one file per stream.
        """
        return export_flv(self._captures(), self._data.connection, Path(path))

    def export_pcap(self, path: str | os.PathLike[str]) -> str:
        """Write the packets of this connection as pcapng, with findings as packet comments, and return the path."""
        return export_pcap(self._captures(), self._data.connection, Path(path))


def _finding_line(row: Row) -> str:
    place = f" at frame {row['frame']}" if row["frame"] else ""
    times = f" x{row['count']}" if row["count"] > 1 else ""
    return (
        f"{row['severity']} {row['rule_id']}{times}{place}: {page_text.printable(row['detail'] or row['title'], 300)}"
    )


def _figure_text(figure: Figure) -> str:
    """The range of every series of a figure, in words."""
    if figure.empty:
        return f"{figure.title}: {figure.missing}"
    parts = [
        f"{series.name} {value_text(min(series.y), figure.unit)} to {value_text(max(series.y), figure.unit)}"
        for series in figure.series
        if series.x
    ]
    lanes = [f"{lane.name} in {units.counted(len(lane.spans), 'place')}" for lane in figure.lanes if lane.role != "key"]
    words = "; ".join([*parts, *lanes, *(mark.words for mark in figure.marks)])
    return f"{figure.title}: {words}. {figure.note}".rstrip()
