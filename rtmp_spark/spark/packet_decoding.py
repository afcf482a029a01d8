"""`decode_packets(df)`: a table of the connections in a DataFrame of packets, whatever its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rtmp_spark.analysis.packet_table import DECODED, OPTIONAL, PLACE, REQUIRED, PacketTable, decoded_schema
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.spark.sources.source_options import without_lake

from .arrow_types import spark_schema

_FIRST = "file_began_ns"


def decode_packets(
    packets: DataFrame, table: str = "messages", options: IngestOptions | None = None, **fields: Any
) -> DataFrame:
    """The rows of a table, decoded from packets with the columns of `format("pcap")` and its option `payload`.

    Each connection is decoded alone, from its packets in the order of their files and frames (without `path` and
    `frame`: of their times). Rows equal those of `inspect`, except for what needs other connections or more than
    packets: every stream counts as a first attempt, rules across connections do not apply, RTMPT sessions over several
    connections are not joined, and TLS secrets inside a capture are not used. `capture_id` is the path. A task holds
    open connections, not their packets.
    """
    if table not in DECODED:
        raise UserError(f"Unknown table {table!r}.", f"Use one of {', '.join(DECODED)}.")
    if "ts" in packets.columns and "ts_ns" not in packets.columns:
        packets = packets.withColumn("ts_ns", F.unix_micros("ts") * 1000)
    missing = [name for name in REQUIRED if name not in packets.columns]
    if missing:
        raise UserError(
            f"The packets have no column {missing[0]}.",
            'Read them with spark.read.format("pcap").option("payload", "true"), or add columns of those names.',
        )
    chosen = without_lake(replace(options or IngestOptions(), keep_payloads=table == "payloads", **fields))
    schema = decoded_schema(table)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return PacketTable(chosen.settings(), table).rows(batches)

    return _by_connection(packets).mapInArrow(decode, spark_schema(schema))


def _by_connection(packets: DataFrame) -> DataFrame:
    """TCP packets; those of a connection are in one partition, in their order."""
    columns = [name for name in (*REQUIRED, *OPTIONAL, *PLACE) if name in packets.columns]
    order: list[Any] = ["ts_ns"]
    place = [F.col(name) for name in ("frame", "record_offset") if name in columns]
    if "path" in columns and place:
        began = packets.groupBy("path").agg(F.min_by("ts_ns", _first_of(place)).alias(_FIRST))
        packets = packets.join(F.broadcast(began), "path", "left")
        order = [_FIRST, "path", _first_of(place)]
    ends = [F.concat_ws(" ", "src", "sport"), F.concat_ws(" ", "dst", "dport")]
    is_tcp = F.col("src").isNotNull() & F.col("sport").isNotNull()
    spread = packets.where(is_tcp).repartition(F.least(*ends), F.greatest(*ends))
    return spread.sortWithinPartitions(*order).select(columns)


def _first_of(place: list[Column]) -> Column:
    return F.coalesce(*place)
