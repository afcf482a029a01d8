"""Small parts that several panels share: verdict badges, text to copy, where a finding was seen."""

from __future__ import annotations

from typing import Any

from rtmp_spark.report import page_text, units
from rtmp_spark.report.connection_data import ConnectionData

Row = dict[str, Any]


def badge(word: str) -> str:
    return f"<span class='badge {page_text.escape(word)}'>{page_text.escape(units.spaced(word))}</span>"


def paste(code: str) -> str:
    """Code that a click copies to the clipboard."""
    return f"<code class='copy'>{page_text.escape(code, 500)}</code>"


def times(row: Row) -> str:
    """How often a finding occurred, if more than once."""
    return f" <span class='dim'>×{row['count']:,}</span>" if row["count"] > 1 else ""


def blame(row: Row) -> str:
    """The side at fault, if known."""
    return f" <span class='dim'>{page_text.escape(row['at_fault'])}</span>" if row["at_fault"] else ""


def places(data: ConnectionData, row: Row) -> list[str]:
    """Where a finding was seen: clause, packet number, file, time, direction."""
    found = []
    if row["clause"]:
        found.append(page_text.escape(row["clause"], 200))
    if row["frame"]:
        found.append(paste(f"frame.number == {row['frame']}"))
        if len(data.captures) > 1:
            found.append(page_text.escape(data.capture_name.get(row["capture_id"], "")))
    if row["ts"] is not None:
        found.append(f"at {units.duration((row['ts'] - data.start) / 1000)}")
    if row["direction"]:
        found.append(page_text.escape(units.DIRECTION_LABELS.get(row["direction"], row["direction"])))
    return found
