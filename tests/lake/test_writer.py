"""Publishing a change of a lake: all of it or nothing, one winner, recovery of what a dead ingest left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from kit.lake_rows import contents, ingest_capture, made_rows, publish_rows

from rtmp_spark.lake import commit
from rtmp_spark.lake.commit import CHECKPOINT_INTERVAL
from rtmp_spark.lake.faults import LakeFault, LostRace
from rtmp_spark.lake.ledger import Batch, Ledger
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.parquet_files import OPEN, PART, RESUMED, write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.lake.writing.recovery import MARKER
from rtmp_spark.lake.writing.staging import ABANDONED_SECONDS, STAGING
from rtmp_spark.schema import TABLES

TABLES_OF_A_CAPTURE = ("captures", "messages", "connections")


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Correctness must not depend on the lock."""
    monkeypatch.setattr("rtmp_spark.lake.writer.writer_lock", lambda *_: nullcontext())


def test_an_ingest_makes_the_lake_and_publishes_rows(tmp_path: Path) -> None:
    location = locate(tmp_path / "lake")
    with open_writer(location) as writer:
        assert writer.is_new and writer.ingest_id == 1 and writer.captures_numbered == 0
        files = [write_rows(writer.target, "messages", made_rows("messages", "C1", 3))]
        assert open_lake(location).messages.count_rows() == 0
        published = writer.publish(files, summary='{"files": 1}', captures_numbered=1)
    lake = open_lake(location)
    assert lake.messages.count_rows() == 3 and lake.published == published
    assert published.versions == {**dict.fromkeys(TABLES, 0), "messages": 1}
    assert (published.summary, published.captures_numbered) == ('{"files": 1}', 1)


