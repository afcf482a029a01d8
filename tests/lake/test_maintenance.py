"""Compaction, deletion of old files and trimming of logs: no published row changes and no kept state is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from kit.lake_rows import contents, ingest_capture, made_rows, publish_rows

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake import compaction
from rtmp_spark.lake.compaction import compact, needs_compaction
from rtmp_spark.lake.faults import LostRace
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.maintenance import clean_up
from rtmp_spark.lake.parquet_files import OPEN, PART, FileTarget, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer

TABLES_OF_A_CAPTURE = ("captures", "messages", "connections")


def filled(location: Location, count: int = 12) -> Location:
    for number in range(count):
        ingest_capture(location, f"capture {number}")
    return location


def test_compaction_changes_no_row_and_sets_data_change_to_false(lake: Location) -> None:
    filled(lake)
    before = contents(lake, TABLES_OF_A_CAPTURE, without=())
    published = compact(lake)
    assert published is not None and published.kind == "maintenance"
    assert contents(lake, TABLES_OF_A_CAPTURE, without=()) == before
    assert len(open_lake(lake).snapshot("messages").files) == 1
    entry = lake.read(f"messages/_delta_log/{published.versions['messages']:020d}.json")
    assert entry is not None and b'"dataChange":true' not in entry and b'"dataChange":false' in entry
    assert compact(lake) is None, "nothing left to do"
    assert ingest_capture(lake, "next") and open_lake(lake).messages.count_rows() == 3 * 13


def test_compaction_keeps_rows_of_open_connections_in_files_of_their_own(lake: Location) -> None:
    for number in range(4):
        publish_rows(lake, {"connections": made_rows("connections", f"Cdone{number}")}, OPEN)
        publish_rows(lake, {"connections": made_rows("connections", f"Copen{number}")}, OPEN)
    publish_rows(lake, {"open_flows": pa.concat_tables([made_rows("open_flows", f"Copen{n}") for n in range(4)])})
    compact(lake)
    files = {file.kind: file for file in open_lake(lake).snapshot("connections").files}
    assert {kind: file.rows for kind, file in files.items()} == {OPEN: 4, PART: 4}
    assert files[OPEN].ranges["uid"][:2] == ("Copen0", "Copen3")


def test_tables_with_many_small_files_are_compacted(lake: Location) -> None:
    filled(lake, 5)
    assert needs_compaction(lake, files=6) == []
    assert needs_compaction(lake, files=5) == ["captures", "messages"]


def test_large_files_are_not_compacted(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lake, 4)
    large = open_lake(lake).snapshot("messages").files[0]
    monkeypatch.setattr(compaction, "SMALL_BYTES", large.size)
    paths = {file.path for file in open_lake(lake).snapshot("messages").files if file.size >= large.size}
    compact(lake)
    assert paths <= {file.path for file in open_lake(lake).snapshot("messages").files}


def test_compaction_does_not_rebase_over_another_commit(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """`optimize.compact` of delta-rs would rebase, and a lost race would not be noticed."""
    filled(lake, 4)

    def forbidden(self: TableOptimizer, *args: Any, **options: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(TableOptimizer, "compact", forbidden)
    monkeypatch.setattr("rtmp_spark.lake.writer.writer_lock", lambda *_: nullcontext())
    real = compaction._merge_group

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(compaction, "_merge_group", real)
        ingest_capture(lake, "meanwhile")
        return real(*args)

    monkeypatch.setattr(compaction, "_merge_group", overtaken)
    with pytest.raises(LostRace):
        compact(lake)
    assert open_lake(lake).captures.count_rows() == 5
    assert compact(lake) is not None
    assert open_lake(lake).messages.count_rows() == 15


def data_files(lake: Location, table: str) -> set[str]:
    return {path.name for path in Path(lake.table(table)).glob("*.parquet")}


def test_old_files_orphans_and_log_entries_are_deleted(lake: Location) -> None:
    filled(lake)
    compact(lake)
    orphan = write_rows(FileTarget(lake, 99), "messages", made_rows("messages", "Corphan"))
    before = contents(lake, TABLES_OF_A_CAPTURE, without=())
    cleaned = clean_up(lake, retention_hours=0)
    assert f"messages/{orphan.path}" in cleaned.files
    for table in TABLES_OF_A_CAPTURE:
        assert data_files(lake, table) == {file.path for file in open_lake(lake).snapshot(table).files}
    assert len(list(Path(lake.table("messages"), "_delta_log").glob("*.json"))) == 1
    assert contents(lake, TABLES_OF_A_CAPTURE, without=()) == before
    assert ingest_capture(lake, "next")
    assert open_lake(lake).messages.count_rows() == 3 * 13
    assert DeltaTable(lake.table("messages")).to_pyarrow_dataset().count_rows() == 39, "other readers can open it"


def test_states_inside_the_retention_stay_readable(lake: Location) -> None:
    filled(lake, 3)
    held = open_lake(lake)
    rows = {name: held.table(name).to_table() for name in TABLES_OF_A_CAPTURE}
    compact(lake)
    write_rows(FileTarget(lake, 99), "messages", made_rows("messages"))
    cleaned = clean_up(lake, retention_hours=1)
    assert cleaned.files == () and cleaned.log_entries == ()
    for name in TABLES_OF_A_CAPTURE:
        assert held.table(name).to_table().equals(rows[name])
        version = held.published.versions[name]
        assert DeltaTable(lake.table(name), version=version).to_pyarrow_dataset().count_rows() == rows[name].num_rows


def test_a_kept_state_is_not_deleted_although_its_files_are_old(
    lake: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest state stays published until another one follows; unpublished commits do not change that."""
    filled(lake, 3)
    DeltaTable(lake.table("messages")).restore(1)  # as a dead ingest leaves it: newer than what is published
    entry = Path(lake.uri, f"messages/_delta_log/{DeltaTable(lake.table('messages')).version():020d}.json")
    entry.write_text(entry.read_text().replace('"commitInfo":{', '"commitInfo":{"rtmp_spark":"dead x",', 1))
    old = time.time() - 400 * 3600
    for path in Path(lake.uri).rglob("*"):
        os.utime(path, (old, old))
    cleaned = clean_up(lake)
    assert [path for path in cleaned.files if not path.startswith("connections")] == []
    assert open_lake(lake).messages.to_table().num_rows == 9


