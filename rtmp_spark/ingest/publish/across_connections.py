"""Rules that need several connections, applied over a lake: attempts in a row, the holder of a stream name, the rounds
of one authentication.

The rules are those that `inspect` runs at the end of a recording (`number_attempts`,
`findings_across_connections`). Here they run over the new connections and their neighbours in the lake; rows of
neighbours that change are replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.forensics.attempts import number_attempts
from rtmp_spark.forensics.ended_connection import Ended as ConnectionEnd
from rtmp_spark.forensics.rules_across_connections import (
    findings_across_connections,
    findings_of_single_connections,
)
from rtmp_spark.forensics.thresholds import AUTH_ROUND_US
from rtmp_spark.ingest.publish.lake_rows import (
    PublishedTables,
    Row,
    at_microseconds,
    one_of,
    read_tuples,
    to_table,
    to_tuples,
)
from rtmp_spark.ingest.publish.neighbours import (
    BY_NAME,
    BY_ROUND,
    Neighbours,
    NewRows,
    ends_of,
    of_rules,
    of_sensor,
)
from rtmp_spark.schema import column_names

_STREAMS, _FINDINGS = column_names("streams"), column_names("findings")
_RULE, _UID = _FINDINGS.index("rule_id"), _FINDINGS.index("uid")


DELIVERY_LIMIT = ViolationCode.CAPTURE_LIMIT.value  # the other findings of this rule are about files


class Judged(NamedTuple):
    streams: pa.Table  # new rows and changed ones
    findings: pa.Table
    changed_streams: set[str]  # uids of neighbours whose rows of `streams` are replaced
    changed_findings: set[str]  # uids of neighbours whose findings are replaced


def judge_across_connections(
    lake: PublishedTables, sensor: str, new: NewRows, known: Neighbours, rematched: Collection[str], ingest_id: int
) -> Judged:
    """`rematched`: neighbours that get new deliveries, and with them new findings about limits."""
    hosts = {uid: end.orig_h for uid, end in known.ends.items()}
    hosts |= zip(new.connections["uid"].to_pylist(), new.connections["orig_h"].to_pylist())
    streams = number_attempts([*known.named, *to_tuples(new.streams)], hosts)
    before = {_identity(row): row for row in known.named}
    changed = {row[0] for row in streams if before.get(_identity(row), row) != row}
    rows = [row for row in streams if row[0] not in known.ends or row[0] in changed]
    if changed:
        whole = read_tuples(lake, "streams", one_of("uid", changed))
        rows += [row for row in whole if _identity(row) not in before]
    findings, reworded = _findings(lake, sensor, new, known, streams, rematched, ingest_id)
    return Judged(to_table("streams", rows, ingest_id), findings, changed, reworded)


def _identity(row: Row) -> Row:
    return tuple(row[_STREAMS.index(c)] for c in ("uid", "stream_id", "role", "ts_start"))


def _findings(
    lake: PublishedTables,
    sensor: str,
    new: NewRows,
    known: Neighbours,
    streams: Sequence[Row],
    rematched: Collection[str],
    ingest_id: int,
) -> tuple[pa.Table, set[str]]:
    """Findings of the new connections and of neighbours whose findings change; the uids of the latter."""
    own = ends_of(new.connections)
    single = findings_of_single_connections(to_tuples(of_rules(new.findings, BY_NAME + BY_ROUND)))
    of_names = [row for row in known.findings if row[_RULE] in BY_NAME]
    of_rounds = [row for row in known.findings if row[_RULE] in BY_ROUND and row[_UID] not in own]
    given = [*findings_of_single_connections(of_names), *(row for row in single if row[_RULE] in BY_NAME)]
    judged = findings_across_connections(streams, [*known.ends.values(), *own.values()], given)
    asked = [row for row in single if row[_RULE] in BY_ROUND]
    if asked or of_rounds:
        ends = _rounds(lake, sensor, new, own, asked, of_rounds)
        of_rounds = [row for row in of_rounds if row[_UID] in ends]
        judged += findings_across_connections(
            (), list(ends.values()), [*findings_of_single_connections(of_rounds), *asked]
        )
    after = _by_uid(judged)
    before = _by_uid([*of_names, *of_rounds])
    changed = {uid for uid in (before.keys() | after.keys()) - own.keys() if before.get(uid) != after.get(uid)}
    rows = [row for uid, found in after.items() if uid in own or uid in changed for row in found]
    if changed:
        whole = read_tuples(lake, "findings", one_of("uid", changed))
        whole = [row for row in whole if row[_RULE] != DELIVERY_LIMIT or row[_UID] not in rematched]
        rows += [row for row in whole if row not in before.get(row[_UID], ())]
    others = pc.invert(pc.is_in(new.findings["rule_id"], pa.array(BY_NAME + BY_ROUND)))
    rest = new.findings.filter(others)
    return pa.concat_tables([rest, to_table("findings", rows, ingest_id)]), changed


def _by_uid(rows: Sequence[Row]) -> dict[str, set[Row]]:
    found: dict[str, set[Row]] = {}
    for row in rows:
        found.setdefault(row[_UID], set()).add(row)
    return found


def _rounds(
    lake: PublishedTables,
    sensor: str,
    new: NewRows,
    own: dict[str, ConnectionEnd],
    asked: Sequence[Row],
    before: Sequence[Row],
) -> dict[str, ConnectionEnd]:
    """Connections that can be rounds of one authentication: new ones, earlier rounds, and those that followed them."""
    if lake.is_new:
        return dict(own)

    def in_lake(where: pc.Expression) -> dict[str, ConnectionEnd]:
        found = ends_of(lake.read("connections", ConnectionEnd._fields, of_sensor(sensor) & where))
        return {uid: end for uid, end in found.items() if uid not in new.replaced}

    old = in_lake(one_of("uid", {row[_UID] for row in before})) if before else {}
    rounds = [*old.values(), *(own[row[_UID]] for row in asked)]
    if rounds:
        first, last = min(end.ts_start for end in rounds), max(end.ts_start for end in rounds) + AUTH_ROUND_US
        then = (pc.field("ts_start") >= at_microseconds(first)) & (pc.field("ts_start") <= at_microseconds(last))
        old |= in_lake(then & one_of("resp_h", {end.resp_h for end in rounds}))
    return old | own
