"""The object that notebooks work with: one connection that renders itself, plots, dumps and exports.

`read_captures(...)` gives them from capture files without Spark; a lake gives the same object over its tables. Every
panel is HTML in a notebook and text where it is printed. What needs packets (dumps, exports) reads the captures again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rtmp_spark.codec.errors import UserError
from rtmp_spark.report import panels, text, verdict
from rtmp_spark.report.figure import Figure
from rtmp_spark.report.ladder import as_text as ladder_text
from rtmp_spark.report.page import asset
from rtmp_spark.report.session import Session, sessions
from rtmp_spark.report.source import ArrowTables, CaptureTables, Tables
from rtmp_spark.report.svg import value_text

if TYPE_CHECKING:
    from rtmp_spark.capture.settings import Settings

Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """Something to look at: HTML for a notebook, text for a terminal."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return f"<style>{asset('report.css')}</style><div class='rs'>{self.html}</div>"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class ConnectionView:
    """One connection. Attributes of its row in `connections` are attributes of it: `view.app`, `view.close_cause`."""

    def __init__(self, session: Session, paths: Sequence[str], *, keep_secrets: bool = False) -> None:
        self._session = session
        self._paths = list(paths)
        self._keep_secrets = keep_secrets
        self.uid = session.uid

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._session.connection:
            raise AttributeError(name)
        return self._session.connection[name]

    @property
    def row(self) -> Row:
        return dict(self._session.connection)

    @property
    def verdict(self) -> str:
        return self._session.verdict.word

    @property
    def findings(self) -> list[Row]:
        """Errors first."""
        return list(self._session.findings)

    @property
    def streams(self) -> list[Row]:
        return list(self._session.streams)

    def table(self, name: str) -> pa.Table:
        """The rows of this connection in one table."""
        tables = self._session.tables
        if isinstance(tables, ArrowTables):
            return tables.arrow(name, self.uid)
        return pa.Table.from_pylist(tables.rows(name, self.uid))

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __str__(self) -> str:
        return self.summary().text

    __repr__ = __str__

    def summary(self) -> Panel:
        """Verdict, identity and what arrived."""
        session = self._session
        row, judged = session.connection, session.verdict
        client, server = text.endpoint(row["orig_h"], row["orig_p"]), text.endpoint(row["resp_h"], row["resp_p"])
        lines = [
            f"{self.uid}  {client} -> {server}",
            f"{text.words(judged.word)}: {text.harmless(judged.sentence, 400)}",
            f"{text.clock(row['ts_start'])} UTC for {text.span(session.duration_ms)}; {verdict.ending(row)}",
        ]
        lines += [_finding_line(f) for f in verdict.worst_findings(session.findings)]
        html = f"{panels.verdict_panel(session)}{panels.identity_panel(session)}{panels.bitrate_panel(session)}"
        return Panel(html, "\n".join(lines))

    def ladder(self) -> Panel:
        """Who said what when."""
        session = self._session
        return Panel(panels.ladder_panel(session), ladder_text(session.ladder, session.media.runs))

    def declared(self) -> Panel:
        """onMetaData against configuration records against the wire."""
        session = self._session
        lines = []
        for stream in session.media.streams:
            for line in session.declared(stream):
                mark = "  <- differs" if line.differs else ""
                words = f"{line.name:<16} {line.declared:<22} {line.configured:<24} {line.measured}{mark}"
                lines.append(words.rstrip())
        return Panel(panels.declared_panel(session), "\n".join(lines) or "No media were recorded.")

    def bitrate(self) -> Panel:
        """Audio and video per second, with what disturbed them."""
        return self._plots([self._session.bitrate])

    def gop(self) -> Panel:
        """Key frame intervals and frame sizes."""
        return self._plots([figure for _, figure in self._session.media_figures("gop", "frames")])

    def timestamps(self) -> Panel:
        """Media time against arrival time; audio against video; jitter."""
        return self._plots([figure for _, figure in self._session.media_figures("clock", "skew", "jitter")])

    def flow_control(self) -> Panel:
        """Bytes, acknowledgements, windows, round trips."""
        return self._plots(self._session.flow_control)

    def _plots(self, figures: Sequence[Figure]) -> Panel:
        html = panels.drawn(figures, self._session) if figures else "<p class='missing'>No media were recorded.</p>"
        return Panel(html, "\n".join(_figure_text(f) for f in figures) or "No media were recorded.")

    def deliveries(self) -> Panel:
        """How the stream came from its publisher to this player."""
        rows = self._session.deliveries
        lines = [
            f"from {row['publish_uid']}: latency {text.span(row['latency_ms_p50'])} median, "
            f"{text.span(row['latency_ms_p95'])} p95; "
            f"first frame after {text.span(row['first_frame_ms'])}, burst {text.span(row['burst_ms'])}; "
            f"{row['frames_missing']} of {row['frames_published']} frames missing"
            for row in rows
        ]
        missing = "No publisher of this stream is in the same recording."
        html = panels.deliveries_panel(self._session) or f"<p class='missing'>{missing}</p>"
        return Panel(html, "\n".join(lines) or missing)

    # -- packets ----------------------------------------------------------------------------------------------

    def wireshark_filter(self, msg_no: int | None = None, direction: str = "c2s") -> str:
        """A display filter for the packets of the connection, or of one message of it."""
        if msg_no is None:
            return panels.wireshark_filter(self._session.connection)
        row = self._message(msg_no, direction)
        if row["frame_first"] == row["frame_last"]:
            return f"frame.number == {row['frame_first']}"
        return f"frame.number >= {row['frame_first']} && frame.number <= {row['frame_last']}"

    def hexdump(
        self, what: int | str, direction: str = "c2s", *, keep_secrets: bool | None = None, whole: bool = False
    ) -> Panel:
        """A message by its number in its direction, or a handshake part by its name (`C1`, `S2`)."""
        from rtmp_spark.report.bytes_panel import dump_handshake, dump_message

        reveal = self._keep_secrets if keep_secrets is None else keep_secrets
        if isinstance(what, str):
            found = dump_handshake(self._session.connection, self._captures(), what.upper(), whole=whole)
        else:
            rows = self._messages(direction)
            self._message(what, direction)
            found = dump_message(
                self._session.connection, self._captures(), rows, what, direction, keep_secrets=reveal, whole=whole
            )
        return Panel(*found)

    def _messages(self, direction: str) -> list[Row]:
        return [row for row in self._session.tables.rows("messages", self.uid) if row["direction"] == direction]

    def _message(self, msg_no: int, direction: str) -> Row:
        for row in self._messages(direction):
            if row["msg_no"] == msg_no:
                return row
        raise UserError(f"There is no message {msg_no} {direction} in {self.uid}.", "`.table('messages')` lists them.")

    def _captures(self) -> list[str]:
        lost = [path for path in self._paths if not Path(path).exists()]
        if lost or not self._paths:
            name = lost[0] if lost else "its capture"
            raise UserError(f"The packets of {self.uid} cannot be read: {name} is not there.", "Put the capture back.")
        return self._paths

    def export_flv(self, path: str | os.PathLike[str]) -> list[str]:
        """What was published or played as FLV: to a file, or into a directory, one file a stream. The files written."""
        from rtmp_spark.report.export import export_flv

        return export_flv(self._captures(), self._session.connection, Path(path))

    def export_pcap(self, path: str | os.PathLike[str]) -> str:
        """The packets of this connection as pcapng, findings as packet comments."""
        from rtmp_spark.report.export import export_pcap

        return export_pcap(self._captures(), self._session.connection, Path(path))


