"""Captures that come late: parts of connections whose rows the lake has, and which can not be resumed any more.

Only captures that begin before what the lake knows can hold such parts; a recorder's files in the order of time never
cause a question. What is found is told, not mended: that is what decoding again is for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from rtmp_spark.capture.connection import LINGER_NS, SILENT_NS, endpoint

from .lake import Writer
from .neighbours import of_sensor
from .scan import flows_of

_COLUMNS = ("uid", "orig_h", "orig_p", "resp_h", "resp_p", "ts_start", "ts_end", "midstream", "close_kind")
Ends = frozenset[tuple[str, int]]
Times = tuple[int, int]  # first and last packet, nanoseconds


def late_parts(writer: Writer, sensor: str, index: pa.Table, known: Collection[str]) -> list[str]:
    """The uids of connections in the lake, but for the `known` ones, of which the new captures hold parts."""
    times = _times(index)
    if not times:
        return []
    first, last = min(t[0] for t in times.values()), max(t[1] for t in times.values())
    since, until = (F.timestamp_micros(F.lit(t // 1000)) for t in (first - SILENT_NS, last + SILENT_NS))
    near = of_sensor(writer, sensor).where((F.col("ts_end") >= since) & (F.col("ts_start") <= until))
    begun, ended = (F.unix_micros(c).alias(c) for c in ("ts_start", "ts_end"))
    rows = near.select(*(c for c in _COLUMNS if not c.startswith("ts_")), begun, ended).toArrow().to_pylist()
    return sorted(found_late((row for row in rows if row["uid"] not in known), times))


def found_late(connections: Iterable[Mapping[str, Any]], times: Mapping[Ends, Times]) -> set[str]:
    """Connections that these packets belong to: begun before their own first one, or among them, or after the last."""
    found = set()
    for row in connections:
        seen = times.get(frozenset(((row["orig_h"], row["orig_p"]), (row["resp_h"], row["resp_p"]))))
        if seen is None:
            continue
        begun, ended = row["ts_start"] * 1000, row["ts_end"] * 1000
        after = SILENT_NS if row["close_kind"] == "open" else LINGER_NS
        before = SILENT_NS if row["midstream"] else 0
        if seen[0] <= ended + after and seen[1] >= begun - before:
            found.add(row["uid"])
    return found


def _times(index: pa.Table) -> dict[Ends, Times]:
    found: dict[Ends, Times] = {}
    for flows in index["flows"].to_pylist():
        table = flows_of(flows)
        columns = (table[name].to_pylist() for name in ("key", "ts_first_ns", "ts_last_ns"))
        for key, first, last in zip(*columns):
            ends = frozenset((endpoint(key[:18]), endpoint(key[18:])))
            known = found.get(ends, (first, last))
            found[ends] = (min(first, known[0]), max(last, known[1]))
    return found
