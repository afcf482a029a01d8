"""Which connections of a lake an ingest's new ones must be seen together with: those that used the same stream names or
streamed at the same time, and authentications shortly before.

Three plain queries, one table each, so that a small ingest stays quick. What they fetch goes with the connections that
share a name with the new ones or streamed at their times (at most `MOST_SPANS` stretches of time: beyond that the
shortest pauses count too), not with the lake. A recording of another sensor is another story.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rtmp_spark.capture.judging import Ended
from rtmp_spark.forensics.deliveries import CACHE_US
from rtmp_spark.schema import arrow_schema, column_names

from .lake import Writer
from .tuples import Row, among, fetch

BY_NAME = ("SESSION_BAD_NAME", "SESSION_PERIODIC", "SESSION_END")  # findings that rules over names read or write
BY_ROUND = ("CMD_AUTH_ROUND",)
ROUND_US = 30_000_000  # within which the next connection of an authentication follows
MOST_SPANS = 16  # of time, in one query
_STREAMS = column_names("streams")
_UID, _NAME = _STREAMS.index("uid"), _STREAMS.index("name")
Times = tuple[int, int]  # first and last, microseconds


@dataclass
class Fresh:
    """The rows of new connections, as they were decoded; what they replace, and since when a resumed one is new."""

    streams: pa.Table
    connections: pa.Table
    findings: pa.Table
    gone: set[str]
    resumed: Mapping[str, int]

    @classmethod
    def of(cls, rows: Mapping[str, pa.Table], gone: set[str], resumed: Mapping[str, int]) -> Fresh:
        streams, connections, findings = (
            rows[name] if name in rows else arrow_schema(name).empty_table()
            for name in ("streams", "connections", "findings")
        )
        return cls(streams, connections, findings, gone, resumed)

    @property
    def uids(self) -> set[str]:
        return set(self.connections["uid"].to_pylist())

    def news(self, role: str) -> list[Times]:
        """When something new was published or played."""
        uids, roles = (self.streams[c].to_pylist() for c in ("uid", "role"))
        since = self.resumed if role == "publish" else {}  # a player is matched as a whole
        times = zip(micros(self.streams["ts_start"]), micros(self.streams["ts_end"]))
        return [(since.get(uid, a), b) for uid, own, (a, b) in zip(uids, roles, times) if own == role]


@dataclass
class Neighbours:
    """Connections of the lake that are seen together with the new ones."""

    streams: list[Row] = field(default_factory=list)
    ends: dict[str, Ended] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # all streams of these are here
    findings: list[Row] = field(default_factory=list)

    @property
    def named(self) -> list[Row]:
        return [row for row in self.streams if row[_NAME] in self.names]


def neighbours(writer: Writer, sensor: str, fresh: Fresh) -> Neighbours:
    found = Neighbours()
    if writer.is_new or not fresh.connections.num_rows:
        return found
    names = set(fresh.streams["name"].drop_null().to_pylist())
    times = {"play": fresh.news("publish"), "publish": fresh.news("play")}
    while names or any(times.values()):
        rows = _streams(writer, names, times)
        rows = [row for row in rows if row[_UID] not in fresh.gone]
        found.names |= names
        ends, other_names = _connections(writer, sensor, {row[_UID] for row in rows} - found.ends.keys())
        found.ends |= ends
        known = set(found.streams)
        found.streams += [row for row in rows if row[_UID] in found.ends and row not in known]
        named = {row[_UID] for row in found.named}
        names = {name for uid in named for name in other_names.get(uid, ())} - found.names
        times = {}
    named = {row[_UID] for row in found.named}
    found.findings = _findings(writer, fresh, named)
    return found


def overlapping(times: Sequence[Times]) -> Column:
    """Streams at any of these times."""
    return reduce(or_, (_at(first, last) for first, last in merged(times)))


def _at(first: int, last: int) -> Column:
    since, until = (F.timestamp_micros(F.lit(t)) for t in (first - CACHE_US, last + CACHE_US))
    return (F.col("ts_end") >= since) & (F.col("ts_start") <= until)


def merged(times: Sequence[Times]) -> list[Times]:
    """The stretches of time that these cover, joined over the shortest pauses where there are too many."""
    found = _joined(times, 2 * CACHE_US)
    if len(found) > MOST_SPANS:
        pauses = sorted(b[0] - a[1] for a, b in pairwise(found))
        found = _joined(found, pauses[-MOST_SPANS])
    return found


def _joined(times: Sequence[Times], pause: int) -> list[Times]:
    joined: list[Times] = []
    for first, last in sorted(times):
        if joined and first - joined[-1][1] <= pause:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _streams(writer: Writer, names: set[str], times: Mapping[str, list[Times]]) -> list[Row]:
    streams = writer.table("streams")
    at: list[Column] = []
    for role, spans in times.items():
        if spans:
            at.append((F.col("role") == role) & overlapping(spans))
    if len(names) > 500:
        rows = fetch(among(writer.spark, streams, "name", names), "streams")
        more = fetch(streams.where(reduce(or_, at)), "streams") if at else []
        return [*rows, *(row for row in more if row[_NAME] not in names)]
    if names:
        at.append(F.col("name").isin(sorted(names)))
    return fetch(streams.where(reduce(or_, at)), "streams")


def _connections(writer: Writer, sensor: str, uids: set[str]) -> tuple[dict[str, Ended], dict[str, list[str]]]:
    """How these connections ended, and which names they used."""
    if not uids:
        return {}, {}
    found = among(writer.spark, of_sensor(writer, sensor), "uid", uids).select(*Ended._fields, "stream_names").toArrow()
    return ends_of(found), dict(zip(found["uid"].to_pylist(), found["stream_names"].to_pylist()))


def _findings(writer: Writer, fresh: Fresh, named: set[str]) -> list[Row]:
    """What was told of connections with the same names, and rounds that a new connection may carry on."""
    findings = writer.table("findings")
    new = [ts for uid, ts in zip(fresh.connections["uid"].to_pylist(), micros(fresh.connections["ts_start"]))
           if uid not in fresh.gone]  # fmt: skip
    wanted: list[Column] = []
    if new:
        since = F.timestamp_micros(F.lit(min(new) - ROUND_US))
        wanted.append(F.col("rule_id").isin(*BY_ROUND) & (F.col("ts") >= since))
    rows: list[Row] = []
    of_names = F.col("rule_id").isin(*BY_NAME)
    if len(named) > 500:
        rows = fetch(among(writer.spark, findings.where(of_names), "uid", named), "findings")
    elif named:
        wanted.append(of_names & F.col("uid").isin(sorted(named)))
    if wanted:
        rows += fetch(findings.where(reduce(or_, wanted)), "findings")
    return rows


def of_sensor(writer: Writer, sensor: str) -> DataFrame:
    return writer.table("connections").where(F.col("sensor") == sensor)


def ends_of(connections: pa.Table) -> dict[str, Ended]:
    columns: list[Any] = [
        micros(connections[c]) if c == "ts_start" else connections[c].to_pylist() for c in Ended._fields
    ]
    return {row[0]: Ended(*row) for row in zip(*columns)}


def micros(column: pa.ChunkedArray) -> list[int]:
    times: list[int] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return times


def of_rules(findings: pa.Table, codes: tuple[str, ...]) -> pa.Table:
    return findings.filter(pc.is_in(findings["rule_id"], pa.array(codes)))
