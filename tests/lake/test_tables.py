"""The Delta tables of a lake: made from the schema, extended when it grows, refused when they do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.lake_rows import made_rows, publish_rows

from rtmp_spark import schema
from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake import tables
from rtmp_spark.lake.commit import Marker
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.tables import LEDGER_SCHEMA, create_lake
from rtmp_spark.lake.writer import open_writer
from rtmp_spark.schema import TABLES, arrow_schema


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_comments_and_properties_of_the_schema(lake: Location, name: str) -> None:
    handle = DeltaTable(lake.table(name))
    protocol = handle.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    fields = handle.schema().fields
    assert [(f.name, f.nullable, f.metadata["comment"]) for f in fields] == [
        (c.name, c.nullable, c.comment) for c in TABLES[name].columns
    ]
    found = pa.schema(handle.schema().to_arrow())
    assert [f.type for f in found] == [f.type for f in arrow_schema(name)] or name in ("captures", "connections")
    properties = handle.metadata().configuration
    assert properties["delta.dataSkippingStatsColumns"] == ",".join(TABLES[name].stats)
    assert properties["delta.enableExpiredLogCleanup"] == "false"
    assert handle.metadata().partition_columns == [] and handle.metadata().description == TABLES[name].comment


def test_creating_a_lake_twice_keeps_the_first(tmp_path: Path) -> None:
    location = locate(tmp_path / "lake")
    create_lake(location)
    key = open_lake(location).redact_key
    publish_rows(location, {"messages": made_rows("messages")})
    with pytest.raises(UserError):
        create_lake(location)
    assert open_lake(location).redact_key == key and open_lake(location).messages.count_rows() == 1


@pytest.mark.parametrize("moment", ["load_key", "create_table"])
def test_two_creators_at_once_make_one_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """While one creates a lake, another process does all of it: before or after the first has stored its key."""
    location = locate(tmp_path / "lake")
    monkeypatch.delenv("RTMP_SPARK_REDACT_KEY", raising=False)
    keys = iter(["second" * 4, "first" * 4] if moment == "load_key" else ["first" * 4, "second" * 4])
    monkeypatch.setattr(tables, "load_key", lambda: next(keys).encode())
    real = getattr(tables, moment)

    def overtaken(*args: object) -> object:
        monkeypatch.setattr(tables, moment, real)
        create_lake(location)
        return real(*args)

    monkeypatch.setattr(tables, moment, overtaken)
    create_lake(location)
    assert open_lake(location).redact_key == b"second" * 4
    assert all(DeltaTable(location.table(name)).version() == 0 for name in TABLES)


def test_the_key_is_in_no_log(lake: Location) -> None:
    key = open_lake(lake).redact_key.hex()
    logs = [path.read_text() for path in Path(lake.uri).rglob("*.json")]
    assert logs and not any(key in text for text in logs)


def test_another_key_in_the_environment_is_not_used(
    lake: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One name would get two hashes."""
    monkeypatch.delenv("RTMP_SPARK_REDACT_KEY", raising=False)
    key = open_lake(lake).redact_key
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "another")
    assert open_lake(lake).redact_key == key
    assert "hashed with the key of the lake" in capsys.readouterr().err


def test_a_lake_without_its_key_is_refused(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTMP_SPARK_REDACT_KEY", raising=False)
    for path in Path(lake.uri, "_redact").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"lacks its key .*RTMP_SPARK_REDACT_KEY"):
        _ = open_lake(lake).redact_key
    monkeypatch.setenv("RTMP_SPARK_REDACT_KEY", "given")
    assert open_lake(lake).redact_key == b"given"


@pytest.fixture(autouse=True)
def tables_in_order() -> Iterator[None]:
    """monkeypatch puts a table that it had deleted at the end; the order is that of the documentation."""
    before = dict(TABLES)
    yield
    TABLES.clear()
    TABLES.update(before)


def older_schema(monkeypatch: pytest.MonkeyPatch, without: str, drop_table: str | None = None) -> None:
    """Make this version know one column of `messages` less, and one table less."""
    old = replace(TABLES["messages"], columns=tuple(c for c in TABLES["messages"].columns if c.name != without))
    monkeypatch.setitem(TABLES, "messages", old)
    monkeypatch.setitem(schema._ARROW_SCHEMAS, "messages", old.arrow_schema())
    if drop_table:
        monkeypatch.delitem(TABLES, drop_table)


