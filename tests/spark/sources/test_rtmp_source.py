"""`format("rtmp")`: the rows that the sequential analysis gives for each file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.codec.errors import UserError
from rtmp_spark.redact import KEY_VARIABLE, Redactor
from rtmp_spark.schema import arrow_schema
from rtmp_spark.spark import register
from rtmp_spark.spark.arrow_types import spark_schema
from rtmp_spark.spark.sources.rtmp_source import TABLES, RtmpReader
from rtmp_spark.spark.sources.source_options import SourceOptions

KEY = "a key for tests"
SAMPLES = Path(__file__).parents[3] / "sample_pcaps"
CAPTURES = sorted(p for p in SAMPLES.iterdir() if ".pcap" in p.name)
PLAYED = SAMPLES / "ffmpeg_publish_bframes_rtmpdump_play.pcap"
UID = StructType([StructField("uid", StringType())])
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def rows(reader: RtmpReader) -> Rows:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert all(batch.schema == reader.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def reader(path: Path, table: str, columns: list[str] | None = None, **options: str) -> RtmpReader:
    fields = [arrow_schema(table).field(name) for name in columns or arrow_schema(table).names]
    return RtmpReader(SourceOptions({"path": str(path), "table": table, **options}), spark_schema(pa.schema(fields)))


def sequential(path: Path) -> dict[str, Rows]:
    found: dict[str, Rows] = {name: [] for name in TABLES}
    settings = Settings(redactor=Redactor(KEY.encode()), keep_payloads=True)
    for table, batch in Recording([path], settings, TABLES).batches():
        found[table] += batch.to_pylist()
    return found


def in_order(found: Rows) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.slow
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_rows_are_those_of_the_sequential_analysis(path: Path) -> None:
    expected = sequential(path)
    for table in TABLES:
        assert in_order(rows(reader(path, table))) == in_order(expected[table]), table
    messages = expected["messages"]
    of_type = [row for row in messages if row["type_id"] in (8, 20)]
    assert in_order(rows(reader(path, "messages", type="audio, 20"))) == in_order(of_type)
    for uid in {row["uid"] for row in messages}:
        of_one = [row for row in messages if row["uid"] == uid]
        assert in_order(rows(reader(path, "messages", uid=uid))) == in_order(of_one), uid


def test_chosen_connections_and_times() -> None:
    expected = sequential(PLAYED)
    first, second = expected["connections"]
    of_second = [row for row in expected["messages"] if row["uid"] == second["uid"]]
    assert in_order(rows(reader(PLAYED, "messages", uid=second["uid"]))) == in_order(of_second)
    assert in_order(rows(reader(PLAYED, "messages", PORT=str(second["orig_p"])))) == in_order(of_second)
    assert [row["uid"] for row in rows(reader(PLAYED, "connections", port=str(first["orig_p"])))] == [first["uid"]]
    until = first["ts_start"].isoformat()
    early = [row for row in expected["messages"] if row["ts_first"] <= first["ts_start"]]
    assert in_order(rows(reader(PLAYED, "messages", until=until))) == in_order(early)


def test_fewer_columns() -> None:
    found = rows(reader(PLAYED, "messages", columns=["type_id", "uid"]))
    assert in_order(found) == in_order(
        [{"type_id": row["type_id"], "uid": row["uid"]} for row in sequential(PLAYED)["messages"]]
    )


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    for options, text in (
        ({"table": "tags"}, "Unknown table 'tags'. Use one of captures, connections, "),
        ({"host": "example"}, "Invalid address 'example'. Use 192.0.2.1 or 2001:db8::1."),
        ({"type": "sound"}, r"Unknown message type 'sound'\. Use numbers or set_chunk_size, abort, "),
        ({"table": "streams", "type": "9"}, r"The table streams has no message types\. "),
        ({"since": "10:00"}, "Invalid time '10:00'. Use 2026-01-31T12:00:00."),
    ):
        with pytest.raises(UserError, match=text):
            RtmpReader(SourceOptions({"path": "a.pcap", **options}), UID)
    with pytest.raises(UserError, match=r"The table messages has no column 'size'\. Its columns are uid, "):
        RtmpReader(SourceOptions({"path": "a.pcap"}), StructType([*UID, StructField("size", LongType())]))
    with pytest.raises(UserError, match=r"The column uid has the type string, not bigint\. Cast it after reading."):
        RtmpReader(SourceOptions({"path": "a.pcap"}), StructType([StructField("uid", LongType())]))
    with pytest.raises(UserError, match=r"No capture was given\."):
        RtmpReader(SourceOptions({}), UID)
    (tmp_path / "b.pcap").write_text("not a capture")
    with pytest.raises(UserError, match=r"b\.pcap cannot be decoded: "):
        rows(reader(tmp_path / "b.pcap", "messages"))
    assert [row["status"] for row in rows(reader(tmp_path / "b.pcap", "captures"))] == ["failed"]
    assert list(reader(tmp_path / "b.pcap", "messages").read(InputPartition(None))) == []


def test_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    shutil.copy(PLAYED, tmp_path / "a.pcap")
    load = spark.read.format("rtmp")
    expected = sequential(tmp_path / "a.pcap")
    messages = load.load(str(tmp_path))
    assert messages.where("type_id = 8").count() < len(expected["messages"])
    assert in_order(messages.toArrow().to_pylist()) == in_order(expected["messages"]), "a filter stays with its query"
    view = f"CREATE OR REPLACE TEMPORARY VIEW f USING rtmp OPTIONS (path '{tmp_path}/*.pcap', table 'findings')"
    spark.sql(view)
    assert spark.table("f").count() == len(expected["findings"])
    uid = expected["connections"][0]["uid"]
    kept = load.schema("uid STRING, type_id INT").load(str(tmp_path)).where(f"uid = '{uid}' AND type_id = 9")
    assert kept.count() == sum(row["uid"] == uid and row["type_id"] == 9 for row in expected["messages"])


def test_mistakes_in_spark_are_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    """Spark puts the place where an error is raised before it; frames and causes below that are left out."""
    register(spark)
    shutil.copy(PLAYED, tmp_path / "a.pcap")
    (tmp_path / "broken.pcap").symlink_to(tmp_path / "gone.pcap")
    (tmp_path / "b.pcap").write_text("not a capture")
    shutil.copy(PLAYED, tmp_path / "deleted.pcap")
    planned = spark.read.format("rtmp").load(str(tmp_path / "deleted.pcap"))
    assert planned.count() > 0
    (tmp_path / "deleted.pcap").unlink()

    def load(name: str, source: str = "rtmp", **options: str) -> DataFrame:
        return spark.read.format(source).options(**options).load(str(tmp_path / name))

    for query, text in (
        (lambda: load("a.pcap", table="tags"), "Unknown table 'tags'. Use one of captures, "),
        (lambda: load("mistyped.pcap").count(), "mistyped.pcap' does not exist. Check the path."),
        (lambda: load("broken.pcap").count(), "broken.pcap' does not exist. Check the path."),
        (lambda: load("b.pcap").count(), "b.pcap cannot be decoded: this is not a capture file"),
        (lambda: load("b.pcap", "pcap").count(), "b.pcap cannot be read: this is not a capture file"),
        (planned.count, "deleted.pcap'. Check the path."),
    ):
        with pytest.raises(PySparkException) as failure:
            query()
        assert text in str(failure.value)
        assert str(failure.value).count("\n  File ") <= 2
        assert "\tat " not in str(failure.value), "a Java stack trace"
