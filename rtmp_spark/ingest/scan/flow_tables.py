"""Queries on the connections of a round (schema FLOWS, with `split_id`): first packets and decoding cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtmp_spark.ingest.scan.flow_index import ends_of_key

CONNECTION_WEIGHT = 512 << 10  # in bytes of payload, so that a bucket holds at most a few thousand connections
PACKET_WEIGHT = 200  # in bytes of payload


def key_numbers(flows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for the connection of each row, from 0 in the order of their first rows."""
    if not flows.num_rows:
        return np.zeros(0, np.int64)
    return numbers_of(flows["key"].combine_chunks().dictionary_encode().indices)


def numbers_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column without nulls; `to_numpy` of a chunked one would load pandas."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False).astype(
        np.int64, copy=False
    )
    return found


def looked_up(found: Mapping[int, int], column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The value for each row of a column of small numbers; -1 for a number that is not a key of `found`.

    A round may have a million rows, so no Python object is made for any of them.
    """
    values = np.full(max(found, default=0) + 1, -1, np.int64)
    values[list(found)] = list(found.values())
    return values[numbers_of(column)]


def weights(flows: pa.Table) -> dict[int, int]:
    """The decoding cost of each group: payload bytes, plus a share for each packet and each connection."""
    if not flows.num_rows:
        return {}
    group, number = numbers_of(flows["group"]), key_numbers(flows)
    cost = numbers_of(flows["bytes"]) + PACKET_WEIGHT * numbers_of(flows["packets"])
    # A connection counts once, in however many splits it is. Numbers are given in the order of the rows.
    cost[np.diff(np.maximum.accumulate(number), prepend=-1) > 0] += CONNECTION_WEIGHT
    groups, place = np.unique(group, return_inverse=True)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, place, cost)
    return dict(zip(groups.tolist(), total.tolist()))


def payload_bytes(flows: pa.Table) -> int:
    return pc.sum(flows["bytes"]).as_py() or 0


def of_keys(flows: pa.Table, keys: Collection[bytes]) -> pa.Table:
    """The rows of these connections."""
    return flows.filter(pc.is_in(flows["key"], pa.array(sorted(keys), pa.binary(36))))


def first_seen(flows: pa.Table) -> dict[bytes, int]:
    """The endpoints of connections, and the time of the first packet of each."""
    found: dict[bytes, int] = {}
    for key, ts in zip(flows["key"].to_pylist(), flows["ts_first_ns"].to_pylist()):
        found[key] = min(ts, found.get(key, ts))
    return found


def tunnel_keys(flows: pa.Table, with_tls: bool) -> set[bytes]:
    """The endpoints of connections with RTMPT; `with_tls` adds those that may carry it inside TLS."""
    wanted = pc.or_(flows["tunnel"], flows["tls"]) if with_tls else flows["tunnel"]
    return set(flows.filter(wanted)["key"].to_pylist())


def keys_of_one_server(keys: Iterable[bytes]) -> list[list[bytes]]:
    """Connections that must be decoded together: an RTMPT session may use several connections to its server."""
    servers: dict[bytes, list[bytes]] = {}
    for key in keys:
        for end in ends_of_key(key):  # the client's endpoint occurs in one key only
            servers.setdefault(end, []).append(key)
    return [sorted(found) for found in servers.values() if len(found) > 1]


def groups_of_keys(flows: pa.Table, keys: Collection[bytes]) -> dict[bytes, int]:
    if not keys:
        return {}
    found = of_keys(flows, keys)
    return dict(zip(found["key"].to_pylist(), found["group"].to_pylist()))
