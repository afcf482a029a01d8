"""Chooses which connections of a recording one of several processes takes.

Every process sees all packets and makes the same choices, so that they agree without talking to each other.
"""

from __future__ import annotations

import zlib

import numpy as np

from rtmp_spark.capture.packets.connection_groups import Flows, group, select_groups
from rtmp_spark.capture.packets.tcp_segments import Segments
from rtmp_spark.codec.limits import BRIEF_FLOW_PAYLOAD, SHARED_OUT_CONNECTIONS, UNDIVIDED_SHARE


class NotSeparable(Exception):
    """The connections of this recording must be analyzed by one process."""


def is_spread(segments: Segments) -> bool:
    """Whether the connections of a batch are worth sharing: none has most of the bytes, and most are not brief."""
    if not len(segments):
        return False
    flows = group(segments)
    sizes = np.add.reduceat(segments.length[flows.order] + 1, flows.starts)
    total = int(sizes.sum())
    return total > BRIEF_FLOW_PAYLOAD * len(sizes) and int(sizes.max()) <= UNDIVIDED_SHARE * total


class ConnectionShare:
    """The connections of process number `own` of `parts` processes. A new one goes to the process that has the fewest
    bytes of the current batch."""

    def __init__(self, own: int, parts: int) -> None:
        self.own, self.parts = own, parts
        self._part: dict[bytes, int] = {}  # by the key of a connection

    def select(self, segments: Segments, flows: Flows) -> tuple[Segments, Flows]:
        """The segments of the own connections, and their flows; `flows` are those of all segments."""
        sizes = np.add.reduceat(segments.length[flows.order] + 1, flows.starts).tolist()
        known = [self._part.get(key, -1) for key in flows.keys]
        loads = [0] * self.parts
        for part, size in zip(known, sizes):
            if part >= 0:
                loads[part] += size
        for number in sorted(range(len(known)), key=lambda n: -sizes[n]):
            if known[number] < 0:
                known[number] = part = self._choose(flows.keys[number], loads)
                loads[part] += sizes[number]
        return select_groups(segments, flows, np.array(known) == self.own)

    def _choose(self, key: bytes, loads: list[int]) -> int:
        if len(self._part) >= SHARED_OUT_CONNECTIONS:
            return zlib.crc32(key) % self.parts
        part = self._part[key] = loads.index(min(loads))
        return part

    def require(self, used: int, most: int) -> None:
        """Raise if all processes together may use more than `most`: what is dropped then depends on all of them."""
        if used * self.parts > most:
            raise NotSeparable
