"""The rows of `paths` from rows of other tables, of recordings or of a lake."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.observation_points import (
    NOT_OF_ONE_CONNECTION,
    Pair,
    Passed,
    SeenConnection,
    SeenMessages,
    path_row,
    possible_pairs,
)
from rtmp_spark.schema import DIRECTIONS, arrow_schema

COLUMNS: dict[str, tuple[str, ...]] = {  # of the tables that are compared
    "connections": (
        "uid", "sensor", "orig_h", "orig_p", "resp_h", "resp_p", "ts_start", "ts_end", "midstream", "close_kind",
        *(f"{name}_{d}" for name in ("delivered_bytes", "missed_bytes") for d in DIRECTIONS),
    ),
    "intervals": ("uid", "direction", "packets", "bytes"),
    "findings": ("uid", "rule_id", "severity", "at_fault"),
    "messages": ("uid", "direction", "status", "payload_crc32", "length", "timestamp", "ts_last"),
}  # fmt: skip
Read = Callable[[str, Collection[str]], pa.Table]  # the rows of a table about some connections, with these columns


def path_rows(connections: pa.Table, read: Read, touching: Collection[str] | None = None) -> list[Row]:
    """Rows of `paths`: all, or those with a connection of `touching`.

    Args:
        connections: The connections of all sensors.
        read: Reads the other tables; rows of other connections do no harm. The messages of one pair of connections
            are read at a time.
        touching: uids.
    """
    nothing = (arrow_schema(table).empty_table() for table in ("intervals", "findings"))
    pairs = [
        pair
        for pair in possible_pairs(_seen(connections, *nothing))
        if touching is None or pair.one.uid in touching or pair.other.uid in touching
    ]
    uids = {one.uid for pair in pairs for one in (pair.one, pair.other)}
    if not uids:
        return []
    own = connections.filter(pa.array([uid in uids for uid in connections["uid"].to_pylist()], pa.bool_()))
    seen = {one.uid: one for one in _seen(own, read("intervals", uids), read("findings", uids))}
    rows = []
    for one, other, translated in pairs:
        row = _compare(Pair(seen[one.uid], seen[other.uid], translated), read("messages", {one.uid, other.uid}))
        if row is not None:
            rows.append(row)
    return sorted(rows, key=lambda row: row[:3])


def _seen(connections: pa.Table, intervals: pa.Table, findings: pa.Table) -> list[SeenConnection]:
    """The connections as their sensors saw them."""
    sums = intervals.group_by(["uid", "direction"]).aggregate([("packets", "sum"), ("bytes", "sum")])
    passed = {(row["uid"], row["direction"]): (row["packets_sum"], row["bytes_sum"]) for row in sums.to_pylist()}
    blamed: dict[str, set[str]] = {}
    for row in findings.to_pylist():
        if row["uid"] and row["at_fault"] and row["severity"] != "info" and row["rule_id"] not in NOT_OF_ONE_CONNECTION:
            blamed.setdefault(row["uid"], set()).add(row["at_fault"])
    for name in ("ts_start", "ts_end"):
        at = connections.schema.get_field_index(name)
        connections = connections.set_column(at, name, connections[name].cast(pa.int64()))
    found = []
    for row in connections.to_pylist():
        uid = row["uid"]
        counted = {}
        for d in DIRECTIONS:
            missed = row[f"missed_bytes_{d}"]
            counted[d] = Passed(*passed.get((uid, d), (0, 0)), row[f"delivered_bytes_{d}"] + missed, missed)
        found.append(
            SeenConnection(
                uid, row["sensor"], (row["orig_h"], row["orig_p"], row["resp_h"], row["resp_p"]), row["ts_start"],
                row["ts_end"], not row["midstream"] and row["close_kind"] != "open", counted,
                frozenset(blamed.get(uid, ())),
            )
        )  # fmt: skip
    return found


def _compare(pair: Pair, messages: pa.Table) -> Row | None:
    return path_row(pair, _by_direction(messages, pair.one.uid), _by_direction(messages, pair.other.uid))


def _by_direction(messages: pa.Table, uid: str) -> dict[str, SeenMessages]:
    """The complete messages of a connection."""
    uids, directions, statuses = (messages[c].to_numpy(zero_copy_only=False) for c in ("uid", "direction", "status"))
    found = {}
    for direction in DIRECTIONS:
        own = messages.filter(pa.array((uids == uid) & (directions == direction) & (statuses == "complete")))
        times = own["ts_last"].cast(pa.int64()).to_numpy()
        order = np.argsort(times, kind="stable")  # of equal messages the first counts
        crc32, length, timestamp = (own[name].to_numpy()[order] for name in ("payload_crc32", "length", "timestamp"))
        found[direction] = SeenMessages.of(crc32, length, timestamp, times[order])
    return found
