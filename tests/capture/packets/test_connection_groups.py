"""Grouping of segments by connection, also where the hashes of two connections are equal."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from rtmp_spark.capture.packets.connection_groups import group, select_groups
from rtmp_spark.capture.packets.tcp_segments import Segments


def from_ports(sport: list[int], dport: list[int]) -> Segments:
    """Segments between two hosts."""
    count = len(sport)
    columns = {field.name: np.zeros(count, np.int64) for field in fields(Segments) if field.name != "data"}
    columns |= {"sport": np.array(sport, np.int64), "dport": np.array(dport, np.int64), "frame": np.arange(count)}
    low, high = np.zeros((count, 16), np.uint8), np.full((count, 16), 1, np.uint8)
    return Segments(b"", **(columns | {"src": low, "dst": high}))


def ports(keys: list[bytes]) -> list[tuple[int, int]]:
    return [(int.from_bytes(key[16:18], "big"), int.from_bytes(key[34:36], "big")) for key in keys]


def test_connections_with_equal_hashes_stay_apart() -> None:
    every = [(sport, dport) for sport in range(1, 600) for dport in range(1, 600)]  # of so many, about 15 pairs collide
    flows = group(from_ports(*map(list, zip(*every))))
    assert ports(flows.keys) == every
    assert flows.order.tolist() == list(range(len(every)))


def test_groups_are_in_the_order_of_their_first_packets() -> None:
    flows = group(from_ports([9, 7, 9, 8, 7], [1, 1, 1, 1, 1]))
    assert ports(flows.keys) == [(9, 1), (7, 1), (8, 1)]
    assert flows.order.tolist() == [0, 2, 1, 4, 3]
    assert flows.starts.tolist() == [0, 2, 4]


def test_selected_groups_are_the_groups_of_the_selected_segments() -> None:
    segments = from_ports([9, 7, 9, 8, 7, 6], [1, 1, 1, 1, 1, 1])
    chosen, flows = select_groups(segments, group(segments), np.array([True, False, True, True]))
    assert chosen.frame.tolist() == [0, 2, 3, 5]
    for own, again in zip(flows, group(chosen), strict=True):
        assert list(own) == list(again)
