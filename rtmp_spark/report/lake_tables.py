"""The rows of a lake as a page or a notebook asks for them, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.reader import Lake
from rtmp_spark.report import media_summary
from rtmp_spark.report.connection_data import ConnectionData
from rtmp_spark.report.connection_view import ConnectionView
from rtmp_spark.report.media_summary import Event
from rtmp_spark.report.table_source import DRAWN_COLUMNS, by_uid, counts, plain_rows

Row = dict[str, Any]
_WHOLE = (
    "captures",
    "connections",
    "streams",
    "findings",
    "deliveries",
    "paths",
)  # a few rows per connection: read at once
_KEPT_COMMANDS = 2000  # of one connection, from its start; the sequence ladder shows fewer


class LakeTables:
    """Implements `report.table_source.Tables` over a lake, of all connections or of one."""

    def __init__(self, lake: Lake, uid: str | None = None) -> None:
        self._lake = lake
        self._uid = uid
        self._whole: dict[str, list[Row]] = {}
        self._prepared: dict[str, tuple[pa.Table, dict[str, tuple[int, int]]]] = {}
        self._ready: set[str] = set()

    @property
    def origin(self) -> str:
        return str(self._lake.location)

    def rows(self, table: str, uid: str | None = None) -> list[Row]:
        if table in _WHOLE:
            if table not in self._whole:
                self._whole[table] = plain_rows(self._lake.read(table, where=self._own(table)))
            found = self._whole[table]
            return found if uid is None else [row for row in found if row["uid"] == uid]
        if uid is not None and uid in self._ready and table in self._prepared:
            rows, places = self._prepared[table]
            start, stop = places.get(uid, (0, 0))
            return plain_rows(rows.slice(start, stop - start))
        return plain_rows(self._lake.read(table, where=None if uid is None else pc.field("uid") == uid))

    def _own(self, table: str) -> pc.Expression | None:
        if self._uid is None or table == "captures":
            return None
        if table == "paths":
            return (pc.field("uid_a") == self._uid) | (pc.field("uid_b") == self._uid)
        own = pc.field("uid") == self._uid
        return own | pc.field("uid").is_null() if table == "findings" else own  # null: about a capture

    def media(self, uid: str, start: int, events: list[Event]) -> media_summary.Media | None:
        tags = self._lake.read("media_tags", DRAWN_COLUMNS["media_tags"], pc.field("uid") == uid)
        return media_summary.measure(tags.sort_by([("direction", "ascending"), ("msg_no", "ascending")]), start, events)

    def message_counts(self, uid: str) -> list[Row]:
        return counts(self._lake.read("messages", DRAWN_COLUMNS["messages"], pc.field("uid") == uid))

    def prepare(self, uids: Sequence[str]) -> None:
        """Read the small tables of these connections at once instead of one by one."""
        wanted = sorted(set(uids) - self._ready)
        if not wanted:
            return
        own = pc.field("uid").isin(pa.array(wanted, pa.string()))
        for table in ("handshakes", "commands", "controls", "intervals"):
            chosen = own & (pc.field("msg_no") < _KEPT_COMMANDS) if table == "commands" and len(wanted) > 1 else own
            fresh = self._lake.read(table, where=chosen)
            before = self._prepared.get(table)
            self._prepared[table] = by_uid(fresh if before is None else pa.concat_tables([before[0], fresh]))
        self._ready |= set(wanted)


def open_connection(lake: Lake, uid: str) -> ConnectionView:
    """The connection with this uid."""
    tables = LakeTables(lake, uid)
    rows = tables.rows("connections")
    if not rows:
        raise UserError(f"The lake {lake.location} has no connection {uid}.", "`lake.connections` lists them.")
    captures = tables.rows("captures")
    paths = {row["capture_id"]: row["path"] for row in captures}
    own = [paths[c] for c in rows[0]["capture_ids"] if c in paths]
    return ConnectionView(ConnectionData(tables, rows[0], captures), own)
