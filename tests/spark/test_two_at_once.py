"""Two simultaneous ingests of one capture into one lake publish its rows once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rtmp_spark.spark import Lake, Summary, ingest


def test_one_waits_for_the_other(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capture, path = str(sample_pcaps / "ffmpeg_publish_g711mu_audio_only.pcap"), str(tmp_path / "lake")

    def run(_: int) -> Summary:
        return ingest(spark, [capture], path)

    with ThreadPoolExecutor(2) as pool:
        landed, skipped = sorted(pool.map(run, range(2)), key=lambda summary: summary.known)
    assert landed.ingested == skipped.known == [capture] and not skipped.ingested
    assert "waiting for" in capfd.readouterr().err
    lake = Lake(spark, path)
    assert lake.captures.count() == 1
    assert lake.messages.count() == landed.rows["messages"] > 0
