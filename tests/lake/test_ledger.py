"""The ledger: its newest row is the state of the lake, for any number of rows."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.lake_rows import made_rows, publish_rows

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake import ledger as ledger_module
from rtmp_spark.lake.ledger import Batch, Ledger, Published
from rtmp_spark.lake.location import Location, locate


def publish_many(location: Location, count: int) -> None:
    ledger = Ledger(location)
    for _ in range(count):
        state = ledger.read()
        number = state.newest.ingest_id + 1
        ledger.append(state, Published(number, f"uuid{number}", {"messages": number}, summary=f"ingest {number}"))


def test_the_newest_row_is_the_state(lake: Location) -> None:
    publish_many(lake, 3)
    state = Ledger(lake).read()
    assert (state.newest.ingest_id, state.newest.versions, state.newest.summary) == (3, {"messages": 3}, "ingest 3")
    assert [row.ingest_id for row in Ledger(lake).history()] == [1, 2, 3]


def test_files_of_single_rows_are_merged(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MERGE_FROM", 4)
    publish_many(lake, 11)
    state = Ledger(lake).read()
    assert len(state.files) <= 4 and state.newest.ingest_id == 11
    assert [row.ingest_id for row in Ledger(lake).history()] == list(range(1, 12))
    assert [row.summary for row in Ledger(lake).history()] == [f"ingest {n}" for n in range(1, 12)]


def test_opening_reads_one_file_of_rows(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_many(lake, 12)
    read: list[str] = []
    real = pq.read_table

    def count(path: str, **options: object) -> pa.Table:
        read.append(path)
        return real(path, **options)

    monkeypatch.setattr(ledger_module.pq, "read_table", count)
    assert Ledger(lake).read().newest.ingest_id == 12
    assert len(read) == 1


def test_a_stale_ledger_cannot_publish(lake: Location) -> None:
    stale = Ledger(lake).read()
    publish_many(lake, 1)
    with pytest.raises(UserError, match="Another writer"):
        Ledger(lake).append(stale, Published(1, "mine", {"messages": 9}))
    assert Ledger(lake).read().newest.uuid == "uuid1"


def test_batches_of_streaming_queries_are_kept(lake: Location) -> None:
    ledger = Ledger(lake)
    for number, batch in enumerate([Batch("q", 0), Batch("q", 1), None, Batch("other", 7)], start=1):
        ledger.append(ledger.read(), Published(number, str(number), {}, batch=batch))
    assert (ledger.last_batch("q"), ledger.last_batch("other"), ledger.last_batch("none")) == (1, 7, None)


def test_the_ledger_is_a_delta_table_that_can_be_queried(lake: Location) -> None:
    import duckdb

    publish_rows(lake, {"messages": made_rows("messages")})
    ledger = DeltaTable(lake.table("_ingests")).to_pyarrow_dataset()
    assert ledger.count_rows() == 1
    found = duckdb.sql("SELECT ingest_id, kind, map_extract(versions, 'messages')[1] FROM ledger").fetchall()
    assert found == [(1, "ingest", 1)]


def test_a_missing_lake_is_reported(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(UserError, match=r"There is no lake at .* `rtmp-spark ingest"):
            Ledger(locate(path)).read()


def test_a_row_has_its_writer_and_its_time(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages")})
    row = DeltaTable(lake.table("_ingests")).to_pyarrow_dataset().to_table().to_pylist()[0]
    assert "process" in row["writer"] and row["codec_version"]
    assert abs(row["published_at"].timestamp() - time.time()) < 60
