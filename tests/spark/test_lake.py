"""The commit protocol: what readers see while ingests begin, commit, die and are healed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import TABLES, arrow_schema
from rtmp_spark.spark import lake as lake_module
from rtmp_spark.spark.lake import Lake, Writer, open_writer
from rtmp_spark.spark.ledger import Superseded
from rtmp_spark.spark.lock import writer_lock
from rtmp_spark.spark.tables import delta_name
from rtmp_spark.views import VIEWS


def filled(kind: pa.DataType) -> Any:
    """Some value of a type, for columns that a test does not care about."""
    if pa.types.is_list(kind):
        return []
    if pa.types.is_string(kind):
        return "x"
    return b"x" if pa.types.is_binary(kind) else False if pa.types.is_boolean(kind) else 0


def rows(table: str, ingest_id: int, *values: dict[str, Any]) -> pa.Table:
    schema = arrow_schema(table)
    blank = {f.name: None if f.nullable else filled(f.type) for f in schema}
    return pa.Table.from_pylist([blank | v | {"ingest_id": ingest_id} for v in values], schema)


def message(uid: str, direction: str, msg_no: int) -> dict[str, Any]:
    return {"uid": uid, "direction": direction, "msg_no": msg_no}


def ingest(spark: SparkSession, path: str, uids: list[str], superseded: list[Superseded] | None = None) -> int:
    with open_writer(spark, path) as writer:
        writer.begin()
        writer.append("connections", rows("connections", writer.ingest_id, *({"uid": u} for u in uids)))
        writer.commit(superseded or [])
        return writer.ingest_id


@pytest.fixture(scope="module")
def path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake whose name is data: a quote, a backtick, a right-to-left mark."""
    path = str(tmp_path_factory.mktemp("lakes") / "la'ke`\u200f; DROP")
    ingest(spark, path, ["Cfirst"])
    return path


def uids(lake: Lake) -> list[str]:
    return sorted(r["uid"] for r in lake.connections.select("uid").collect())


def test_every_table_exists_with_its_comments_and_clustering(spark: SparkSession, path: str) -> None:
    for name, table in TABLES.items():
        described = {
            r["col_name"]: r["comment"] for r in spark.sql(f"DESCRIBE {delta_name(f'{path}/{name}')}").collect()
        }
        assert {c.name: c.comment for c in table.columns}.items() <= described.items(), name
    detail = spark.sql(f"DESCRIBE DETAIL {delta_name(f'{path}/messages')}").first()
    assert detail is not None and list(detail["clusteringColumns"]) == list(TABLES["messages"].cluster_by)


def test_other_readers_can_read_it(spark: SparkSession, path: str, tmp_path: Path) -> None:
    connections = deltalake.DeltaTable(f"{path}/connections").to_pyarrow_table()
    assert "Cfirst" in connections["uid"].to_pylist()
    found = duckdb.sql("SELECT uid FROM connections").fetchall()
    assert ("Cfirst",) in found
    shutil.copytree(f"{path}/connections", tmp_path / "plain")  # Polars does not open what a URI would quote
    assert "Cfirst" in polars.read_delta(str(tmp_path / "plain"))["uid"].to_list()


def test_the_views_of_the_common_questions(spark: SparkSession, path: str) -> None:
    lake = Lake(spark, path)
    there = lake.create_views()
    assert set(there) == {*TABLES, *VIEWS} and all(there.values())
    for name in there:
        assert spark.table(name).columns, name
    assert spark.table("connections").count() == lake.connections.count()
    assert {r["uid"] for r in spark.sql("SELECT uid FROM endings").collect()} == set(uids(lake))


def test_an_ingest_under_way_is_not_seen(spark: SparkSession, path: str) -> None:
    before = uids(Lake(spark, path))
    with open_writer(spark, path) as writer:
        writer.begin()
        writer.append("connections", rows("connections", writer.ingest_id, {"uid": "Cunder_way"}))
        assert uids(Lake(spark, path)) == before
        writer.commit()
    assert uids(Lake(spark, path)) == sorted([*before, "Cunder_way"])


def test_a_dead_ingest_is_swept_and_its_retry_lands(spark: SparkSession, path: str) -> None:
    with open_writer(spark, path) as dead:
        dead.begin()
        dead.append("connections", rows("connections", dead.ingest_id, {"uid": "Cretry"}))
    assert "Cretry" not in uids(Lake(spark, path))
    retry = ingest(spark, path, ["Cretry"])
    assert retry > dead.ingest_id
    raw = deltalake.DeltaTable(f"{path}/connections").to_pyarrow_table().to_pylist()
    assert [r["ingest_id"] for r in raw if r["uid"] == "Cretry"] == [retry]


def test_a_stale_writer_is_fenced(spark: SparkSession, path: str) -> None:
    """As with a lease that ran out: the lock of a local lake cannot be lost."""
    with open_writer(spark, path) as stale:
        stale.fenced = True
        stale.begin()
    with open_writer(spark, path) as writer:
        writer.fenced = True
        writer.begin()
        writer.append("connections", rows("connections", writer.ingest_id, {"uid": "Cnewer"}))
        writer.commit()
    newer = writer.ingest_id
    stale.append("connections", rows("connections", stale.ingest_id, {"uid": "Cstale"}))
    assert "Cstale" not in uids(Lake(spark, path))
    raw = deltalake.DeltaTable(f"{path}/connections").to_pyarrow_table()
    assert "Cstale" not in raw["uid"].to_pylist() and newer in raw["ingest_id"].to_pylist()


