"""A disk that is full and one that may not be written any more: what landed is said, and the next run completes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import TABLES
from rtmp_spark.spark import Lake, ingest, pipeline

FIRST, SECOND = "ffmpeg_publish_g711mu_audio_only.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap"


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system of our own can be mounted: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def counts(lake: Path) -> dict[str, int]:
    """As any Delta reader sees it: nothing twice, nothing left of what failed."""
    return {name: deltalake.DeltaTable(str(lake / name)).to_pyarrow_table().num_rows for name in TABLES}


@pytest.fixture(scope="module")
def begun(spark: SparkSession, sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that has the first capture, to be copied."""
    lake = tmp_path_factory.mktemp("faults") / "begun"
    ingest(spark, [str(sample_pcaps / FIRST)], str(lake))
    return lake


@pytest.fixture(scope="module")
def expected(spark: SparkSession, begun: Path, sample_pcaps: Path) -> dict[str, int]:
    lake = shutil.copytree(begun, begun.with_name("expected"))
    ingest(spark, [str(sample_pcaps / SECOND)], str(lake))
    return counts(lake)


def test_a_full_disk(
    spark: SparkSession, sample_pcaps: Path, disk: Path, begun: Path, expected: dict[str, int]
) -> None:
    """Without room for anything, and with room for the first tables."""
    lake = shutil.copytree(begun, disk / "lake")
    filler = disk / "filler"
    free = os.statvfs(disk)
    for room in (0, 1 << 16):
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - room))
        with pytest.raises(UserError, match="nothing of it landed") as caught:
            ingest(spark, [str(sample_pcaps / SECOND)], str(lake))
        assert caught.value.exit_code == 3 and "No space left" in str(caught.value)
        assert Lake(spark, str(lake)).captures.count() == 1
    filler.unlink()
    ingest(spark, [str(sample_pcaps / SECOND)], str(lake))
    assert counts(lake) == expected


def test_permission_lost_in_mid_run(
    spark: SparkSession,
    sample_pcaps: Path,
    tmp_path: Path,
    begun: Path,
    expected: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One table becomes read-only when others are written already."""
    lake = shutil.copytree(begun, tmp_path / "lake")
    table = str(lake / "findings")

    def lose(name: str) -> None:
        if name == "between tables":
            mount("--bind", table, table)
            mount("-o", "remount,bind,ro", table)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "failpoint", lose)
            with pytest.raises(UserError, match="nothing of it landed"):
                ingest(spark, [str(sample_pcaps / SECOND)], str(lake))
        assert Lake(spark, str(lake)).captures.count() == 1
    finally:
        subprocess.run(["umount", "-l", table], check=False)
    ingest(spark, [str(sample_pcaps / SECOND)], str(lake))
    assert counts(lake) == expected


def test_names_are_data(spark: SparkSession, sample_pcaps: Path, tmp_path: Path) -> None:
    names = ["a'b\".pcap", "two\nlines.pcap", "\u202egpj.pcap", "%41 `x` $(y);.pcap"]
    for number, name in enumerate(names):  # different content, else they are duplicates
        (tmp_path / name).write_bytes((sample_pcaps / FIRST).read_bytes()[: 20_000 + number])
    summary = ingest(spark, [str(tmp_path)], str(tmp_path / "lake"))
    assert sorted(Path(path).name for path in summary.ingested) == sorted(names)
    found = [row["path"] for row in Lake(spark, str(tmp_path / "lake")).captures.select("path").collect()]
    assert sorted(Path(path).name for path in found) == sorted(names)