def test_a_writer_that_does_not_publish_leaves_nothing(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages")})
    before = open_lake(lake).published
    with pytest.raises(RuntimeError), open_writer(lake) as writer:
        write_rows(writer.target, "messages", made_rows("messages", "C2"))
        raise RuntimeError
    assert open_lake(lake).published == before and open_lake(lake).messages.count_rows() == 1


def test_rows_of_an_open_connection_are_replaced_by_one_commit(lake: Location) -> None:
    rows = pa.concat_tables([made_rows("connections", uid) for uid in ("C1", "C2", "C3")])
    publish_rows(lake, {"connections": rows}, OPEN)
    publish_rows(lake, {"connections": made_rows("connections", "C0")}, PART)
    final = {file.path for file in open_lake(lake).snapshot("connections").files if file.kind == PART}
    with open_writer(lake) as writer:
        files = [write_rows(writer.target, "connections", made_rows("connections", "C2", app="again"), kind=OPEN)]
        versions = writer.lake.published.versions
        writer.resume({"C2"})
        published = writer.publish(files)
    found = open_lake(lake)
    assert published.versions["connections"] == versions["connections"] + 1
    assert sorted((r["uid"], r["app"]) for r in found.connections.to_table().to_pylist()) == [
        ("C0", "app"), ("C1", "app"), ("C2", "again"), ("C3", "app"),
    ]  # fmt: skip
    assert {file.path for file in found.snapshot("connections").files if file.kind == PART} == final, "not rewritten"
    assert {file.kind for file in found.snapshot("connections").files} == {OPEN, PART}


def test_replacing_some_messages_keeps_the_others(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages", "C1", 10)})
    with open_writer(lake) as writer:
        gone = (pc.field("uid") == "C1") & (pc.field("direction") == "c2s") & (pc.field("msg_no") >= 7)
        writer.replace("messages", gone)
        writer.publish([write_rows(writer.target, "messages", made_rows("messages", "C1", 5, 7))])
    found = open_lake(lake).messages.to_table(columns=["msg_no", "ingest_id"]).to_pylist()
    assert sorted((r["msg_no"], r["ingest_id"]) for r in found) == [(n, 1) for n in range(7)] + [
        (n, 2) for n in range(7, 12)
    ]


def test_resuming_drops_only_rows_in_open_files(lake: Location) -> None:
    """Final rows of a connection stay where they are, whatever follows; provisional ones are replaced."""
    publish_rows(lake, {"messages": made_rows("messages", "C1", 5)})
    publish_rows(lake, {"messages": made_rows("messages", "C1", 2, 5), "streams": made_rows("streams", "C1")}, OPEN)
    final = {file.path for file in open_lake(lake).snapshot("messages").files if file.kind == PART}
    with open_writer(lake) as writer:
        writer.resume({"C1", "C2"})
        writer.replace("messages", pc.field("uid") == "C3")
        writer.publish([write_rows(writer.target, "messages", made_rows("messages", "C1", 1, 5), kind=RESUMED)])
    found = open_lake(lake)
    assert sorted(found.messages.to_table()["msg_no"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert found.streams.count_rows() == 0
    assert final <= {file.path for file in found.snapshot("messages").files}


def test_a_table_can_be_changed_twice_by_one_ingest(lake: Location) -> None:
    rows = pa.concat_tables([made_rows("findings", uid) for uid in ("C1", "C2", "C3", "C4")])
    publish_rows(lake, {"findings": rows}, OPEN)
    with open_writer(lake) as writer:
        writer.resume(["C1"])
        writer.replace("findings", pc.field("uid") == "C3")
        assert sorted(writer.pending("findings", []).to_table()["uid"].to_pylist()) == ["C2", "C4"]
        writer.publish([])
    assert sorted(open_lake(lake).findings.to_table()["uid"].to_pylist()) == ["C2", "C4"]
    assert len(open_lake(lake).snapshot("findings").files) == 1


def test_a_condition_that_is_null_keeps_the_row(lake: Location) -> None:
    publish_rows(lake, {"findings": pa.concat_tables([made_rows("findings", uid) for uid in ("C1", None)])})
    with open_writer(lake) as writer:
        writer.replace("findings", pc.field("uid") == "C1")
        writer.publish([])
    assert open_lake(lake).findings.to_table()["uid"].to_pylist() == [None]


def test_pending_rows_are_those_that_will_be_published(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages", "C1", 4)})
    with open_writer(lake) as writer:
        files = [write_rows(writer.target, "messages", made_rows("messages", "C1", 3, 2))]
        gone = (pc.field("uid") == "C1") & (pc.field("msg_no") >= 2)
        writer.replace("messages", gone)
        pending = writer.pending("messages", files).to_table().sort_by("msg_no")
        assert pending["msg_no"].to_pylist() == [0, 1, 2, 3, 4]
        assert writer.table("messages").count_rows() == 4
        writer.publish(files)
    assert open_lake(lake).messages.to_table().sort_by("msg_no").equals(pending)


def test_the_second_of_two_writers_reports_that_it_lost_and_publishes_nothing(
    lake: Location, without_lock: None
) -> None:
    with open_writer(lake) as first, open_writer(lake) as second:
        files = [
            [write_rows(writer.target, "messages", made_rows("messages", uid))]
            for writer, uid in ((first, "C1"), (second, "C2"))
        ]
        first.publish(files[0])
        with pytest.raises(LostRace, match=r"nothing more was published\. Run it again"):
            second.publish(files[1])
        assert second.published is None
    assert open_lake(lake).messages.to_table()["uid"].to_pylist() == ["C1"]
    publish_rows(lake, {"messages": made_rows("messages", "C3")})
    assert sorted(open_lake(lake).messages.to_table()["uid"].to_pylist()) == ["C1", "C3"]


def test_a_stale_handle_cannot_commit(lake: Location) -> None:
    """delta-rs would rebase an append over a foreign one unless retries are off."""
    stale = commit.open_table(lake, "messages")
    publish_rows(lake, {"messages": made_rows("messages")})
    with pytest.raises(LostRace):
        commit.compare_and_set(lake, "messages", stale, commit.Marker("x", "write"), commit.change_files([], []))


def test_a_refusal_of_our_own_commit_is_success(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store answers 412 to a repeated request whose first attempt landed."""
    real = DeltaTable.create_write_transaction

    def land_and_refuse(self: DeltaTable, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        raise CommitFailedError("412 Precondition Failed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", land_and_refuse)
    monkeypatch.setattr("rtmp_spark.lake.writer.require_put_if_absent", lambda _: None)
    publish_rows(lake, {"messages": made_rows("messages")})
    assert open_lake(lake).messages.count_rows() == 1


def test_an_error_of_the_store_without_a_commit_is_an_error(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DeltaTable, *args: Any, **options: Any) -> None:
        raise OSError("503 SlowDown")

    monkeypatch.setattr("rtmp_spark.lake.writer.require_put_if_absent", lambda _: None)
    with monkeypatch.context() as patch, pytest.raises(LakeFault, match="throttled"):
        patch.setattr(DeltaTable, "create_write_transaction", refuse)
        publish_rows(lake, {"messages": made_rows("messages")})
    assert open_lake(lake).messages.count_rows() == 0


FAILPOINTS = (
    "locked", "store checked", "ledger read", "files written", "before captures", "after captures",
    "before connections", "after connections", "before messages", "after messages", "before publish",
    "after publish", "checkpoints written",
)  # fmt: skip


@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_death_anywhere_leaves_the_tables_of_an_undisturbed_run(
    new_lake: Callable[[], Location], die_at: Callable[[str], None], place: str
) -> None:
    disturbed, undisturbed = new_lake(), new_lake()
    for location in (disturbed, undisturbed):
        ingest_capture(location, "a")
    die_at(place)
    with pytest.raises(BaseException, match=place):
        ingest_capture(disturbed, "b")
    published = place in ("after publish", "checkpoints written")
    assert open_lake(disturbed).published.ingest_id == 1 + published
    assert ingest_capture(disturbed, "b") is not published
    for location in (disturbed, undisturbed):
        ingest_capture(location, "b")
        ingest_capture(location, "c")
    assert contents(disturbed, TABLES_OF_A_CAPTURE) == contents(undisturbed, TABLES_OF_A_CAPTURE)


@pytest.mark.parametrize("place", ["before restore messages", "after restore messages"])
def test_a_death_during_recovery_is_recovered(
    new_lake: Callable[[], Location], die_at: Callable[[str], None], place: str
) -> None:
    lake = new_lake()
    ingest_capture(lake, "a")
    for point in ("after messages", place):
        die_at(point)
        with pytest.raises(BaseException, match=point):
            ingest_capture(lake, "b")
    assert ingest_capture(lake, "b")
    found = contents(lake, TABLES_OF_A_CAPTURE)
    assert [r["packets_c2s"] for r in found["connections"]] == [2] and len(found["messages"]) == 6


CREATION = ("key written", "created captures", "created open_flows", "lake created")


@pytest.mark.parametrize("place", CREATION)
def test_a_death_during_creation_leaves_a_lake_that_can_be_made(
    tmp_path: Path, die_at: Callable[[str], None], place: str
) -> None:
    location = locate(tmp_path / "lake")
    die_at(place)
    with pytest.raises(BaseException, match=place):
        ingest_capture(location, "a")
    assert ingest_capture(location, "a")
    assert open_lake(location).messages.count_rows() == 3
    assert len(open_lake(location).redact_key) >= 16


def test_a_table_that_the_next_ingest_does_not_touch_stays_as_it_is(
    lake: Location, die_at: Callable[[str], None]
) -> None:
    """Recovery is only where something is written; readers never see the dead ingest."""
    ingest_capture(lake, "a")
    die_at("after messages")
    with pytest.raises(BaseException, match="after messages"):
        ingest_capture(lake, "b")
    dirty = DeltaTable(lake.table("messages")).version()
    publish_rows(lake, {"findings": made_rows("findings")})
    assert DeltaTable(lake.table("messages")).version() == dirty
    assert open_lake(lake).messages.count_rows() == 3


def test_every_commit_carries_its_ingest_and_runs_no_hook(lake: Location) -> None:
    for number in range(CHECKPOINT_INTERVAL + 1):
        publish_rows(lake, {"messages": made_rows("messages", f"C{number}")})
    marks = {row.uuid for row in Ledger(lake).history()}
    for table in ("messages", "_ingests"):
        log = sorted(Path(lake.table(table), "_delta_log").iterdir())
        entries = [path for path in log if path.suffix == ".json"]
        assert len(entries) == CHECKPOINT_INTERVAL + 2, "log entries are never cleaned up by a commit"
        infos = [json.loads(path.read_text().splitlines()[0])["commitInfo"] for path in entries]
        assert {str(info[MARKER]).split()[0] for info in infos[1:]} == marks
        assert [p.name for p in log if "checkpoint." in p.name] == [f"{CHECKPOINT_INTERVAL:020d}.checkpoint.parquet"]


def test_commits_do_not_clean_up_the_log(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Automatic clean-up by an unpublished commit destroyed the published version of an idle lake."""
    seen: list[PostCommitHookProperties] = []
    real = DeltaTable.create_write_transaction

    def record(self: DeltaTable, *args: Any, **options: Any) -> None:
        seen.append(options["post_commithook_properties"])
        assert options["commit_properties"].max_commit_retries == 0
        real(self, *args, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", record)
    publish_rows(lake, {"messages": made_rows("messages")})
    assert seen and not any(hook.create_checkpoint or hook.cleanup_expired_logs for hook in seen)
    for name in (*TABLES, "_ingests"):
        configuration = DeltaTable(lake.table(name)).metadata().configuration
        assert configuration["delta.enableExpiredLogCleanup"] == "false"


def test_a_failed_checkpoint_does_not_fail_the_ingest(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: DeltaTable) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    for number in range(CHECKPOINT_INTERVAL + 1):
        publish_rows(lake, {"messages": made_rows("messages", f"C{number}")})
    assert open_lake(lake).messages.count_rows() == CHECKPOINT_INTERVAL + 1


def test_a_repeated_batch_is_recognised(lake: Location) -> None:
    with open_writer(lake) as writer:
        assert not writer.is_delivered(Batch("query", 0))
        writer.publish([], batch=Batch("query", 0))
    with open_writer(lake) as writer:
        assert writer.is_delivered(Batch("query", 0))
        assert not writer.is_delivered(Batch("query", 1)) and not writer.is_delivered(Batch("other", 0))


def test_foreign_commits_are_refused_and_can_be_undone(lake: Location) -> None:
    publish_rows(lake, {"messages": made_rows("messages", "C1", 2)})
    DeltaTable(lake.table("messages")).delete("msg_no = 0")
    assert open_lake(lake).messages.count_rows() == 2, "what is published stays readable"
    with pytest.raises(LakeFault, match=r"Another program changed the table 'messages' .*DELETE.* VERSION AS OF 1"):
        publish_rows(lake, {"messages": made_rows("messages", "C2")})
    DeltaTable(lake.table("messages")).restore(1, commit_properties=CommitProperties(max_commit_retries=0))
    publish_rows(lake, {"messages": made_rows("messages", "C2")})
    assert open_lake(lake).messages.count_rows() == 3


def test_a_foreign_change_of_the_ledger_hides_nothing(lake: Location) -> None:
    for uid in ("C1", "C2"):
        publish_rows(lake, {"messages": made_rows("messages", uid)})
    DeltaTable(lake.table("_ingests")).delete("ingest_id = 2")
    assert open_lake(lake).messages.count_rows() == 2, "what is published stays readable"
    with pytest.raises(LakeFault, match=r"Another program changed the table '_ingests' .*DELETE.* VERSION AS OF 2"):
        publish_rows(lake, {"messages": made_rows("messages", "C3")})
    DeltaTable(lake.table("_ingests")).restore(2)
    publish_rows(lake, {"messages": made_rows("messages", "C3")})
    assert open_lake(lake).messages.count_rows() == 3


def test_a_writer_leaves_the_staged_files_of_another(lake: Location, without_lock: None, tmp_path: Path) -> None:
    """Without them that one could not finish."""
    with open_writer(lake) as one:
        one.staging.write("plans", b"{}")
        with open_writer(lake) as other:
            other.staging.write("plans", b"{}")
        assert other.staging.read("plans") is None
        assert one.staging.read("plans") == b"{}"
    assert one.staging.read("plans") is None


def test_staged_files_of_a_dead_writer_are_deleted_after_a_day(lake: Location, tmp_path: Path) -> None:
    for name, age in (("dead", 2 * ABANDONED_SECONDS), ("young", 60.0)):
        path = Path(lake.uri) / STAGING / name / "sorted.packets"
        path.parent.mkdir(parents=True)
        path.touch()
        then = time.time() - age
        os.utime(path, (then, then))
        os.utime(path.parent, (then, then))
    with open_writer(lake):
        pass
    assert [found.name for found in (Path(lake.uri) / STAGING).iterdir()] == ["young"]
