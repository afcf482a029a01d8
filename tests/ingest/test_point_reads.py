"""How many files a query for one connection opens in a lake of many ingests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from kit import capture_rewriting
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake

INGESTS = 200
HOUR_NS = 3_600_000_000_000


def opened_files(lake: Path, uid: str) -> int:
    return len(list(open_lake(lake).messages.get_fragments(filter=pc.field("uid") == uid)))


@pytest.mark.slow
def test_a_point_read_opens_few_files(sample_pcaps: Path, tmp_path: Path) -> None:
    """One connection stays open through all ingests; each also brings a short connection of its own."""
    packets = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    lake = tmp_path / "lake"
    start = packets[0].ts_ns
    step = max(len(packets) // INGESTS, 1)
    for number in range(INGESTS):
        piece = packets[number * step : (number + 1) * step] if number < INGESTS - 1 else packets[number * step :]
        shift = number * HOUR_NS // 60
        long = [replace(p, ts_ns=p.ts_ns + shift) for p in piece]
        port = 50_000 + number

        def moved(p: capture_rewriting.Packet, port: int = port, shift: int = shift) -> capture_rewriting.Packet:
            ends = {1935: 1935}
            sport, dport = ends.get(p.sport, port), ends.get(p.dport, port)
            return replace(p, ts_ns=start + shift + (p.ts_ns - start), sport=sport, dport=dport)

        short = [moved(p) for p in packets[:60]]
        together = sorted([*long, *short], key=lambda p: p.ts_ns)
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(together)))
        ingest_in_process(lake, [path])
    uids = [row["uid"] for row in lake_rows(lake, "connections")]
    assert len(uids) > INGESTS // 2
    before = [opened_files(lake, uid) for uid in uids]
    assert max(sorted(before)[:-1]) <= 10  # all but the long one
    compact(locate(lake))
    after = [opened_files(lake, uid) for uid in uids]
    assert max(after) <= 3
