"""What ingests of the same captures have in common, whatever lake they filled."""

from __future__ import annotations

from pathlib import Path

from kit.in_process_ingest import lake_rows

from rtmp_spark.schema import TABLES

VOLATILE = {"ingested_at", "ingest_id", "path", "modified_at"}  # columns that differ between ingests of one capture
Rows = dict[str, list[str]]


def comparable_rows(lake: Path) -> Rows:
    """The published rows of every table, sorted, without values that differ between ingests."""
    return {
        name: sorted(repr({k: v for k, v in row.items() if k not in VOLATILE}) for row in lake_rows(lake, name))
        for name in TABLES
        if name != "open_flows"
    }


def captures_of_many_kinds(sample_pcaps: Path) -> list[Path]:
    """Rotated, played, gzip, pcapng, with a gap, noise, truncated, several connections."""
    names = [
        *sorted(p.name for p in sample_pcaps.glob("rotated_*_0?.pcap")),
        "ffmpeg_publish_bframes_rtmpdump_play.pcap",
        "lossy_mtu1500_server_side.pcap",
        "garbage_on_1935.pcap",
        "file_cut_mid_record.pcap",
        "republish_same_name.pcap",
        *(p.name for p in (*sample_pcaps.glob("gzip_*"), *sample_pcaps.glob("pcapng_*.pcapng"))),
    ]
    return [sample_pcaps / name for name in names if (sample_pcaps / name).exists()]