def test_a_writer_with_a_slow_clock_does_not_lose_a_kept_state(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log says that a file was removed long ago; a state that was published since still needs the file."""
    filled(lake, 1)
    held = open_lake(lake).connections
    with monkeypatch.context() as patch:
        patch.setattr("rtmp_spark.lake.commit.time.time", lambda: 1_000_000_000.0)
        ingest_capture(lake, "b")
    for path in Path(lake.uri).rglob("*.parquet"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    clean_up(lake, retention_hours=1)
    assert held.to_table().num_rows == 1
    assert open_lake(lake).connections.to_table()["packets_c2s"].to_pylist() == [2]


def test_files_of_a_dead_ingest_become_orphans(lake: Location, die_at: Callable[[str], None]) -> None:
    filled(lake, 2)
    die_at("after messages")
    with pytest.raises(BaseException, match="after messages"):
        ingest_capture(lake, "dead")
    before = contents(lake, TABLES_OF_A_CAPTURE, without=())
    cleaned = clean_up(lake, retention_hours=0)
    assert any(path.startswith("messages/part-00000003") for path in cleaned.files)
    assert contents(lake, TABLES_OF_A_CAPTURE, without=()) == before
    assert ingest_capture(lake, "dead") and open_lake(lake).messages.count_rows() == 9


@pytest.mark.parametrize("place", ["before clean-up", "delete messages", "trim messages", "trim _ingests"])
def test_a_death_during_the_clean_up_loses_nothing(lake: Location, die_at: Callable[[str], None], place: str) -> None:
    filled(lake, 4)
    compact(lake)
    before = contents(lake, TABLES_OF_A_CAPTURE, without=())
    die_at(place)
    with pytest.raises(BaseException, match=place):
        clean_up(lake, retention_hours=0)
    assert contents(lake, TABLES_OF_A_CAPTURE, without=()) == before
    clean_up(lake, retention_hours=0)
    assert contents(lake, TABLES_OF_A_CAPTURE, without=()) == before
    assert ingest_capture(lake, "next")


def test_maintenance_does_not_create_a_lake(tmp_path: Path) -> None:
    for work in (compact, clean_up):
        with pytest.raises(UserError, match="There is no lake"):
            work(locate(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="Invalid retention"):
        clean_up(locate(tmp_path), retention_hours=-1)


def test_an_unused_lake_can_be_cleaned(lake: Location) -> None:
    assert clean_up(lake, retention_hours=0).files == ()
    assert compact(lake) is None


def test_decoding_again_rewrites_only_files_with_replaced_rows(lake: Location) -> None:
    for number in range(4):
        publish_rows(lake, {"messages": made_rows("messages", f"C{number}", 5)})
    before = {file.path for file in open_lake(lake).snapshot("messages").files}
    with open_writer(lake) as writer:
        new = write_rows(writer.target, "messages", made_rows("messages", "C2", 5))
        writer.replace("messages", pc.field("uid").isin(["C2"]))
        writer.publish([new])
    assert len(before & {file.path for file in open_lake(lake).snapshot("messages").files}) == 3


class LongAgo(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> LongAgo:
        return super().now(tz) - timedelta(hours=400)


def test_a_state_is_kept_that_was_the_newest_until_a_moment_ago(
    lake: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago it was published: a reader may have opened it just before the next one."""
    with monkeypatch.context() as patch:
        patch.setattr("rtmp_spark.lake.ledger.datetime", LongAgo)
        patch.setattr("rtmp_spark.lake.commit.time.time", lambda now=time.time: now() - 400 * 3600)
        filled(lake, 3)
    old = time.time() - 400 * 3600
    for path in Path(lake.uri).rglob("*"):
        os.utime(path, (old, old))
    held = open_lake(lake)
    ingest_capture(lake, "next")
    compact(lake)
    clean_up(lake)
    assert held.connections.to_table()["packets_c2s"].to_pylist() == [3]
    assert DeltaTable(lake.table("messages"), version=held.published.versions["messages"]).version() > 0
    assert held.messages.to_table().num_rows == 9


def test_the_job_does_both_and_says_what_it_did(lake: Location) -> None:
    filled(lake, 3)
    for said in ("merged small files", "there were no files to merge"):
        command = [sys.executable, str(Path(__file__).parents[2] / "jobs/optimize.py"), "--lake", lake.uri]
        done = subprocess.run([*command, "--retention-hours", "0"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{lake}: {said}\n", "")
    assert data_files(lake, "messages") == {file.path for file in open_lake(lake).snapshot("messages").files}
