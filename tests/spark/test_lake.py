"""A lake as DataFrames and views: one published moment, which later ingests do not change."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from kit.in_process_ingest import ingest_in_process, lake_rows
from pyspark.sql import SparkSession

from rtmp_spark.lake.sql import connect, query
from rtmp_spark.schema import TABLES
from rtmp_spark.spark import Lake
from rtmp_spark.views import VIEWS

CAPTURES_WITH_ROWS_IN_EVERY_VIEW = (
    "denied_and_unknown_app.pcap",
    "ffmpeg_publish_bframes_rtmpdump_play.pcap",
    "capture_gap_lost_packets.pcap",
)


@pytest.fixture
def rotated(sample_pcaps: Path) -> list[Path]:
    """One connection in three files."""
    return sorted(sample_pcaps.glob("rotated_*_0?.pcap"))


def test_what_was_opened_before_an_ingest_keeps_its_rows(
    spark: SparkSession, rotated: list[Path], tmp_path: Path
) -> None:
    """The second ingest resumes the connection of the first and replaces its rows."""
    path = tmp_path / "lake"
    ingest_in_process(path, rotated[:1])
    lake = Lake(spark, str(path))
    names = ("connections", "streams", "intervals", "messages")
    frames = lake.tables(names)
    lake.create_views()
    before = {name: len(lake_rows(path, name)) for name in names}
    assert all(before.values())
    assert ingest_in_process(path, rotated[1:]).resumed == 1
    assert {name: frame.count() for name, frame in frames.items()} == before
    assert {name: spark.table(name).count() for name in names} == before
    assert lake.messages.count() == before["messages"]
    lake.refresh()
    lake.create_views()
    after = {name: len(lake_rows(path, name)) for name in names}
    assert after["messages"] > before["messages"]
    assert {name: lake.table(name).count() for name in names} == after
    assert {name: spark.table(name).count() for name in names} == after


@pytest.mark.slow
def test_views_in_a_catalog(spark: SparkSession, rotated: list[Path], tmp_path: Path) -> None:
    """They show the published version until they are created again."""
    path = tmp_path / "lake with a ` and 'quotes'"
    ingest_in_process(path, rotated[:1])
    lake = Lake(spark, str(path))
    try:
        described = lake.register("rtmp")
        assert set(described) == {*TABLES, *VIEWS}
        before = len(lake_rows(path, "messages"))
        assert spark.sql("SELECT count(*) FROM rtmp.messages").first()[0] == before  # type: ignore[index]
        ingest_in_process(path, rotated[1:])
        assert spark.sql("SELECT count(*) FROM rtmp.messages").first()[0] == before  # type: ignore[index]
        lake.refresh()
        lake.register("rtmp")
        after = len(lake_rows(path, "messages"))
        assert spark.sql("SELECT count(*) FROM rtmp.messages").first()[0] == after > before  # type: ignore[index]
        lake.published.published.versions.pop("payloads")  # as in a lake that is older than the table
        lake.register("rtmp")
        assert spark.sql("SELECT payload FROM rtmp.payloads").collect() == []
        for name in VIEWS:
            spark.table(f"rtmp.{name}").limit(1).collect()
    finally:
        spark.sql("DROP SCHEMA IF EXISTS rtmp CASCADE")


def test_every_view_returns_the_same_rows_in_spark_and_in_duckdb(
    spark: SparkSession, sample_pcaps: Path, tmp_path: Path
) -> None:
    """Also the same types: a view that returns a Decimal in one of them only is a trap for its readers."""
    path = tmp_path / "lake"
    ingest_in_process(path, [sample_pcaps / name for name in CAPTURES_WITH_ROWS_IN_EVERY_VIEW])
    for side in ("client", "server"):  # for `paths`
        ingest_in_process(path, [sample_pcaps / f"lossy_mtu1500_{side}_side.pcap"], sensor=side)
    lake = Lake(spark, str(path))
    lake.create_views()
    in_duckdb = connect(lake.published.tables())
    for name in (*VIEWS, *TABLES):
        text = f"SELECT * FROM {name}"
        rows = [spark.sql(text).toArrow().to_pylist(), query(in_duckdb, text).read_all().to_pylist()]
        first, second = (sorted(map(_comparable, found)) for found in rows)
        assert first == second, name
        assert first or name == "payloads", name


def _comparable(row: dict[str, Any]) -> str:
    """A row as text, with the type of every value. Only time zones have two names."""
    return repr({k: v.astimezone(timezone.utc) if isinstance(v, datetime) else v for k, v in row.items()})


def test_a_name_that_is_not_a_table(spark: SparkSession, rotated: list[Path], tmp_path: Path) -> None:
    ingest_in_process(tmp_path / "lake", rotated[:1])
    lake = Lake(spark, str(tmp_path / "lake"))
    with pytest.raises(AttributeError, match=r"Unknown table '\w+'\. Use one of captures, "):
        lake.table("nothing")
    assert not hasattr(lake, "nothing")
