"""A lake on S3: two writers, a store that overwrites, lost responses."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import nullcontext

import duckdb
import pyarrow.compute as pc
import pytest
from kit.lake_rows import contents, ingest_capture, made_rows, publish_rows
from kit.object_store import LOSE_ANSWER, STRIP, ObjectStore, Proxy, storage_options

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.compaction import compact
from rtmp_spark.lake.faults import LakeFault, LostRace
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.maintenance import clean_up
from rtmp_spark.lake.parquet_files import write_rows
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.lake.writing import lock
from rtmp_spark.lake.writing.store_check import require_put_if_absent

TABLES = ("captures", "messages", "connections")


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[Proxy]:
    proxy = Proxy(object_store.port)
    yield proxy
    proxy.close()


@pytest.fixture
def bucket(object_store: ObjectStore) -> Location:
    return locate(f"s3a://lake/{uuid.uuid4().hex} x", storage_options(object_store.url), environment={})


@pytest.fixture(scope="module")
def filled(object_store: ObjectStore) -> Location:
    """A lake with two ingests."""
    location = locate("s3://lake/filled", storage_options(object_store.url), environment={})
    for path in ("a", "b"):
        ingest_capture(location, path)
    return location


def test_rows_are_the_same_as_on_a_local_disk(filled: Location, lake: Location) -> None:
    for path in ("a", "b"):
        ingest_capture(lake, path)
    assert contents(filled, TABLES) == contents(lake, TABLES)
    messages = open_lake(filled).messages
    assert duckdb.sql("SELECT count(*) FROM messages WHERE msg_no > 1").fetchall() == [(4,)]
    assert len(list(messages.get_fragments(filter=pc.field("uid") == "Cx"))) == 0


def test_a_known_capture_is_skipped(filled: Location) -> None:
    assert not ingest_capture(filled, "a")


def test_there_is_no_lake_in_an_empty_bucket(bucket: Location) -> None:
    with pytest.raises(UserError, match="There is no lake at s3://lake/"):
        open_lake(bucket)


def test_a_missing_bucket_and_wrong_credentials_are_reported(object_store: ObjectStore) -> None:
    nowhere = locate("s3://none/lake", storage_options(object_store.url), environment={})
    with pytest.raises(LakeFault, match=r"bucket"):
        publish_rows(nowhere, {"messages": made_rows("messages")})
    options = storage_options("http://127.0.0.1:9") | {"max_retries": "0", "retry_timeout": "1s", "timeout": "1s"}
    with pytest.raises(LakeFault, match=r"Check that the storage can be reached"):
        open_lake(locate("s3://lake/x", options, environment={}))


def test_two_writers_at_once_one_wins(filled: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtmp_spark.lake.writer.writer_lock", lambda *_: nullcontext())
    before = open_lake(filled).published.ingest_id
    with open_writer(filled) as first, open_writer(filled) as second:
        files = [
            [write_rows(w.target, "findings", made_rows("findings", f"C{n}"))] for n, w in enumerate((first, second))
        ]
        gate = threading.Barrier(2)
        outcomes: list[str] = []

        def publish(writer: object, mine: list[object]) -> None:
            gate.wait()
            try:
                writer.publish(mine)  # type: ignore[attr-defined]
                outcomes.append("won")
            except LostRace:
                outcomes.append("lost")

        threads = [threading.Thread(target=publish, args=pair) for pair in zip((first, second), files)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) in (["lost", "won"], ["lost", "lost"])
    found = open_lake(filled)
    assert found.published.ingest_id == before + outcomes.count("won")
    assert found.findings.count_rows() == outcomes.count("won")


def test_a_store_that_overwrites_is_refused(bucket: Location, proxy: Proxy) -> None:
    through = Location(bucket.uri, storage_options(proxy.url))
    require_put_if_absent(through)
    proxy.misbehave(STRIP)
    with pytest.raises(LakeFault, match=r"overwrites objects .* If-None-Match"):
        publish_rows(through, {"messages": made_rows("messages")})
    assert proxy.misbehaved
    with pytest.raises(UserError, match="There is no lake"):
        open_lake(bucket)


def test_a_response_lost_after_the_write_is_success(filled: Location, proxy: Proxy) -> None:
    """The client repeats the request and gets 412 for its own commit."""
    through = Location(filled.uri, storage_options(proxy.url))
    proxy.misbehave(LOSE_ANSWER)
    before = open_lake(filled).streams.count_rows()
    publish_rows(through, {"streams": made_rows("streams", "C9")})
    assert proxy.misbehaved > 2
    assert open_lake(filled).streams.count_rows() == before + 1


def test_maintenance_works_on_an_object_store(bucket: Location) -> None:
    for path in ("a", "b", "c"):
        ingest_capture(bucket, path)
    before = contents(bucket, TABLES, without=())
    held = open_lake(bucket).messages
    compact(bucket)
    assert held.to_table().num_rows == 9
    cleaned = clean_up(bucket, retention_hours=0)
    assert len([path for path in cleaned.files if path.startswith("messages")]) == 3
    assert contents(bucket, TABLES, without=()) == before
    assert ingest_capture(bucket, "d")


def test_the_second_writer_waits_for_the_lease_and_prints_its_holder(
    filled: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = r"\(process \d+\) is writing to the lake s3://lake/filled"
    with open_writer(filled), pytest.raises(UserError, match=sentence), open_writer(filled, wait_seconds=2):
        pass
    assert "waiting for" in capsys.readouterr().err
    with open_writer(filled, wait_seconds=0):
        pass
    monkeypatch.setattr(lock, "LEASE_SECONDS", -1.0)  # a holder that died long ago
    with open_writer(filled, wait_seconds=0), open_writer(filled, wait_seconds=0):
        pass


def test_the_log_of_the_lease_does_not_grow_for_ever(bucket: Location) -> None:
    """Every writer adds to it and reads it."""
    ingest_capture(bucket, "a")
    for _ in range(6):
        with lock.writer_lock(bucket, 10):
            pass
    log = f"{lock.LEASE}/_delta_log"
    assert bucket.read(f"{log}/{10:020d}.checkpoint.parquet") is not None
    clean_up(bucket, retention_hours=0)
    assert len(bucket.list(log)) < 10
    assert ingest_capture(bucket, "b")


def test_a_lease_that_cannot_be_renewed_does_not_stop_the_writer(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(self: object, seconds: float) -> bool:
        failed.set()
        raise RuntimeError("the store is away")

    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.01)
    with open_writer(filled) as writer:
        with monkeypatch.context() as patch:
            patch.setattr("rtmp_spark.lake.writing.lock._Lease.extend", fail)
            assert failed.wait(10)
        files = [write_rows(writer.target, "controls", made_rows("controls"))]
        writer.publish(files)
    assert open_lake(filled).controls.count_rows() == 1
