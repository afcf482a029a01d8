"""Captures that arrive late: they hold parts of connections whose rows are in the lake and cannot be resumed.

Only a capture that begins before the newest packet of the lake can hold such parts, so captures ingested in order of
time never cause a query. Late parts are reported; `--redo` decodes the connections again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.capture.tcp.tcp_connection import endpoint
from rtmp_spark.codec.limits import LINGER_NS, SILENT_NS
from rtmp_spark.ingest.publish.lake_rows import PublishedTables, at_microseconds
from rtmp_spark.ingest.publish.neighbours import of_sensor

_COLUMNS = ("uid", "orig_h", "orig_p", "resp_h", "resp_p", "ts_start", "ts_end", "midstream", "close_kind")
Ends = frozenset[tuple[str, int]]
Times = tuple[int, int]  # first and last packet, nanoseconds


def late_parts(lake: PublishedTables, sensor: str, flows: pa.Table, known: Collection[str]) -> list[str]:
    """The uids of connections in the lake, except the `known` ones, of which the new captures hold parts."""
    times = _times(flows)
    if not times:
        return []
    first, last = min(t[0] for t in times.values()), max(t[1] for t in times.values())
    since, until = (at_microseconds(t // 1000) for t in (first - SILENT_NS, last + SILENT_NS))
    near = of_sensor(sensor) & (pc.field("ts_end") >= since) & (pc.field("ts_start") <= until)
    found = lake.read("connections", _COLUMNS, near)
    for name in ("ts_start", "ts_end"):
        found = found.set_column(found.schema.get_field_index(name), name, found[name].cast(pa.int64()))
    return sorted(found_late((row for row in found.to_pylist() if row["uid"] not in known), times))


def found_late(connections: Iterable[Mapping[str, Any]], times: Mapping[Ends, Times]) -> set[str]:
    """The connections that these packets belong to, judged by endpoints and times."""
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


def _times(flows: pa.Table) -> dict[Ends, Times]:
    found: dict[Ends, Times] = {}
    columns = (flows[name].to_pylist() for name in ("key", "ts_first_ns", "ts_last_ns"))
    for key, first, last in zip(*columns):
        ends = frozenset((endpoint(key[:18]), endpoint(key[18:])))
        known = found.get(ends, (first, last))
        found[ends] = (min(first, known[0]), max(last, known[1]))
    return found
