"""Packets as rows, in any division of the connections, give the rows of the sequential analysis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import hex, lit

from rtmp_spark.analysis.packet_table import DECODED, PacketTable
from rtmp_spark.analysis.recording import Recording
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark import decode_packets, register
from rtmp_spark.spark.sources.pcap_reader import PcapReader
from rtmp_spark.spark.sources.source_options import SourceOptions

COMPARED = tuple(name for name in DECODED if name != "payloads")
PARTITIONS = 3
ATTEMPTS = {"attempt_no": 1, "prev_uid": None, "down_ms": None}  # they compare connections
SAMPLES = Path(__file__).parents[2] / "sample_pcaps"
CAPTURES = sorted(p.name for p in SAMPLES.iterdir() if ".pcap" in p.name and "secrets_inside" not in p.name)
SINGLE = [name for name in CAPTURES if "rotated" not in name]
ROTATED = [name for name in CAPTURES if "rotated" in name]
Rows = list[dict[str, Any]]


def packets(paths: Iterable[Path], **options: str) -> pa.Table:
    batches = []
    for path in paths:
        given = {"path": str(path), "payload": "true", "splitSize": "0", **options}
        reader = PcapReader(SourceOptions(given))
        batches += [batch for partition in reader.partitions() for batch in reader.read(partition)]
    table = pa.Table.from_batches(batches)
    return table.filter(pc.is_valid(table["src"]))


def partitions(table: pa.Table) -> list[pa.Table]:
    """All packets of a connection in one of them."""
    ends = zip(*(table[name].to_pylist() for name in ("src", "sport", "dst", "dport")))
    number = {key: n for n, key in enumerate({frozenset(((a, b), (c, d))): 0 for a, b, c, d in ends})}
    ends = zip(*(table[name].to_pylist() for name in ("src", "sport", "dst", "dport")))
    chosen = pa.array([number[frozenset(((a, b), (c, d)))] % PARTITIONS for a, b, c, d in ends])
    return [table.filter(pc.equal(chosen, n)) for n in range(PARTITIONS)]


def decoded(parts: Iterable[pa.Table], table: str) -> Rows:
    batches = [b for part in parts for b in PacketTable(Settings(), table).rows(part.to_batches(max_chunksize=500))]
    return [row for batch in batches for row in batch.to_pylist()]


def sequential(paths: Iterable[Path]) -> dict[str, Rows]:
    """The rows of connections, with paths in place of capture ids."""
    found: dict[str, Rows] = {name: [] for name in COMPARED}
    settings = Settings(rules_across_connections=False)
    for table, batch in Recording(paths, settings, COMPARED, identify=False).batches():
        rows = [row for row in batch.to_pylist() if row.get("uid") is not None]
        found[table] += [row | ATTEMPTS for row in rows] if table == "streams" else rows
    return found


def in_order(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("names", [[name] for name in SINGLE] + [ROTATED], ids=lambda names: names[0])
def test_rows_are_those_of_the_sequential_analysis(names: list[str]) -> None:
    paths = [SAMPLES / name for name in names]
    expected = sequential(paths)
    parts = partitions(packets(paths))
    for table in COMPARED:
        assert in_order(decoded(parts, table)) == in_order(expected[table]), table


def test_packets_without_places_and_headers() -> None:
    """Other tools have neither files nor frame numbers; these columns are then empty, all others are the same."""
    path = SAMPLES / "ffmpeg_publish_h264_aac.pcap"
    given = packets([path]).drop_columns(["path", "frame", "record_offset", "tcp_header", "vlan", "payload_missing"])
    unknown = {"capture_id": None, "capture_id_last": None, "frame_first": None, "frame_last": None}
    expected = [row | unknown for row in sequential([path])["messages"]]
    assert expected
    assert in_order(decoded(partitions(given), "messages")) == in_order(expected)


def test_a_dataframe_of_packets(spark: SparkSession) -> None:
    """Read in byte ranges, so without frame numbers; and the rows of a recording of three files.

    Case does not matter in names, nor do packets that lack an end.
    """
    register(spark)
    paths = [SAMPLES / name for name in ROTATED]
    read = spark.read.format("pcap").option("payload", "true").option("splitSize", "40000")
    rows = read.load([str(path) for path in reversed(paths)])
    rows = rows.union(rows.withColumn("dst", lit(None))).withColumnsRenamed({"src": "SRC", "ts": "time"})
    found = decode_packets(rows, keep_secrets=True).toArrow().to_pylist()
    expected = [row | {"frame_first": None, "frame_last": None} for row in sequential(paths)["messages"]]
    assert in_order(found) == in_order(expected)
    with pytest.raises(UserError, match=r"The packets have no column payload. Read them with "):
        decode_packets(spark.read.format("pcap").load(str(paths[0])))
    with pytest.raises(UserError, match=r"The column payload of the packets has the type string, not binary. unhex "):
        decode_packets(rows.withColumn("payload", hex("payload")))
    with pytest.raises(UserError, match=r"Unknown table 'captures'. Use one of connections, "):
        decode_packets(read.load(str(paths[0])), "captures")