def test_columns_and_tables_that_an_older_lake_lacks_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = locate(tmp_path / "lake")
    with monkeypatch.context() as older:
        older_schema(older, "payload_crc32", "deliveries")
        publish_rows(location, {"messages": made_rows("messages", "C1")})
        held = open_lake(location).messages
    lake = open_lake(location)
    assert lake.messages.to_table()["payload_crc32"].to_pylist() == [None], "readable before it is extended"
    assert lake.deliveries.count_rows() == 0
    publish_rows(location, {n: made_rows(n, "C2") for n in ("messages", "deliveries")})
    lake = open_lake(location)
    rows = lake.messages.to_table().sort_by("uid")
    assert rows["payload_crc32"].to_pylist() == [None, 0] and lake.deliveries.count_rows() == 1
    added = DeltaTable(location.table("messages")).schema().fields[-1]
    assert (added.name, added.nullable) == ("payload_crc32", True) and added.metadata["comment"]
    assert held.count_rows() == 1


def test_a_lake_of_a_newer_version_with_more_columns_can_be_read_and_written(
    lake: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_rows(lake, {"messages": made_rows("messages", "C1")})
    older_schema(monkeypatch, "payload_crc32")
    assert "payload_crc32" in open_lake(lake).messages.schema.names
    # it may not be null there, so an older version cannot fill it; a column that was added later could be
    assert open_lake(lake).messages.to_table()["payload_crc32"].to_pylist() == [0]


def handmade(path: Path, properties: dict[str, str]) -> Location:
    DeltaTable.create(str(path / "_ingests"), LEDGER_SCHEMA, configuration=properties, raise_if_key_not_exists=False)
    return locate(path)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"rtmp_spark.layout": "3", "rtmp_spark.schema_version": "1"}, "made by a newer rtmp-spark .* Upgrade"),
        ({"rtmp_spark.layout": "2", "rtmp_spark.schema_version": "99"}, "made by a newer rtmp-spark .* Upgrade"),
        ({"rtmp_spark.schema_version": "1"}, "made by an older rtmp-spark .* into a new lake"),
        ({}, "is not a lake of rtmp-spark"),
        ({"rtmp_spark.schema_version": "one"}, "is not a lake of rtmp-spark"),
    ],
)
def test_lakes_of_other_versions_are_refused(tmp_path: Path, properties: dict[str, str], sentence: str) -> None:
    location = handmade(tmp_path / "lake", properties)
    with pytest.raises(UserError, match=sentence):
        open_lake(location)
    with pytest.raises(UserError, match=sentence):
        publish_rows(location, {"messages": made_rows("messages")})


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="is not a lake: it contains 'photos'"):
        publish_rows(locate(tmp_path), {"messages": made_rows("messages")})
    assert not (tmp_path / "messages").exists()


def test_a_foreign_delta_table_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "messages"), pa.schema([("uid", pa.string())]))
    with pytest.raises(UserError, match="did not create its Delta table 'messages'"):
        publish_rows(locate(tmp_path), {"messages": made_rows("messages")})


def test_a_column_of_another_type_is_refused(lake: Location) -> None:
    shutil.rmtree(Path(lake.uri, "messages"))
    fields = [f.with_type(pa.string()) if f.name == "length" else f for f in arrow_schema("messages")]
    marked = Marker("somewhere", "else").properties()
    DeltaTable.create(lake.table("messages"), pa.schema(fields), commit_properties=marked)
    with pytest.raises(UserError, match=r"messages\.length .* is string, not int64"):
        publish_rows(lake, {"messages": made_rows("messages")})


def test_a_table_made_by_hand_in_place_of_ours_is_refused(lake: Location) -> None:
    shutil.rmtree(Path(lake.uri, "messages"))
    DeltaTable.create(lake.table("messages"), arrow_schema("messages"))
    with pytest.raises(UserError, match=r"'messages' .* another program wrote it"):
        publish_rows(lake, {"messages": made_rows("messages")})


@pytest.mark.parametrize("name", ["", "notes.txt"])
def test_another_directory_or_a_file_is_refused_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a lake")
    with pytest.raises(UserError, match=r"is not a lake|is a file"), open_writer(locate(tmp_path / name)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
