"""What only several connections together show, over a lake and not only one ingest: tries in a row, who holds a name,
where an authentication goes on.

The rules are those of the end of a recording (`number_attempts`, `judge_together`), run again for the new connections
and their neighbours in the lake; rows of these that change by it are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from rtmp_spark.capture.attempts import number_attempts
from rtmp_spark.capture.judging import Ended
from rtmp_spark.forensics.hindsight import judge_together, told_alone
from rtmp_spark.schema import column_names

from .lake import Writer
from .ledger import Superseded
from .neighbours import BY_NAME, BY_ROUND, ROUND_US, Fresh, Neighbours, ends_of, of_rules, of_sensor
from .tuples import Row, among, fetch, table_of, tuples

_STREAMS, _FINDINGS = column_names("streams"), column_names("findings")
_RULE, _UID = _FINDINGS.index("rule_id"), _FINDINGS.index("uid")


def judged_together(
    writer: Writer, sensor: str, fresh: Fresh, known: Neighbours
) -> tuple[pa.Table, pa.Table, list[Superseded]]:
    """Rows of `streams` and of `findings`, new ones and changed ones, and what these replace."""
    hosts = {uid: end.orig_h for uid, end in known.ends.items()}
    hosts |= zip(fresh.connections["uid"].to_pylist(), fresh.connections["orig_h"].to_pylist())
    streams = number_attempts([*known.named, *tuples(fresh.streams)], hosts)
    before = {_identity(row): row for row in known.named}
    changed = {row[0] for row in streams if before.get(_identity(row), row) != row}
    rows = [row for row in streams if row[0] not in known.ends or row[0] in changed]
    if changed:
        whole = fetch(among(writer.spark, writer.table("streams"), "uid", changed), "streams")
        rows += [row for row in whole if _identity(row) not in before]
    findings, retold = _retold(writer, sensor, fresh, known, streams)
    superseded = [Superseded(uid, tables=("streams",)) for uid in sorted(changed)]
    superseded += [Superseded(uid, tables=("findings",)) for uid in sorted(retold)]
    return table_of("streams", rows, writer.ingest_id), findings, superseded


def _identity(row: Row) -> Row:
    return tuple(row[_STREAMS.index(c)] for c in ("uid", "stream_id", "role", "ts_start"))


def _retold(
    writer: Writer, sensor: str, fresh: Fresh, known: Neighbours, streams: Sequence[Row]
) -> tuple[pa.Table, set[str]]:
    """Findings of the new connections, and of those in the lake that are told otherwise now."""
    own = ends_of(fresh.connections)
    told = told_alone(tuples(of_rules(fresh.findings, BY_NAME + BY_ROUND)))
    of_names = [row for row in known.findings if row[_RULE] in BY_NAME]
    of_rounds = [row for row in known.findings if row[_RULE] in BY_ROUND and row[_UID] not in own]
    after: dict[str, set[Row]] = {}
    given = [*told_alone(of_names), *(row for row in told if row[_RULE] in BY_NAME)]
    judged = judge_together(streams, [*known.ends.values(), *own.values()], given)
    asked = [row for row in told if row[_RULE] in BY_ROUND]
    if asked or of_rounds:
        ends = _rounds(writer, sensor, fresh, own, asked, of_rounds)
        of_rounds = [row for row in of_rounds if row[_UID] in ends]
        judged += judge_together((), list(ends.values()), [*told_alone(of_rounds), *asked])
    for row in judged:
        after.setdefault(row[_UID], set()).add(row)
    before: dict[str, set[Row]] = {}
    for row in (*of_names, *of_rounds):
        before.setdefault(row[_UID], set()).add(row)
    changed = {uid for uid in (before.keys() | after.keys()) - own.keys() if before.get(uid) != after.get(uid)}
    rows = [row for uid, found in after.items() if uid in own or uid in changed for row in found]
    if changed:
        whole = fetch(among(writer.spark, writer.table("findings"), "uid", changed), "findings")
        rows += [row for row in whole if row not in before.get(row[_UID], ())]
    others = pc.invert(pc.is_in(fresh.findings["rule_id"], pa.array(BY_NAME + BY_ROUND)))
    rest = fresh.findings.filter(others)
    return pa.concat_tables([rest, table_of("findings", rows, writer.ingest_id)]), changed


def _rounds(
    writer: Writer, sensor: str, fresh: Fresh, own: dict[str, Ended], asked: Sequence[Row], before: Sequence[Row]
) -> dict[str, Ended]:
    """Connections that can be rounds of one authentication: the new ones, those of old rounds, and who came after."""
    if writer.is_new:
        return dict(own)

    def of_the_lake(wanted: Column) -> dict[str, Ended]:
        found = ends_of(of_sensor(writer, sensor).where(wanted).select(*Ended._fields).toArrow())
        return {uid: end for uid, end in found.items() if uid not in fresh.gone}

    old = of_the_lake(F.col("uid").isin(sorted({row[_UID] for row in before}))) if before else {}
    rounds = [*old.values(), *(own[row[_UID]] for row in asked)]
    if rounds:
        first, last = min(end.ts_start for end in rounds), max(end.ts_start for end in rounds) + ROUND_US
        then = F.col("ts_start").between(*(F.timestamp_micros(F.lit(t)) for t in (first, last)))
        old |= of_the_lake(then & F.col("resp_h").isin(sorted({end.resp_h for end in rounds})))
    return old | own
