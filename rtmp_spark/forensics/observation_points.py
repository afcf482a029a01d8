"""Finds the connections that were captured at two sensors, and what the network did between them: rows of `paths`.

Two connections are the same one if their addresses and ports are equal and they are of the same time. If a router
changed the addresses, the lengths of both byte streams must be equal, and no other connection of that time may have
them. In both cases the messages must be the same, by their checksums.

A message passes the sensors at two times. In one direction the difference is the delay plus the offset of the clocks,
in the other direction the delay minus the offset: the fastest message of each direction gives the offset, if both
directions are equally fast. Their sum does not depend on the clocks and tells which sensor is nearer to the client.

What was lost between the sensors is the difference of what passed them, without copies of packets. The functions are
pure: the rows come from a recording or from a lake.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.conversation.facts import Row
from rtmp_spark.forensics.findings import NETWORK
from rtmp_spark.forensics.thresholds import (
    LOSS_INFO,
    PATH_CLOCK_US,
    PATH_COVERED_US,
    PATH_MESSAGES,
    PATH_SHARE,
    PATH_TRANSLATED_SHARE,
)
from rtmp_spark.schema import DIRECTIONS

# Rules that compare connections: their findings change when others are added, what a path shows does not.
NOT_OF_ONE_CONNECTION = (ViolationCode.SESSION_PERIODIC.value, ViolationCode.SESSION_BAD_NAME.value)
_start = attrgetter("ts_start")
Keys = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]


class Passed(NamedTuple):
    """What passed a sensor in one direction, without copies of packets."""

    packets: int
    size: int  # payload bytes
    length: int  # of the byte stream
    missed: int  # bytes of the stream that the capture does not have


class SeenConnection(NamedTuple):
    """A connection at one sensor."""

    uid: str
    sensor: str
    ends: tuple[str, int, str, int]  # address and port of the client and of the server
    ts_start: int
    ts_end: int
    whole: bool  # captured from its first packet to its last
    passed: Mapping[str, Passed]  # by direction
    blamed: frozenset[str]  # who is at fault in its errors and warnings


class SeenMessages(NamedTuple):
    """The messages of one direction at one sensor, in order."""

    keys: Keys  # equal for equal messages
    times: Times  # microseconds

    @classmethod
    def of(cls, crc32: Times, length: Times, timestamp: Times, times: Times) -> SeenMessages:
        """The columns of `messages`."""
        content = crc32.astype(np.uint64) << np.uint64(32) | length.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        return cls(content * np.uint64(0x9E3779B97F4A7C15) ^ timestamp.astype(np.uint64), times)


class Pair(NamedTuple):
    """Two connections that may be the same one."""

    one: SeenConnection
    other: SeenConnection
    translated: bool  # their addresses or ports differ


def possible_pairs(connections: Sequence[SeenConnection]) -> list[Pair]:
    """The pairs whose messages are worth a comparison; each pair once."""
    by_ends: dict[object, list[SeenConnection]] = {}
    by_lengths: dict[object, dict[str, list[SeenConnection]]] = {}
    ordered = sorted(connections, key=attrgetter("ts_start", "sensor", "uid"))
    for one in ordered:
        by_ends.setdefault(one.ends, []).append(one)
    found = [Pair(*pair, False) for group in by_ends.values() for pair in _overlapping(group)]
    paired = {(one.uid, other.sensor) for pair in found for one, other in (pair[:2], pair[1::-1])}
    for one in ordered:
        lengths = tuple(one.passed[d].length for d in DIRECTIONS)
        if one.whole and all(lengths):
            by_lengths.setdefault(lengths, {}).setdefault(one.sensor, []).append(one)
    for sensors in by_lengths.values():
        for first, second in combinations(sorted(sensors), 2):
            mine = [one for one in sensors[first] if (one.uid, second) not in paired]
            others = [one for one in sensors[second] if (one.uid, first) not in paired]
            back = {one.uid: near for one in others if (near := _only_one_near(one, mine)) is not None}
            for one in mine:
                other = _only_one_near(one, others)
                if other is not None and back.get(other.uid) is one:
                    found.append(Pair(one, other, True))
    return found


def _overlapping(group: Sequence[SeenConnection]) -> Iterator[tuple[SeenConnection, SeenConnection]]:
    """Pairs of different sensors that are of the same time; the group is in the order of time."""
    for number, one in enumerate(group):
        for other in group[number + 1 :]:
            if other.ts_start > one.ts_end + PATH_CLOCK_US:
                break
            if one.sensor != other.sensor:
                yield one, other


def _only_one_near(one: SeenConnection, others: Sequence[SeenConnection]) -> SeenConnection | None:
    """The connection that began at the same time, if there is only one; `others` are in the order of time."""
    first = bisect_left(others, one.ts_start - PATH_CLOCK_US, key=_start)
    last = bisect_right(others, one.ts_start + PATH_CLOCK_US, key=_start)
    return others[first] if last - first == 1 else None


def path_row(pair: Pair, one: Mapping[str, SeenMessages], other: Mapping[str, SeenMessages]) -> Row | None:
    """The row of `paths`; None if the two connections have different messages. Messages are given by direction."""
    later = {d: _differences(one[d], other[d]) for d in DIRECTIONS if d in one and d in other}
    common = sum(map(len, later.values()))
    counts = [sum(len(messages.keys) for messages in side.values()) for side in (one, other)]
    least = PATH_TRANSLATED_SHARE * max(counts) if pair.translated else PATH_SHARE * min(counts)
    if common < max(PATH_MESSAGES, least):
        return None
    a, b = pair.one, pair.other
    up, down = (later.get(d, np.empty(0, np.int64)) for d in DIRECTIONS)
    offset = p50 = p95 = None
    if len(up) and len(down):
        if up.min() - down.max() < 0:  # the fastest message in each direction: together the time from a to b and back
            a, b, up, down = b, a, -up, -down
        offset_us = (up.min() + down.max()) / 2
        delays = np.concatenate([up - offset_us, offset_us - down]) / 1000
        p50, p95 = (round(float(value), 3) for value in np.percentile(delays, (50, 95)))
        offset = round(float(offset_us) / 1000, 3)
    lost = _losses(a, b, offset)
    return (
        a.uid, a.uid, b.uid, a.sensor, b.sensor, offset, p50, p95,
        *(lost[d][0] for d in DIRECTIONS), *(lost[d][1] for d in DIRECTIONS), _verdict(a, b, lost),
    )  # fmt: skip


def _differences(one: SeenMessages, other: SeenMessages) -> Times:
    """For every message that both have: its time at the second sensor minus its time at the first."""
    keys, index = np.unique(one.keys, return_index=True)
    others, other_index = np.unique(other.keys, return_index=True)
    _, at, other_at = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
    found: Times = other.times[other_index[other_at]] - one.times[index[at]]
    return found


Lost = tuple[int | None, int | None]  # packets and bytes


def _losses(a: SeenConnection, b: SeenConnection, offset_ms: float | None) -> dict[str, Lost]:
    """What left the first sensor on the way and did not reach the second; None if the recordings do not say."""
    if offset_ms is None:
        return dict.fromkeys(DIRECTIONS, (None, None))
    offset = offset_ms * 1000
    apart = max(abs(b.ts_start - a.ts_start - offset), abs(b.ts_end - a.ts_end - offset))
    if not (a.whole and b.whole) and apart > PATH_COVERED_US:
        return dict.fromkeys(DIRECTIONS, (None, None))
    found: dict[str, Lost] = {}
    for direction, sent, received in (("c2s", a, b), ("s2c", b, a)):
        left, reached = sent.passed[direction], received.passed[direction]
        size = max(left.size + left.missed - reached.size - reached.missed, 0)
        # How many packets a capture has missed is not known.
        packets = None if left.missed or reached.missed else max(left.packets - reached.packets, 0)
        found[direction] = packets, size
    return found


def _verdict(a: SeenConnection, b: SeenConnection, lost: Mapping[str, Lost]) -> str:
    """Loss between the sensors is the network's; without it, whom the findings of both sensors blame."""
    for direction, sent in (("c2s", a), ("s2c", b)):
        left = sent.passed[direction]
        for count, of in zip(lost[direction], (left.packets, left.size)):
            if count is not None and of and count / of >= LOSS_INFO:
                return NETWORK
    blamed = (a.blamed & b.blamed) & {"client", "server", NETWORK}
    if len(blamed) == 1 and lost["c2s"] != (None, None):
        return next(iter(blamed))
    return "unknown"
