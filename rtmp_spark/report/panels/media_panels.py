"""What was declared and what was measured about the media, and the plots of media and flow control."""

from __future__ import annotations

from collections.abc import Sequence

from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.figures.figure import Figure
from rtmp_spark.report.figures.svg import draw
from rtmp_spark.report.media_summary import StreamMedia
from rtmp_spark.report.panels.html_table import table


def declared_panel(data: ConnectionData) -> str:
    if not data.media.streams:
        return f"<p class='missing'>{_no_media(data)}</p>"
    parts = []
    for stream in data.media.streams:
        rows = [
            (
                "differs" if line.differs else "",
                [
                    page_text.escape(line.name),
                    page_text.untrusted(line.declared),
                    *map(page_text.escape, (line.configured, line.measured)),
                ],
            )
            for line in data.declared(stream)
        ]
        head = ("", "onMetaData", "configuration record", "measured")
        parts.append(_stream_head(data, stream) + table(head, rows, "declared"))
    if data.media.left_out:
        parts.append(f"<p class='note'>{units.counted(data.media.left_out, 'smaller stream')} not shown.</p>")
    return "".join(parts)


def bitrate_panel(data: ConnectionData) -> str:
    return draw(data.bitrate, data.x_range, data.flags)


def media_panel(data: ConnectionData, *keys: str) -> str:
    found = data.media_figures(*keys)
    if not found:
        return f"<p class='missing'>{_no_media(data)}</p>"
    parts, before = [], None
    for stream, figure in found:
        if stream is not before:
            parts.append(_stream_head(data, stream))
            before = stream
        parts.append(draw(figure, data.x_range, data.flags))
    return "".join(parts)


def flow_panel(data: ConnectionData) -> str:
    return drawn(data.flow_control, data)


def drawn(figures: Sequence[Figure], data: ConnectionData) -> str:
    return "".join(draw(figure, data.x_range, data.flags) for figure in figures)


def _no_media(data: ConnectionData) -> str:
    row = data.connection
    if row["service"] != "rtmp":
        return f"The connection is {page_text.escape(row['service'])}; its payload was not decoded."
    return "No media was recorded on this connection."


def _stream_head(data: ConnectionData, stream: StreamMedia) -> str:
    if len(data.media.streams) < 2:
        return ""
    return f"<h4>stream {stream.stream_id}, {units.DIRECTION_LABELS[stream.direction]}</h4>"
