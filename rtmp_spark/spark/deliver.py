"""The rows of `deliveries` of a lake: which played stream is which published one, after an ingest brought new ones.

The unit is the playing connection. Those are matched anew that are new, and those that were playing while a new or
resumed publisher published. Frames are compared as `forensics.deliveries` does, one pair at a time on the executors, by
checksums out of `messages`; no media are read. Runs after the rows of the ingest are written and before it commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rtmp_spark.codec.message import AUDIO, VIDEO
from rtmp_spark.forensics.deliveries import CACHE_US, CODED, CONFIG, Frames, candidates, delivery, stream_of
from rtmp_spark.schema import arrow_schema, column_names

from .lake import Writer
from .ledger import Superseded
from .neighbours import Fresh, Neighbours, of_sensor, overlapping
from .tables import spark_schema
from .tuples import Row, among, fetch, tuples


@dataclass(frozen=True)
class Streamed:
    """What of a row of `streams` a pair is found by."""

    uid: str
    stream_id: int
    direction: str
    role: str
    name: str | None
    ts_start: int
    ts_end: int
    audio_messages: int
    video_messages: int


_PLACES = [column_names("streams").index(field.name) for field in fields(Streamed)]


def deliveries(
    writer: Writer, sensor: str, fresh: Fresh, known: Neighbours, replaced: Sequence[Superseded]
) -> tuple[pa.Table, list[Superseded]]:
    """Rows of `deliveries`, and the playing connections whose old rows they replace.

    `replaced` says which message rows of resumed and redone connections do not count any more.
    """
    own, old = (_streamed(rows) for rows in (tuples(fresh.streams), known.streams))
    news = fresh.news("publish")
    old_plays = [s for s in old if s.role == "play" and any(_meet(s, *times) for times in news)]
    played = [s for s in (*own, *old_plays) if s.role == "play"]
    again = sorted({s.uid for s in old_plays} | {s.uid for s in played if s.uid in fresh.resumed})
    superseded = [Superseded(uid, tables=("deliveries",)) for uid in again]
    none = arrow_schema("deliveries").empty_table()
    if old_plays:  # they may have played others, before
        old = _of_that_time(writer, sensor, fresh, played)
    published = [s for s in (*own, *old) if s.role == "publish"]
    pairs = [(published[a], played[b]) for a, b in candidates(published, played)]
    if not pairs:
        return none, superseded
    siblings = Counter(zip(fresh.streams["uid"].to_pylist(), fresh.streams["direction"].to_pylist()))
    uids = {s.uid for pair in pairs for s in pair if (s.uid, s.direction) not in siblings}
    if uids:
        rows = among(writer.spark, writer.table("streams"), "uid", uids).select("uid", "direction").toArrow()
        siblings.update(zip(rows["uid"].to_pylist(), rows["direction"].to_pylist()))
    matched = _matched(_frames(writer, pairs, replaced), writer.ingest_id, pairs, siblings)
    return matched.toArrow().cast(none.schema), superseded


def _streamed(rows: Iterable[Row]) -> list[Streamed]:
    """Those that carried media."""
    found = (Streamed(*(row[place] for place in _PLACES)) for row in rows)
    return [s for s in found if s.audio_messages or s.video_messages]


def _meet(play: Streamed, start: int, end: int) -> bool:
    return start <= play.ts_end and end >= play.ts_start - CACHE_US


def _of_that_time(writer: Writer, sensor: str, fresh: Fresh, played: Sequence[Streamed]) -> list[Streamed]:
    """Streams of the lake that were published while these were played."""
    times = [(s.ts_start, s.ts_end) for s in played]
    rows = fetch(writer.table("streams").where((F.col("role") == "publish") & overlapping(times)), "streams")
    uids = {row[0] for row in rows} - fresh.gone
    if not uids:
        return []
    ours = set(among(writer.spark, of_sensor(writer, sensor), "uid", uids).select("uid").toArrow()["uid"].to_pylist())
    return _streamed(row for row in rows if row[0] in ours - fresh.gone)


Pair = tuple[Streamed, Streamed]  # published, played


def _frames(writer: Writer, pairs: Sequence[Pair], replaced: Sequence[Superseded]) -> DataFrame:
    """Media messages of each pair: checksum, times and kind, of the publisher only what the player can have got."""
    sides: list[tuple[int, bool, str, str, int, int]] = []
    for number, (publish, play) in enumerate(pairs):
        reach = play.ts_start - CACHE_US, play.ts_end
        sides.append((number, False, publish.uid, publish.direction, *reach))
        sides.append((number, True, play.uid, play.direction, play.ts_start, play.ts_end))
    names = ("pair", "played", "uid", "direction", "first", "last")
    wanted = writer.spark.createDataFrame(pa.table(dict(zip(names, map(list, zip(*sides))))))
    messages = _written(writer, "messages", pairs, replaced)
    messages = messages.where(F.col("type_id").isin(AUDIO, VIDEO) & (F.col("length") > 0)).select(
        "uid", "direction", "msg_no", "stream_id", "timestamp",
        F.unix_micros("ts_last").alias("ts"),
        F.shiftleft(F.shiftleft("length", 8).bitwiseOR(F.col("type_id").cast("long")), 32)
        .bitwiseOR(F.col("payload_crc32"))
        .alias("key"),
    )  # fmt: skip
    kind = F.when(F.col("packet_type") == "frame", CODED + CONFIG).when(F.col("is_config"), CONFIG).otherwise(0)
    kinds = _written(writer, "media_tags", pairs, replaced).groupBy("uid", "direction", "msg_no")
    told = messages.join(kinds.agg(F.max(kind).alias("kind")), ["uid", "direction", "msg_no"], "left")
    near = F.col("played") | (F.col("kind") == CONFIG) | F.col("ts").between(F.col("first"), F.col("last"))
    return told.join(F.broadcast(wanted), ["uid", "direction"]).where(near)


def _written(writer: Writer, table: str, pairs: Sequence[Pair], replaced: Sequence[Superseded]) -> DataFrame:
    """The rows of these connections as they will be when the ingest is committed."""
    ours = among(writer.spark, writer.written(table), "uid", {s.uid for pair in pairs for s in pair})
    bounds = [(e.uid, *e.first_message(table)) for e in replaced if table in e.tables]
    if not bounds:
        return ours
    columns = dict(zip(("uid", "below_c2s", "below_s2c"), map(list, zip(*bounds))))
    below = F.when(F.col("direction") == "c2s", F.col("below_c2s")).otherwise(F.col("below_s2c"))
    is_new = F.col("ingest_id") == writer.ingest_id
    ends = writer.spark.createDataFrame(pa.table(columns))
    joined = ours.join(F.broadcast(ends), "uid", "left")
    return joined.where(is_new | below.isNull() | (F.col("msg_no") < below)).drop("below_c2s", "below_s2c")


def _matched(
    frames: DataFrame, ingest_id: int, pairs: Sequence[Pair], siblings: Mapping[tuple[str, str], int]
) -> DataFrame:
    schema = arrow_schema("deliveries")
    known = [[(vars(s), siblings[s.uid, s.direction] == 1) for s in pair] for pair in pairs]
    return frames.groupBy("pair").applyInArrow(_matcher(known, ingest_id), spark_schema(schema))


def _matcher(known: list[list[tuple[dict[str, Any], bool]]], ingest_id: int) -> Callable[[pa.Table], pa.Table]:
    def match(table: pa.Table) -> pa.Table:
        schema = arrow_schema("deliveries")
        sides = known[table["pair"][0].as_py()]
        publish, play = (
            stream_of(row, _by_stream(table.filter(table["played"] if played else pc.invert(table["played"]))), alone)
            for played, (row, alone) in enumerate(sides)
        )
        row = delivery(publish, play)
        rows = [] if row is None else [dict(zip(schema.names, (*row, ingest_id)))]
        return pa.Table.from_pylist(rows, schema)

    return match


def _by_stream(table: pa.Table) -> dict[int, Frames]:
    table = table.sort_by("msg_no")
    ids, key, ts, dts = (table[c].to_numpy() for c in ("stream_id", "key", "ts", "timestamp"))
    kinds = table["kind"].fill_null(0).to_numpy()
    kind = np.where(kinds > CONFIG, CODED, kinds).astype(np.int8)
    found = {}
    for stream_id in np.unique(ids).tolist():
        own = ids == stream_id
        found[stream_id] = Frames.filled(key[own].view(np.uint64), ts[own], dts[own], kind[own])
    return found
