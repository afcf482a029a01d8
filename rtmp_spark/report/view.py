"""What notebooks import: `read_captures(...)` decodes captures without Spark and gives their connections.

A lake gives the same `ConnectionView` over its tables.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rtmp_spark.codec.errors import UserError
from rtmp_spark.report.connection_data import all_connections
from rtmp_spark.report.connection_view import ConnectionView
from rtmp_spark.report.judged_connections import JudgedConnections
from rtmp_spark.report.panel import Panel
from rtmp_spark.report.panels.attempts_panel import attempts_panel
from rtmp_spark.report.panels.connections_panel import connections_panel
from rtmp_spark.report.table_source import ArrowTables, CaptureTables, Tables

if TYPE_CHECKING:
    from rtmp_spark.analysis.settings import Settings


class Recording:
    """The connections of captures that belong together."""

    def __init__(self, tables: Tables, paths: Sequence[str], *, keep_secrets: bool = False) -> None:
        self.tables = tables
        own = {row["capture_id"]: row["path"] for row in tables.rows("captures")}
        self.connections = [
            ConnectionView(
                data,
                [own[c] for c in data.connection["capture_ids"] if c in own] or list(paths),
                keep_secrets=keep_secrets,
            )
            for data in all_connections(tables)
        ]

    def connection(self, uid: str) -> ConnectionView:
        for view in self.connections:
            if view.uid == uid:
                return view
        raise UserError(f"Connection {uid} is not in this recording.", "`.connections` lists them.")

    def table(self, name: str) -> pa.Table:
        """All rows of a table."""
        if isinstance(self.tables, ArrowTables):
            return self.tables.arrow(name)
        return pa.Table.from_pylist(self.tables.rows(name))

    def _repr_html_(self) -> str:
        judged = JudgedConnections(
            [view.row for view in self.connections], self.tables.rows("streams"), self.tables.rows("findings")
        )
        attempts = attempts_panel([view.row for view in self.connections], self.tables.rows("streams"))
        return Panel(f"{attempts}{connections_panel(judged, set())}", "")._repr_html_()

    def __str__(self) -> str:
        return "\n\n".join(str(view) for view in self.connections)


def read_captures(
    *paths: str | os.PathLike[str], settings: Settings | None = None, keep_secrets: bool = False
) -> Recording:
    """Decode captures as one recording, without Spark, and check every rule."""
    if settings is None:
        settings = judged_settings(keep_secrets=keep_secrets)
    tables = CaptureTables(paths, settings)
    return Recording(tables, tables.paths, keep_secrets=keep_secrets)


def judged_settings(*, keep_secrets: bool = False) -> Settings:
    """Settings of an analysis that checks every rule."""
    from rtmp_spark.analysis.settings import Settings
    from rtmp_spark.redact import Redactor, load_key

    return Settings(redactor=Redactor(None if keep_secrets else load_key()))
