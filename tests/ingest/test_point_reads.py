"""How many files of `messages` a query for one connection opens, in a lake where one connection stays open.

`tests/lake/test_reader.py` counts them in a lake of 200 ingests. This test shows that an ingest writes the rows of such
a connection into files of their own, on which that count depends.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
from kit import capture_rewriting
from kit.in_process_ingest import ingest_in_process, lake_rows

from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.reader import open_lake

INGESTS = 8
SHORT_PACKETS = 60
MINUTE_NS = 60_000_000_000


def opened_files(lake: Path, uid: str) -> int:
    return len(list(open_lake(lake).messages.get_fragments(filter=pc.field("uid") == uid)))


def test_a_point_read_opens_few_files(sample_pcaps: Path, tmp_path: Path) -> None:
    """One connection stays open through all ingests; each also brings a short connection of its own."""
    packets = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap")
    lake = tmp_path / "lake"
    for number in range(INGESTS):
        first, end = (len(packets) * n // INGESTS for n in (number, number + 1))
        port = 50_000 + number

        def moved(packet: capture_rewriting.Packet, port: int = port) -> capture_rewriting.Packet:
            sport, dport = (end if end == 1935 else port for end in (packet.sport, packet.dport))
            return replace(packet, sport=sport, dport=dport)

        together = [*packets[first:end], *map(moved, packets[:SHORT_PACKETS])]
        later = [replace(packet, ts_ns=packet.ts_ns + number * MINUTE_NS) for packet in together]
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(capture_rewriting.pcap(capture_rewriting.build(sorted(later, key=lambda p: p.ts_ns))))
        ingest_in_process(lake, [path])
    long, *short = sorted(row["uid"] for row in lake_rows(lake, "connections"))
    assert len(short) == INGESTS
    brought = {row["ingest_id"] for row in lake_rows(lake, "messages") if row["uid"] == long}
    assert brought >= set(range(2, INGESTS + 1)), "the first capture has only its handshake"
    assert max(opened_files(lake, uid) for uid in short) <= 3
    compact(locate(lake))
    assert max(opened_files(lake, uid) for uid in [long, *short]) <= 3
