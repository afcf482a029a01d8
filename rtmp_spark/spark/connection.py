"""One connection of a lake as the object notebooks work with, and the rows of a lake as the report asks for them.

Only fetching is done here: what is small comes to the driver in one query per table for all connections of a page;
media are measured and thinned on the executors, beside their rows. Drawing is `rtmp_spark.report`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rtmp_spark.codec.errors import UserError
from rtmp_spark.report import media
from rtmp_spark.report.media import Event
from rtmp_spark.report.session import Session
from rtmp_spark.report.source import by_uid, counts_in_order, plain_rows
from rtmp_spark.report.view import ConnectionView

if TYPE_CHECKING:
    from .lake import Lake

Row = dict[str, Any]
Fetched = TypeVar("Fetched")
_WHOLE = ("captures", "connections", "streams", "findings", "deliveries")  # a few rows per connection: fetched once
_PER_CONNECTION = ("handshakes", "commands", "controls", "intervals")
_ASKED = (*_WHOLE, *_PER_CONNECTION, "messages", "media_tags")
_KEPT_COMMANDS = 2000  # of one connection, from its start; a ladder shows fewer


class LakeTables:
    """Implements `report.source.Tables` over a lake."""

    def __init__(self, lake: Lake, uid: str | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        self._lake = lake
        self._tell = tell
        self._frames: dict[str, DataFrame] = {}  # all as of the same moment
        self._uid = uid  # of connections, nothing but this one will be asked for
        self._whole: dict[str, list[Row]] = {}
        self._own: dict[str, tuple[pa.Table, dict[str, tuple[int, int]]]] = {}
        self._media: dict[str, media.Media] = {}
        self._counts: dict[str, list[Row]] = {}
        self._ready: set[str] = set()

    @property
    def origin(self) -> str:
        return self._lake.path

    def rows(self, table: str, uid: str | None = None) -> list[Row]:
        if table in _WHOLE:
            if not self._whole:
                self._tell("connections, streams and findings are fetched")
                self._whole = dict(zip(_WHOLE, self._side_by_side(self._fetch_whole, _WHOLE)))
            found = self._whole[table]
            return found if uid is None else [row for row in found if row["uid"] == uid]
        if uid is None:
            return plain_rows(self._frame(table).toArrow())
        if table not in _PER_CONNECTION:
            return plain_rows(self._frame(table).where(F.col("uid") == uid).toArrow())
        self.prepare([uid])
        rows, places = self._own[table]
        start, stop = places.get(uid, (0, 0))
        return plain_rows(rows.slice(start, stop - start))

    def media(self, uid: str, start: int, events: list[Event]) -> media.Media | None:
        if uid not in self._media:
            self._measure({uid: (start, events)})
        return self._media.get(uid)

    def message_counts(self, uid: str) -> list[Row]:
        self.prepare([uid])
        return self._counts.get(uid, [])

    def prepare(self, uids: Sequence[str]) -> None:
        """Fetch what the sections of these connections need, a query per table instead of one per connection."""
        wanted = [uid for uid in uids if uid not in self._ready]
        if not wanted:
            return
        own = F.col("uid").isin(wanted)
        self._tell(f"what is drawn of {len(wanted)} connections is fetched")

        def fetch(table: str) -> pa.Table:
            frame = self._frame(table).where(own)
            if table == "messages":
                keys = ("uid", "direction", "type_name", "status")
                frame = frame.groupBy(*keys).agg(F.sum("length").alias("bytes"), F.count("*").alias("count"))
            elif table == "commands" and len(wanted) > 1:
                frame = frame.where(F.col("msg_no") < _KEPT_COMMANDS)
            return frame.toArrow()

        *tables, counted = self._side_by_side(fetch, (*_PER_CONNECTION, "messages"))
        for table, fresh in zip(_PER_CONNECTION, tables):
            before = self._own.get(table)
            self._own[table] = by_uid(fresh if before is None else pa.concat_tables([before[0], fresh]))
        for row in counts_in_order(counted.to_pylist()):
            self._counts.setdefault(row.pop("uid"), []).append(row)
        self._ready |= set(wanted)
        if len(wanted) > 1:
            chosen = set(wanted)
            captures = self.rows("captures")
            sessions = [Session(self, row, captures) for row in self.rows("connections") if row["uid"] in chosen]
            self._tell(f"media of {len(wanted)} connections are measured")
            self._measure({session.uid: (session.start, session.ladder.events) for session in sessions})

    def _fetch_whole(self, table: str) -> list[Row]:
        frame = self._frame(table)
        if self._uid is not None and table != "captures":
            own = F.col("uid") == self._uid
            frame = frame.where(own | F.col("uid").isNull() if table == "findings" else own)  # null: about a file
        return plain_rows(frame.toArrow())

    def _side_by_side(self, fetch: Callable[[str], Fetched], tables: Sequence[str]) -> list[Fetched]:
        """Small queries wait for Spark more than they work: several at once."""
        self._frame(tables[0])  # or each would open all of them
        with ThreadPoolExecutor(len(tables)) as pool:
            return list(pool.map(fetch, tables))

    def _frame(self, table: str) -> DataFrame:
        if not self._frames:
            self._frames = self._lake.tables(_ASKED)
        return self._frames[table] if table in self._frames else self._lake.table(table)

    def _measure(self, wanted: dict[str, tuple[int, list[Event]]]) -> None:
        def measure(tags: pa.Table) -> pa.Table:
            uid = tags["uid"][0].as_py()
            return pa.table({"uid": [uid], "dumped": [media.measure(tags, *wanted[uid]).dump()]})

        tags = self._frame("media_tags").where(F.col("uid").isin(list(wanted))).select(*media.COLUMNS)
        found = tags.groupBy("uid").applyInArrow(measure, "uid string, dumped string").toArrow().to_pylist()
        self._media |= {row["uid"]: media.Media.load(row["dumped"]) for row in found}
        for uid in wanted:
            self._media.setdefault(uid, media.Media())


def open_connection(lake: Lake, uid: str) -> ConnectionView:
    """The connection of this uid."""
    tables = LakeTables(lake, uid)
    rows = tables.rows("connections")
    if not rows:
        raise UserError(f"There is no connection {uid} in {lake.path}.", "`lake.connections` lists them.")
    captures = tables.rows("captures")
    paths = {row["capture_id"]: row["path"] for row in captures}
    own = [paths[c] for c in rows[0]["capture_ids"] if c in paths]
    return ConnectionView(Session(tables, rows[0], captures), own)
