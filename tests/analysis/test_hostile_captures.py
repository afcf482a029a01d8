"""Captures that try to cost more than they weigh: twice the size costs at most 2.3 times the work and the memory.

Work is counted in executed lines, not in seconds. bench/hostile.py measures CPU time at larger sizes.
"""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from kit.decoded_tables import redacting
from kit.hostile_captures import (
    FAMILIES,
    amf0_references,
    many_csids,
    many_streams,
    one_packet_flows,
    overlaps_delivered,
    pcap,
    syns,
    tiny_connections,
)

from rtmp_spark.analysis.recording import ALL_TABLES, Recording

RATIO = 2.3
FEW_LINES, FEW_BYTES = 20_000, 500_000  # below this growth, a ratio says nothing
PART = {  # of the size that the benchmark uses, where a fortieth says too little or takes too long
    "syns": 1 / 400, "syn_scans": 1 / 100, "one_packet_flows": 1 / 100,
    "one_packet_flows_of_any_bytes": 1 / 200, "many_streams_with_commands": 1 / 20, "pcapng_byte_orders": 1 / 100,
    "tiny_connections": 1 / 250, "one_byte_chunks": 1 / 200, "many_streams": 1 / 20, "many_played_streams": 1 / 20,
    "overlaps_after_a_hole": 1 / 10, "overlaps_backwards": 1 / 10, "rtmpt_sessions": 1 / 20,
    "one_byte_messages": 1 / 200, "empty_messages": 1 / 200, "findings": 1 / 100, "backward_timestamps": 1 / 200,
    "identical_frames": 1 / 120, "pings": 1 / 80, "chunk_size_changes": 1 / 80, "silent_connections": 1 / 100,
    "resynchronisations": 1 / 80, "random_after_gaps": 1 / 80, "aborted_messages": 1 / 80,
}  # fmt: skip


class Cost(NamedTuple):
    lines: int
    peak: int


def cost(path: Path, data: bytes) -> Cost:
    """Lines executed and the peak of memory while a capture is analysed into all tables."""
    path.write_bytes(data)
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    tracemalloc.start()
    before, tracer = tracemalloc.get_traced_memory()[0], sys.gettrace()
    sys.settrace(count)
    try:
        for _ in Recording([path], redacting(), ALL_TABLES).batches():
            pass
    finally:
        sys.settrace(tracer)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
    return Cost(lines, peak)


@pytest.mark.parametrize("name", FAMILIES)
def test_twice_the_size_costs_at_most_twice_as_much(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    n = int(family.n * PART.get(name, 1 / 40))
    path = tmp_path / "hostile.pcap"
    base = cost(path, pcap([]))
    family_base = cost(path, family.make(1))  # imports, caches
    one, two = (cost(path, family.make(size)) for size in (n, 2 * n))
    least = min(base.lines, family_base.lines)
    assert two.lines - least < max(RATIO * (one.lines - least), FEW_LINES)
    assert two.peak < max(RATIO * one.peak, one.peak + FEW_BYTES)


@pytest.mark.parametrize(("make", "n", "bytes_each"), [(syns, 20_000, 1200), (one_packet_flows, 20_000, 1500)])
def test_a_flow_of_one_packet_is_no_object(make: Any, n: int, bytes_each: int, tmp_path: Path) -> None:
    path = tmp_path / "flows.pcap"
    path.write_bytes(make(n))
    tracemalloc.start()
    for _ in Recording([path], redacting(), ALL_TABLES).batches():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000 + n * bytes_each  # one window of the file, and the flows


def test_16_mb_announced_on_60000_csids(tmp_path: Path) -> None:
    path = tmp_path / "csids.pcap"
    path.write_bytes(many_csids(60_000))
    tracemalloc.start()
    for _ in Recording([path], redacting(), ALL_TABLES).batches():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_rows_of_references_stay_small(tmp_path: Path) -> None:
    path = tmp_path / "references.pcap"
    path.write_bytes(amf0_references(50))
    args = [
        text
        for _, batch in Recording([path], redacting(), ["commands"]).batches()
        for text in batch.column("args").to_pylist()
    ]
    assert len(args) >= 50
    assert max(map(len, args)) < 3000


def test_commands_of_many_streams_stay_small(tmp_path: Path) -> None:
    path = tmp_path / "streams.pcap"
    path.write_bytes(many_streams(800))
    tracemalloc.start()
    for _ in Recording([path], redacting(), ["commands"]).batches():
        pass
    kept = tracemalloc.get_traced_memory()[0]  # with what the caches hold
    tracemalloc.stop()
    assert kept < 5 << 20


def test_tiny_connections_are_all_found(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pcap"
    path.write_bytes(tiny_connections(300))
    batches = Recording([path], redacting(), ["connections"]).batches()
    rows = sum(batch.num_rows for table, batch in batches if table == "connections")
    assert rows == 300


def test_every_conflict_is_counted_beyond_those_reported_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "conflicts.pcap"
    path.write_bytes(overlaps_delivered(1500))
    rows = [row for _, batch in Recording([path], redacting(), ["findings"]).batches() for row in batch.to_pylist()]
    assert sum(row["count"] for row in rows if row["rule_id"] == "TCP_CONFLICT") == 1500
