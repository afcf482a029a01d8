"""Reading a lake without Spark: pyarrow, DuckDB, Polars, pandas and deltalake see the same published rows."""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from kit.lake_rows import made_rows, publish_rows

from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import RESUMED, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.schema import TABLES, arrow_schema
from rtmp_spark.views import VIEWS


def test_every_table_is_a_dataset_with_the_columns_of_the_schema(lake: Location) -> None:
    publish_rows(lake, {name: made_rows(name, "C1", 2) for name in TABLES})
    for name, dataset in open_lake(lake).tables().items():
        assert dataset.schema.names == arrow_schema(name).names
        expected = made_rows(name, "C1", 2).drop_columns(["ingest_id"])
        assert (
            dataset.to_table(columns=expected.schema.names)
            .sort_by("uid" if name != "captures" else "path")
            .equals(expected)
        ), name
    assert open_lake(lake).messages.count_rows() == 2


def test_an_empty_lake_has_empty_tables(lake: Location) -> None:
    for name, dataset in open_lake(lake).tables().items():
        assert dataset.to_table().num_rows == 0 and dataset.schema.names == arrow_schema(name).names


def test_an_unknown_table_is_an_attribute_error(lake: Location) -> None:
    for name in ("mesages", "_ingests"):
        with pytest.raises(AttributeError):
            getattr(open_lake(lake), name)


def test_duckdb_polars_pandas_and_deltalake_read_the_same(lake: Location) -> None:
    for number in range(3):
        publish_rows(lake, {"messages": made_rows("messages", f"C{number}", 4)})
    found = open_lake(lake)
    messages = found.messages
    expected = [("C1", n) for n in range(4)]
    rows = duckdb.sql("SELECT uid, msg_no FROM messages WHERE uid = 'C1' ORDER BY msg_no").fetchall()
    assert rows == expected
    one = pl.col("uid") == "C1"
    for frame in (pl.scan_pyarrow_dataset(messages), pl.scan_delta(lake.table("messages"))):
        assert frame.filter(one).select("uid", "msg_no").sort("msg_no").collect().rows() == expected
    assert messages.to_table().to_pandas().query("uid == 'C1'")["msg_no"].tolist() == [0, 1, 2, 3]
    version = found.published.versions["messages"]
    delta = DeltaTable(lake.table("messages"), version=version).to_pyarrow_dataset()
    assert delta.to_table().sort_by([("uid", "ascending"), ("msg_no", "ascending")]).num_rows == 12


def test_every_view_runs_over_the_datasets_in_duckdb(lake: Location) -> None:
    publish_rows(lake, {name: made_rows(name, "C1", 2) for name in TABLES})
    connection = duckdb.connect()
    for name, dataset in open_lake(lake).tables().items():
        connection.register(name, dataset)
    for name, view in VIEWS.items():
        connection.execute(f"CREATE TEMPORARY VIEW {name} AS {view.query}")
        connection.execute(f"SELECT * FROM {name}").fetchall()


def test_tables_taken_before_an_ingest_do_not_change(lake: Location) -> None:
    publish_rows(lake, {"connections": made_rows("connections", "C1")})
    held = open_lake(lake)
    before = held.connections
    with open_writer(lake) as writer:
        files = [write_rows(writer.target, "connections", made_rows("connections", "C1", app="later"))]
        writer.replace("connections", pc.field("uid") == "C1")
        writer.publish(files)
    assert before.to_table()["app"].to_pylist() == held.connections.to_table()["app"].to_pylist() == ["app"]
    assert held.streams.count_rows() == 0
    assert held.refresh().ingest_id == 2
    assert held.connections.to_table()["app"].to_pylist() == ["later"]
    assert before.to_table()["app"].to_pylist() == ["app"]


def test_unpublished_commits_are_invisible(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages", "C1")})
    versions = open_lake(lake).published.versions
    DeltaTable(lake.table("messages")).delete()
    assert DeltaTable(lake.table("messages")).to_pyarrow_dataset().count_rows() == 0
    assert open_lake(lake).messages.count_rows() == 1 and open_lake(lake).published.versions == versions


def opened(lake: Location, uid: str) -> int:
    """Files of `messages` that a read of one connection opens."""
    return len(list(open_lake(lake).messages.get_fragments(filter=pc.field("uid") == uid)))


def test_reading_one_connection_opens_few_files(lake: Location) -> None:
    """200 ingests, one connection open throughout: its rows are in files of their own."""
    count = 200
    for number in range(count):
        with open_writer(lake) as writer:
            new = made_rows("messages", f"C5{number:04d}")
            more = made_rows("messages", "C0long", first=number)
            writer.publish([
                write_rows(writer.target, "messages", new),
                write_rows(writer.target, "messages", more, kind=RESUMED),
            ])  # fmt: skip
    some = [f"C5{number:04d}" for number in range(0, count, 20)]
    assert max(opened(lake, uid) for uid in some) == 1 and opened(lake, "C0long") == count
    compact(lake)
    assert max(opened(lake, uid) for uid in ["C0long", *some]) <= 3
    rows = open_lake(lake).messages.to_table(filter=pc.field("uid") == "C0long")
    assert rows["msg_no"].to_pylist() == list(range(count)), "sorted by time"


def test_files_are_skipped_by_time_and_by_null(lake: Location) -> None:
    for number in range(3):
        publish_rows(lake, {"messages": made_rows("messages", f"C{number}", 1, first=100 * number)})
    messages = open_lake(lake).messages
    late = max(messages.to_table()["ts_first"].to_pylist())
    wanted = pc.field("ts_first") >= pa.scalar(late, pa.timestamp("us", "UTC"))
    assert len(list(messages.get_fragments(filter=wanted))) == 1
    assert len(list(messages.get_fragments(filter=pc.field("uid").is_null()))) == 0
