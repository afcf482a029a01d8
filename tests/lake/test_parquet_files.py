"""Files that executors write: names, order, kinds, and statistics that never make a reader skip a matching row."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from kit.lake_rows import START, made_rows, publish_rows

from rtmp_spark.lake import parquet_files
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.parquet_files import OPEN, BucketFiles, FileTarget, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.statistics import LONGEST_TEXT, column_ranges, parse_statistics
from rtmp_spark.schema import arrow_schema


def footer(location: Location, table: str, path: str) -> pq.FileMetaData:
    return pq.read_metadata(f"{location.uri}/{table}/{path}")


def test_rows_are_sorted_by_connection_and_time_and_stamped(lake: Location) -> None:
    mixed = pa.concat_tables([made_rows("messages", "C2", 2), made_rows("messages", "C1", 3)])
    shuffled = mixed.take(pa.array([4, 1, 3, 0, 2]))
    file = write_rows(FileTarget(lake, 7), "messages", shuffled)
    rows = pq.read_table(f"{lake.uri}/messages/{file.path}")
    assert rows["uid"].to_pylist() == ["C1", "C1", "C1", "C2", "C2"]
    assert rows["msg_no"].to_pylist() == [0, 1, 2, 0, 1]
    assert set(rows["ingest_id"].to_pylist()) == {7}
    assert (file.rows, file.size) == (5, Path(lake.table("messages"), file.path).stat().st_size)


def test_a_retried_task_writes_other_names(lake: Location) -> None:
    target = FileTarget(lake, 3)
    first, second = (write_rows(target, "messages", made_rows("messages"), bucket=12) for _ in range(2))
    assert first.path != second.path
    assert first.path.startswith("part-00000003-00012-") and first.path.endswith(".zstd.parquet")


def test_a_bucket_gives_one_file_for_each_table_and_kind(lake: Location) -> None:
    files = BucketFiles(FileTarget(lake, 1), bucket=0)
    for number in range(5):
        files.add("messages", made_rows("messages", f"C{number}"))
        files.add("connections", made_rows("connections", f"C{number}").to_batches()[0], OPEN)
    files.add("findings", arrow_schema("findings").empty_table())
    written = files.finish()
    assert {(f.table, f.path.partition("-")[0], f.rows) for f in written} == {
        ("messages", "part", 5),
        ("connections", "open", 5),
    }


def test_many_rows_of_one_bucket_go_into_several_files(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "FLUSH_BYTES", 2_000)
    files = BucketFiles(FileTarget(lake, 1), bucket=0)
    for number in range(10):
        files.add("messages", made_rows("messages", f"C{number}", 3))
    written = files.finish()
    assert len(written) > 1 and sum(file.rows for file in written) == 30


def test_rows_that_do_not_fit_the_schema_are_refused(lake: Location) -> None:
    rows = made_rows("messages")
    for wrong in (
        rows.drop_columns(["length"]),
        rows.append_column("more", pa.array([1])),
        rows.set_column(0, "uid", pa.array([1])),
        rows.set_column(0, "uid", pa.array([None], pa.string())),
    ):
        with pytest.raises(ValueError, match=r"messages"):
            write_rows(FileTarget(lake, 1), "messages", wrong)
    write_rows(FileTarget(lake, 1), "messages", rows.drop_columns(["ingest_id"]))


def statistics_of(location: Location, table: str, rows: pa.Table) -> dict[str, dict[str, object]]:
    return dict(json.loads(write_rows(FileTarget(location, 1), table, rows).statistics))


def test_statistics_cover_the_columns_that_files_are_skipped_by(lake: Location) -> None:
    found = statistics_of(lake, "messages", made_rows("messages", "C1", 3))
    assert found["numRecords"] == 3
    assert found["minValues"] == {"uid": "C1", "ts_first": "2026-01-01T00:00:00.000000Z", "type_id": 0, "ingest_id": 1}
    assert found["maxValues"] == {"uid": "C1", "ts_first": "2026-01-01T00:00:02.000002Z", "type_id": 2, "ingest_id": 1}
    assert found["nullCount"] == {"uid": 0, "ts_first": 0, "type_id": 0, "ingest_id": 0}


def test_only_nulls_give_a_count_and_no_range(lake: Location) -> None:
    rows = made_rows("findings", "C1", 2)
    place = rows.schema.get_field_index("uid")
    found = statistics_of(lake, "findings", rows.set_column(place, rows.schema.field(place), pa.nulls(2, pa.string())))
    assert "uid" not in found["minValues"] and found["nullCount"]["uid"] == 2


@pytest.mark.parametrize("length", [31, 32, 33, 64, LONGEST_TEXT, LONGEST_TEXT + 1, 5_000, 70_000])
def test_a_long_text_is_found_by_every_reader(lake: Location, length: int) -> None:
    """A maximum cut to 32 bytes is smaller than the value: readers would skip the file."""
    name = "z" * length
    publish_rows(lake, {"commands": made_rows("commands", name=name)})
    found = open_lake(lake)
    stats = json.loads(first_add(lake, "commands")["stats"])
    assert stats["maxValues"].get("name") == (name if length <= LONGEST_TEXT else None)
    commands = found.commands
    assert commands.to_table(filter=pc.field("name") == name).num_rows == 1
    assert duckdb.sql(f"SELECT count(*) FROM commands WHERE name = '{name}'").fetchall() == [(1,)]
    assert pl.scan_delta(lake.table("commands")).filter(pl.col("name") == name).collect().height == 1
    table = DeltaTable(lake.table("commands"))
    query = f"SELECT count(*) AS n FROM t WHERE name = '{name}'"
    assert pa.table(QueryBuilder().register("t", table).execute(query).read_all())["n"].to_pylist() == [1]


def first_add(location: Location, table: str) -> dict[str, str]:
    lines = location.read(f"{table}/_delta_log/00000000000000000001.json")
    assert lines is not None
    return dict(next(json.loads(line)["add"] for line in lines.splitlines() if b'"add"' in line))


def test_the_microseconds_of_a_maximum_count(lake: Location) -> None:
    publish_rows(lake, {"commands": made_rows("commands", ts=START + timedelta(microseconds=999_999))})
    moment = "TIMESTAMP '2026-01-01 00:00:00.999500+00'"
    late = datetime(2026, 1, 1, microsecond=999_500, tzinfo=timezone.utc)
    commands = open_lake(lake).commands
    assert commands.to_table(filter=pc.field("ts") > pa.scalar(late, pa.timestamp("us", "UTC"))).num_rows == 1
    assert duckdb.sql(f"SELECT count(*) FROM commands WHERE ts > {moment}").fetchall() == [(1,)]
    assert pl.scan_delta(lake.table("commands")).filter(pl.col("ts") > late).collect().height == 1


def test_doubles_have_no_statistics_and_nan_is_null(lake: Location) -> None:
    rows = pa.concat_tables([made_rows("streams", fps=value) for value in (25.0, math.nan, None)])
    publish_rows(lake, {"streams": rows})
    found = open_lake(lake).streams.to_table()["fps"].to_pylist()
    assert sorted(found, key=repr) == [25.0, None, None]
    written = footer(lake, "streams", open_lake(lake).snapshot("streams").files[0].path)
    assert column_ranges(written, ["fps", "uid"]).keys() == {"uid"}


def test_nan_where_null_is_not_allowed_is_refused(lake: Location) -> None:
    with pytest.raises(ValueError, match="zero_window_ms"):
        write_rows(FileTarget(lake, 1), "intervals", made_rows("intervals", zero_window_ms=math.nan))


def test_one_row_group_without_statistics_leaves_the_column_out(tmp_path: Path) -> None:
    path = f"{tmp_path}/two_groups.parquet"
    rows = pa.table({"name": ["a", "b" * 100_000], "n": [1, 2], "empty": pa.array([None, "x"])})
    pq.write_table(rows, path, row_group_size=1)
    found = column_ranges(pq.read_metadata(path), ["name", "n", "empty"])
    assert "name" not in found
    assert found["n"] == (1, 2, 0) and found["empty"] == ("x", "x", 1)


def test_statistics_are_read_back_as_they_were(lake: Location) -> None:
    rows = made_rows("messages", "C1", 3)
    file = write_rows(FileTarget(lake, 1), "messages", rows)
    types = {c: arrow_schema("messages").field(c).type for c in ("uid", "ts_first", "type_id", "ingest_id")}
    found = parse_statistics(file.statistics, types)
    assert found["ts_first"][:2] == (rows["ts_first"][0].as_py(), rows["ts_first"][2].as_py())
    assert found["type_id"] == (0, 2, 0)


def test_a_file_holds_no_comments_and_no_arrow_schema(lake: Location) -> None:
    """They would make most of a small file; the Delta log has them."""
    file = write_rows(FileTarget(lake, 1), "messages", made_rows("messages"))
    written = footer(lake, "messages", file.path)
    assert not written.metadata
    assert written.row_group(0).column(0).compression == "ZSTD"
