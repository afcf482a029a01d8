"""Connections of a lake that rules across connections compare with the new ones of an ingest.

These are connections that used the same stream names or carried streams at the same time, and authentication rounds
shortly before. The cost depends on how many there are, not on the size of the lake: the queries are limited to the
stream names and to at most `MOST_SPANS` spans of time, so files of other times are not read. Connections of another
sensor are never compared.
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

from rtmp_spark.forensics.ended_connection import Ended as ConnectionEnd
from rtmp_spark.forensics.thresholds import AUTH_ROUND_US, CACHE_US
from rtmp_spark.ingest.publish.lake_rows import PublishedTables, Row, at_microseconds, microseconds, one_of, read_tuples
from rtmp_spark.schema import arrow_schema, column_names

BY_NAME = ("SESSION_BAD_NAME", "SESSION_PERIODIC", "SESSION_END")  # rules that compare streams of one name
BY_ROUND = ("CMD_AUTH_ROUND",)
MOST_SPANS = 16  # spans of time in one query
_STREAMS = column_names("streams")
_UID, _NAME = _STREAMS.index("uid"), _STREAMS.index("name")
Times = tuple[int, int]  # first and last, microseconds


@dataclass
class NewRows:
    """Rows of the connections that an ingest decoded."""

    streams: pa.Table
    connections: pa.Table
    findings: pa.Table
    replaced: set[str]  # uids whose older rows the ingest replaces
    resumed: Mapping[str, int]  # uid of a resumed connection: from this time on (microseconds) its rows are new

    @classmethod
    def of(cls, rows: Mapping[str, pa.Table], replaced: set[str], resumed: Mapping[str, int]) -> NewRows:
        streams, connections, findings = (
            rows[name] if name in rows else arrow_schema(name).empty_table()
            for name in ("streams", "connections", "findings")
        )
        return cls(streams, connections, findings, replaced, resumed)

    @property
    def uids(self) -> set[str]:
        return set(self.connections["uid"].to_pylist())

    def times(self, role: str) -> list[Times]:
        """When something new was published or played."""
        uids, roles = (self.streams[c].to_pylist() for c in ("uid", "role"))
        since = self.resumed if role == "publish" else {}  # a play is always matched from its start
        times = zip(microseconds(self.streams["ts_start"]), microseconds(self.streams["ts_end"]))
        return [(since.get(uid, a), b) for uid, own, (a, b) in zip(uids, roles, times) if own == role]


@dataclass
class Neighbours:
    """Connections of the lake to compare with the new ones."""

    streams: list[Row] = field(default_factory=list)
    ends: dict[str, ConnectionEnd] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # `streams` holds every stream of these names
    findings: list[Row] = field(default_factory=list)

    @property
    def named(self) -> list[Row]:
        return [row for row in self.streams if row[_NAME] in self.names]


def neighbours(lake: PublishedTables, sensor: str, new: NewRows) -> Neighbours:
    """Follows names from connection to connection: a neighbour's other names bring in further neighbours."""
    found = Neighbours()
    if lake.is_new or not new.connections.num_rows:
        return found
    names = set(new.streams["name"].drop_null().to_pylist())
    times = {"play": new.times("publish"), "publish": new.times("play")}
    while names or any(times.values()):
        rows = [row for row in _streams(lake, names, times) if row[_UID] not in new.replaced]
        found.names |= names
        ends, other_names = _connections(lake, sensor, {row[_UID] for row in rows} - found.ends.keys())
        found.ends |= ends
        known = set(found.streams)
        found.streams += [row for row in rows if row[_UID] in found.ends and row not in known]
        named = {row[_UID] for row in found.named}
        names = {name for uid in named for name in other_names.get(uid, ())} - found.names
        times = {}
    found.findings = _findings(lake, new, {row[_UID] for row in found.named})
    return found


def overlapping(times: Sequence[Times]) -> pc.Expression:
    """Condition for streams at any of these times."""
    return reduce(or_, (_at(first, last) for first, last in merged(times)))


def _at(first: int, last: int) -> pc.Expression:
    since, until = at_microseconds(first - CACHE_US), at_microseconds(last + CACHE_US)
    return (pc.field("ts_end") >= since) & (pc.field("ts_start") <= until)


def merged(times: Sequence[Times]) -> list[Times]:
    """The spans that these times cover; where there are too many, those with the shortest pauses become one."""
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


def _streams(lake: PublishedTables, names: set[str], times: Mapping[str, list[Times]]) -> list[Row]:
    conditions = [(pc.field("role") == role) & overlapping(spans) for role, spans in times.items() if spans]
    if names:
        conditions.append(one_of("name", names))
    return read_tuples(lake, "streams", reduce(or_, conditions))


def _connections(
    lake: PublishedTables, sensor: str, uids: set[str]
) -> tuple[dict[str, ConnectionEnd], dict[str, list[str]]]:
    """How these connections ended, and which stream names they used."""
    if not uids:
        return {}, {}
    found = lake.read("connections", [*ConnectionEnd._fields, "stream_names"], of_sensor(sensor) & one_of("uid", uids))
    return ends_of(found), dict(zip(found["uid"].to_pylist(), found["stream_names"].to_pylist()))


def _findings(lake: PublishedTables, new: NewRows, named: set[str]) -> list[Row]:
    """Findings about connections with the same names, and authentication rounds that a new connection may continue."""
    starts = [
        ts
        for uid, ts in zip(new.connections["uid"].to_pylist(), microseconds(new.connections["ts_start"]))
        if uid not in new.replaced
    ]
    conditions = []
    if starts:
        conditions.append(
            one_of("rule_id", BY_ROUND) & (pc.field("ts") >= at_microseconds(min(starts) - AUTH_ROUND_US))
        )
    if named:
        conditions.append(one_of("rule_id", BY_NAME) & one_of("uid", named))
    return read_tuples(lake, "findings", reduce(or_, conditions)) if conditions else []


def of_sensor(sensor: str) -> pc.Expression:
    return pc.field("sensor") == sensor


def ends_of(connections: pa.Table) -> dict[str, ConnectionEnd]:
    columns: list[Any] = [
        microseconds(connections[c]) if c == "ts_start" else connections[c].to_pylist() for c in ConnectionEnd._fields
    ]
    return {row[0]: ConnectionEnd(*row) for row in zip(*columns)}


def of_rules(findings: pa.Table, codes: tuple[str, ...]) -> pa.Table:
    return findings.filter(pc.is_in(findings["rule_id"], pa.array(codes)))