class Recording:
    """The connections of some captures, read once."""

    def __init__(self, tables: Tables, paths: Sequence[str], *, keep_secrets: bool = False) -> None:
        self.tables = tables
        own = {row["capture_id"]: row["path"] for row in tables.rows("captures")}
        self.connections = [
            ConnectionView(
                session,
                [own[c] for c in session.connection["capture_ids"] if c in own] or list(paths),
                keep_secrets=keep_secrets,
            )
            for session in sessions(tables)
        ]

    def connection(self, uid: str) -> ConnectionView:
        for view in self.connections:
            if view.uid == uid:
                return view
        raise UserError(f"There is no connection {uid} in this recording.", "`.connections` lists them.")

    def table(self, name: str) -> pa.Table:
        """A whole table."""
        if isinstance(self.tables, ArrowTables):
            return self.tables.arrow(name)
        return pa.Table.from_pylist(self.tables.rows(name))

    def _repr_html_(self) -> str:
        from rtmp_spark.report import overview

        judged = overview.Judged(
            [view.row for view in self.connections], self.tables.rows("streams"), self.tables.rows("findings")
        )
        attempts = overview.attempts_panel([view.row for view in self.connections], self.tables.rows("streams"))
        return Panel(f"{attempts}{overview.connections_panel(judged, set())}", "")._repr_html_()

    def __str__(self) -> str:
        return "\n\n".join(str(view) for view in self.connections)


def read_captures(
    *paths: str | os.PathLike[str], settings: Settings | None = None, keep_secrets: bool = False
) -> Recording:
    """Captures as one recording, decoded and judged here, without Spark."""
    if settings is None:
        settings = judged_settings(keep_secrets=keep_secrets)
    tables = CaptureTables(_spread(paths), settings)
    return Recording(tables, tables.paths, keep_secrets=keep_secrets)


def judged_settings(*, keep_secrets: bool = False) -> Settings:
    """Settings with every rule in force."""
    from rtmp_spark.capture.redact import Redactor, load_key
    from rtmp_spark.capture.settings import Settings
    from rtmp_spark.forensics.catalogue import entry
    from rtmp_spark.forensics.deliveries import Deliveries
    from rtmp_spark.forensics.hindsight import judge_together
    from rtmp_spark.forensics.judge import Judge

    redactor = Redactor(None if keep_secrets else load_key())
    return Settings(
        redactor=redactor, judge=Judge, catalogue=entry, hindsight=judge_together, deliveries=Deliveries
    )  # fmt: skip


def _spread(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [os.fspath(path) for path in paths]


def _finding_line(row: Row) -> str:
    place = f" at frame {row['frame']}" if row["frame"] else ""
    times = f" x{row['count']}" if row["count"] > 1 else ""
    return f"{row['severity']} {row['rule_id']}{times}{place}: {text.harmless(row['detail'] or row['title'], 300)}"


def _figure_text(figure: Figure) -> str:
    """A plot in words."""
    if figure.empty:
        return f"{figure.title}: {figure.missing}"
    parts = [
        f"{series.name} {value_text(min(series.y), figure.unit)} to {value_text(max(series.y), figure.unit)}"
        for series in figure.series
        if series.x
    ]
    lanes = [f"{lane.name} in {text.one_of(len(lane.spans), 'place')}" for lane in figure.lanes if lane.role != "key"]
    words = "; ".join([*parts, *lanes, *(mark.words for mark in figure.marks)])
    return f"{figure.title}: {words}. {figure.note}".rstrip()
