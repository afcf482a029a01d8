"""The TCP connections of a split, with their packets and bytes: what the driver needs to know of its packets.

Connections are put into groups by a hash of their endpoints. A group is the least that a bucket decodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from rtmp_spark.capture.packet_block import Ints, rows_at
from rtmp_spark.capture.packets.connection_groups import group as group_flows
from rtmp_spark.capture.packets.tcp_segments import Segments

GROUPS = 256

FLOWS = pa.schema(
    [
        pa.field("group", pa.int32()),
        pa.field("key", pa.binary(36)),
        pa.field("packets", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("ts_first_ns", pa.int64()),
        pa.field("ts_last_ns", pa.int64()),
        pa.field("tunnel", pa.bool_()),  # has an RTMPT request: its session may continue on other connections
        pa.field("tls", pa.bool_()),  # has a ClientHello: decrypted, it may turn out to be RTMPT
        pa.field("split_id", pa.int64()),
    ]
)
_POST = b"POST /"
_REQUEST = re.compile(rb"POST /(open|send|idle|close|fcs)/")
_RECORD = b"\x16\x03"
_HELLO = re.compile(rb"\x16\x03[\x00-\x04]..\x01", re.DOTALL)


@dataclass(slots=True)
class _Totals:
    """Of one connection in one split."""

    group: int
    packets: int
    bytes: int
    ts_first_ns: int
    ts_last_ns: int


class FlowIndex:
    """Counts the packets of a split by connection."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._totals: list[_Totals] = []
        self._tunnels: set[int] = set()
        self._tls: set[int] = set()

    def add(self, segments: Segments) -> Ints:
        """Add the segments of one window; returns the group of each."""
        if not len(segments):
            return np.zeros(0, np.int64)
        flows = group_flows(segments)
        sizes = segments.length[flows.order]
        times = segments.ts_ns[flows.order]
        ends = np.append(flows.starts[1:], len(flows.order))
        bytes_of = np.add.reduceat(sizes, flows.starts)
        low, high = np.minimum.reduceat(times, flows.starts), np.maximum.reduceat(times, flows.starts)
        numbers, groups = np.empty((2, len(flows.keys)), np.int64)
        for i, key in enumerate(flows.keys):
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._totals)
                self._totals.append(_Totals(group_of_key(key), 0, 0, int(low[i]), int(high[i])))
            numbers[i] = number
            totals = self._totals[number]
            groups[i] = totals.group
            totals.packets += int(ends[i] - flows.starts[i])
            totals.bytes += int(bytes_of[i])
            totals.ts_first_ns = min(totals.ts_first_ns, int(low[i]))
            totals.ts_last_ns = max(totals.ts_last_ns, int(high[i]))
        number_of, group_of = np.empty((2, len(flows.order)), np.int64)
        number_of[flows.order] = numbers[flows.group]
        group_of[flows.order] = groups[flows.group]
        self._tunnels.update(number_of[_beginning_with(segments, _POST, _REQUEST)].tolist())
        self._tls.update(number_of[_beginning_with(segments, _RECORD, _HELLO)].tolist())
        return group_of

    def rows(self, split_id: int) -> Iterator[tuple[Any, ...]]:
        """Schema FLOWS."""
        for i, (key, t) in enumerate(zip(self._numbers, self._totals)):
            tunnel, tls = i in self._tunnels, i in self._tls
            yield t.group, key, t.packets, t.bytes, t.ts_first_ns, t.ts_last_ns, tunnel, tls, split_id


def _beginning_with(segments: Segments, word: bytes, pattern: re.Pattern[bytes]) -> list[int]:
    """The segments whose payload begins with a pattern; `word` is its constant beginning, compared in columns first."""
    long = np.flatnonzero(segments.length >= len(word))
    if not len(long):
        return []
    likely = (rows_at(segments.data, segments.start[long], len(word)) == np.frombuffer(word, np.uint8)).all(axis=1)
    return [i for i in long[likely].tolist() if pattern.match(segments.data, int(segments.start[i]))]


def group_of_key(key: bytes) -> int:
    return crc32(key) % GROUPS


def ends_of_key(key: bytes) -> tuple[bytes, bytes]:
    """The two endpoints of a connection key."""
    return key[:18], key[18:]