def superseding(spark: SparkSession, path: str, uid: str) -> tuple[Writer, Superseded]:
    """An ingest with a final and a provisional message, and the entry that replaces the provisional one."""
    with open_writer(spark, path) as first:
        first.begin()
        both = [message(uid, "c2s", n) for n in (0, 1)] + [message(uid, "s2c", 0)]
        first.append("connections", rows("connections", first.ingest_id, {"uid": uid, "app": "old"}))
        first.append("messages", rows("messages", first.ingest_id, *both))
        first.commit()
    return first, Superseded(uid, 1, 1, 0)


@pytest.mark.parametrize("dies", [False, True], ids=["cleaned", "killed between commit and clean-up"])
def test_replaced_rows(spark: SparkSession, path: str, dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = f"Creplaced{dies}"
    _, entry = superseding(spark, path, uid)

    class Died(Exception):
        pass

    def die(name: str) -> None:
        if dies and name == "after commit":
            raise Died

    monkeypatch.setattr(lake_module, "failpoint", die)
    try:
        with open_writer(spark, path) as second:
            second.begin()
            second.append("connections", rows("connections", second.ingest_id, {"uid": uid, "app": "new"}))
            second.append("messages", rows("messages", second.ingest_id, message(uid, "c2s", 1)))
            second.commit([entry])
    except Died:
        assert dies
    monkeypatch.undo()

    def seen() -> tuple[list[str], list[tuple[str, int, int]]]:
        lake = Lake(spark, path)
        connections = lake.connections.where(f"uid = '{uid}'").collect()
        messages = lake.messages.where(f"uid = '{uid}'").collect()
        return [r["app"] for r in connections], sorted((r["direction"], r["msg_no"], r["ingest_id"]) for r in messages)

    first_id = second.ingest_id - 1
    expected = ["new"], [("c2s", 0, first_id), ("c2s", 1, second.ingest_id), ("s2c", 0, first_id)]
    assert seen() == expected
    with open_writer(spark, path):  # heals, if there is something to heal
        pass
    assert seen() == expected
    raw = deltalake.DeltaTable(f"{path}/messages").to_pyarrow_table().to_pylist()
    assert len([r for r in raw if r["uid"] == uid]) == 3


def test_many_replaced_connections_go_by_merge(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = "Cmerged"
    _, entry = superseding(spark, path, uid)
    monkeypatch.setattr(lake_module, "MERGE_FROM", 0)
    ingest(spark, path, [uid], [entry])
    lake = Lake(spark, path)
    assert lake.connections.where(f"uid = '{uid}'").count() == 1
    assert lake.messages.where(f"uid = '{uid}'").count() == 2


def test_the_second_writer_says_who_holds_the_lake(spark: SparkSession, path: str) -> None:
    refusal = pytest.raises(UserError, match=r"process \d+.* is writing to the lake")
    with writer_lock(spark, path, 0), refusal, writer_lock(spark, path, 0):
        pass


def test_the_second_writer_waits(spark: SparkSession, path: str) -> None:
    got = threading.Event()

    def second() -> None:
        with writer_lock(spark, path, 60):
            got.set()

    thread = threading.Thread(target=second)
    with writer_lock(spark, path, 0):
        thread.start()
        assert not got.wait(0.5)
    thread.join(30)
    assert got.is_set()


def test_a_lease_guards_a_lake_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    from rtmp_spark.spark.lock import _lease

    lake = str(tmp_path / "lake")
    with _lease(spark, lake, 0), pytest.raises(UserError, match="is writing to the lake"), _lease(spark, lake, 0):
        pass
    with _lease(spark, lake, 0):
        pass


def test_what_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(UserError, match="no lake"):
        Lake(spark, str(tmp_path))
    with pytest.raises(UserError, match="is no lake: it holds 'letters'"), open_writer(spark, str(tmp_path)):
        pass


def test_a_lake_of_a_newer_version(spark: SparkSession, path: str) -> None:
    name = delta_name(f"{path}/_ingests")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('rtmp_spark.schema_version' = '999')")
    try:
        with pytest.raises(UserError, match="newer rtmp-spark"):
            Lake(spark, path)
    finally:
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('rtmp_spark.schema_version' = '1')")


def test_the_key_of_the_hashes_is_in_no_property(spark: SparkSession, tmp_path: Path) -> None:
    """Spark logs the properties of tables; that of an older lake is moved by the next ingest."""
    path = str(tmp_path / "a [lake] {of} *?")
    ingest(spark, path, ["Cfirst"])
    kept = Lake(spark, path).redact_key
    assert len(kept) == 32
    old, name = bytes(range(32)), delta_name(f"{path}/_ingests")
    assert "rtmp_spark.redact_key" not in Lake(spark, path).properties
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('rtmp_spark.redact_key' = '{old.hex()}')")
    assert Lake(spark, path).redact_key == old
    ingest(spark, path, ["Csecond"])
    assert old.hex() not in Lake(spark, path).properties.values()
    assert Lake(spark, path).redact_key == old
