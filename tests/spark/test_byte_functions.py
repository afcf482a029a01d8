"""The SQL functions over bytes give what the golden vectors expect; one query uses them all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.tag_vectors import vector
from pyspark.sql import SparkSession
from pyspark.sql.variant_utils import VariantUtils

import rtmp_spark.vectors
from rtmp_spark.spark import byte_functions
from rtmp_spark.spark.byte_functions import MESSAGES, MessageTable, read_amf0, read_amf3, read_flv, read_media
from rtmp_spark.vectors.layers import bytes_of

VECTORS = Path(rtmp_spark.vectors.__file__).parent
HANDSHAKE = b"\x03" + bytes(2 * 1536)


def valid(layer: str) -> list[Any]:
    return [pytest.param(vector(path), id=path.stem) for path in sorted((VECTORS / "valid" / layer).glob("*.json"))]


def variant(row: dict[str, Any]) -> Any:
    return json.loads(VariantUtils.to_json(row["values"]["value"], row["values"]["metadata"]))


@pytest.mark.parametrize("given", [*valid("amf0"), *valid("amf3")])
def test_amf_values_are_those_of_the_vectors(given: dict[str, Any]) -> None:
    read = read_amf0 if given["layer"] == "amf0" else read_amf3
    (row,) = read(pa.array([bytes_of(given["input"])])).to_pylist()
    assert variant(row) == given["expect"]["values"]
    if "infos" in given["expect"]:  # without it a vector says nothing about them
        assert [text.split(":")[0] for text in row["violations"]] == given["expect"]["infos"]


def test_damaged_amf_gives_values_and_violations() -> None:
    """A number, then an object that ends inside its first name."""
    data = bytes.fromhex("003ff000000000000003000561")
    damaged, nothing = read_amf0(pa.array([data, None], pa.binary())).to_pylist()
    assert variant(damaged)[0] == 1
    assert damaged["violations"][0].startswith("AMF_TRUNCATED: ")
    assert nothing is None


def is_alone(given: dict[str, Any]) -> bool:
    """Whether a vector needs no earlier messages."""
    return "type_id" in given["start"] and not given.get("prelude")


@pytest.mark.parametrize("given", [param for param in valid("tag") if is_alone(param.values[0])])  # type: ignore[arg-type]
def test_media_tags_are_those_of_the_vectors(given: dict[str, Any]) -> None:
    expected = given["expect"]
    type_id = pa.array([given["start"]["type_id"]])
    (row,) = read_media(type_id, pa.array([bytes_of(given["input"])])).to_pylist()
    assert len(row["tags"]) == len(expected["tags"])
    for tag, wanted in zip(row["tags"], expected["tags"]):
        assert {name: tag[name] for name in wanted if name in tag} == {n: v for n, v in wanted.items() if n in tag}


def test_flv_tags_are_those_of_the_vector() -> None:
    """Their media tags are checked above; here the sizes of their payloads, and files that are damaged."""
    given = vector(VECTORS / "valid" / "flv" / "h264_aac.json")
    data = bytes_of(given["input"])
    whole, cut, other = read_flv(pa.array([data, data[:-30], b"RIFF"])).to_pylist()
    media = [tag for tag in whole["tags"] if tag["type_id"] in (8, 9)]
    assert [tag["timestamp"] for tag in media] == [tag["dts"] for tag in given["expect"]["tags"]]
    assert {tag["type_id"] for tag in whole["tags"]} == {8, 9, 18} and whole["violations"] == []
    assert len(cut["tags"]) == len(whole["tags"]) - 2 and cut["violations"][0].startswith("CAPTURE_TRUNCATED: ")
    assert other["tags"] == [] and "does not start with FLV" in other["violations"][0]


def streams(*rows: tuple[str, bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"stream": key, "data": data} for key, data in rows], _STREAMS)


_STREAMS = pa.schema([("stream", pa.string()), ("data", pa.binary())])


@pytest.mark.parametrize("name", ["contract_2_three_chunks", "contract_4_interleaved", "aggregate"])
def test_messages_of_a_byte_stream_are_those_of_the_vectors(name: str) -> None:
    """In one row, or cut into rows between those of another stream."""
    given = vector(VECTORS / "valid" / "chunk" / f"{name}.json")
    data = HANDSHAKE + bytes_of(given["input"])
    expected = given["expect"]["messages"]
    pieces = [data[at : at + 700] for at in range(0, len(data), 700)]
    cut = [row for piece in pieces for row in (("a", piece), ("b", None), ("c", piece))]
    for batches in ([streams(("a", data))], [streams(row) for row in cut], [streams(*cut)]):
        table = MessageTable()
        found = pa.concat_tables([*(t for b in batches for t in table.eval(b)), *table.terminate()])
        assert found.schema == MESSAGES
        rows = [row for row in found.to_pylist() if row["stream"] == "a"]
        assert [row["msg_no"] for row in rows] == list(range(len(expected)))
        for row, wanted in zip(rows, expected, strict=True):
            row["payload_sha256"] = hashlib.sha256(row["payload"]).hexdigest()
            row["payload_hex"] = row["payload"].hex()
            assert {key: row[key] for key in wanted if key in row} == {k: v for k, v in wanted.items() if k in row}


def test_a_table_without_the_columns_is_refused() -> None:
    rows = pa.RecordBatch.from_pylist([{"stream": "a", "bytes": b""}])
    with pytest.raises(ValueError, match="rtmp_messages needs the columns stream and data; data is missing"):
        list(MessageTable().eval(rows))


def test_a_text_in_place_of_bytes_is_refused() -> None:
    """Read as bytes, it would only give violations. A message type may be a text or any number."""
    texts = pa.array(["0200"])
    for read in (read_amf0, read_amf3, read_flv, lambda column: read_media(pa.array([9]), column)):
        with pytest.raises(TypeError, match="needs bytes, not a column of type string; unhex and unbase64"):
            read(texts)
    (row,) = read_media(pa.array(["8"]), pa.array([bytes.fromhex("af00119056e500")])).to_pylist()
    assert row["tags"][0]["codec"] == "aac"
    assert read_amf0(pa.nulls(1)).to_pylist() == [None]


def test_in_sql_and_over_columns(spark: SparkSession) -> None:
    byte_functions.register_functions(spark)
    chunks = vector(VECTORS / "valid" / "chunk" / "contract_2_three_chunks.json")
    file = vector(VECTORS / "valid" / "flv" / "h264_aac.json")
    data = HANDSHAKE + bytes_of(chunks["input"])
    rows = [("a", 1, data[3000:]), ("a", 0, data[:3000]), ("b", 0, data)]
    spark.createDataFrame(rows, "conn string, seq int, bytes binary").createOrReplaceTempView("pieces")
    spark.createDataFrame([(bytes_of(file["input"]),)], "content binary").createOrReplaceTempView("files")
    found = spark.sql(
        "SELECT stream, csid, timestamp, length FROM rtmp_messages("
        "TABLE(SELECT conn AS stream, bytes AS data, seq FROM pieces) PARTITION BY stream ORDER BY seq)"
    ).collect()
    assert sorted(map(tuple, found)) == [("a", 6, 2000, 384), ("b", 6, 2000, 384)]
    spark.sql("SELECT inline(flv_tags(content).tags) FROM files").createOrReplaceTempView("tags")
    codecs = spark.sql("SELECT DISTINCT rtmp_tag(type_id, payload).tags[0].codec FROM tags WHERE type_id <> 18")
    assert sorted(codec for (codec,) in codecs.collect()) == ["aac", "avc"]
    script = spark.sql("SELECT amf0(payload).values:[0]::string FROM tags WHERE type_id = 18")
    assert [name for (name,) in script.collect()] == ["onMetaData"]
    media = spark.table("files").select(byte_functions.flv_tags("content")["tags"][1]["type_id"].alias("type_id"))
    assert [row["type_id"] for row in media.collect()] == [9]
