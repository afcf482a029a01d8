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
_KNOWN = {*REQUIRED, *OPTIONAL, *PLACE, "ts"}
_TYPES = {"payload": "binary", "tcp_header": "binary", "src": "string", "dst": "string"}
_ENDS = ("src", "sport", "dst", "dport")


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
    packets = _checked(packets)
    chosen = without_lake(replace(options or IngestOptions(), keep_payloads=table == "payloads", **fields))
    schema = decoded_schema(table)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return PacketTable(chosen.settings(), table).rows(batches)

    return _by_connection(packets).mapInArrow(decode, spark_schema(schema))


def _checked(packets: DataFrame) -> DataFrame:
    """The packets, with `ts_ns` and with the names that we use. A text in place of bytes would decode to nothing."""
    packets = packets.select([F.col(name).alias(name.lower()) for name in packets.columns if name.lower() in _KNOWN])
    types = dict(packets.dtypes)
    if "ts" in types and "ts_ns" not in types:
        packets = packets.withColumn("ts_ns", F.unix_micros("ts") * 1000)
        types["ts_ns"] = "bigint"
    for name in REQUIRED:
        if name not in types:
            raise UserError(
                f"The packets have no column {name}.",
                'Read them with spark.read.format("pcap").option("payload", "true"), or add columns of those names.',
            )
    for name, wanted in _TYPES.items():
        if types.get(name, wanted) != wanted:
            remedy = (
                "unhex and unbase64 convert texts." if wanted == "binary" else "Addresses are texts as in 192.0.2.1."
            )
            raise UserError(f"The column {name} of the packets has the type {types[name]}, not {wanted}.", remedy)
    return packets


def _by_connection(packets: DataFrame) -> DataFrame:
    """Packets with both ends (others are not TCP); those of a connection are in one partition, in their order."""
    columns = [name for name in (*REQUIRED, *OPTIONAL, *PLACE) if name in packets.columns]
    order: list[Any] = ["ts_ns"]
    place = [F.col(name) for name in ("frame", "record_offset") if name in columns]
    if "path" in columns and place:
        began = packets.groupBy("path").agg(F.min_by("ts_ns", _first_of(place)).alias(_FIRST))
        packets = packets.join(F.broadcast(began), "path", "left")
        order = [_FIRST, "path", _first_of(place)]
    ends = [F.concat_ws(" ", "src", "sport"), F.concat_ws(" ", "dst", "dport")]
    spread = packets.dropna(subset=_ENDS).repartition(F.least(*ends), F.greatest(*ends))
    return spread.sortWithinPartitions(*order).select(columns)


def _first_of(place: list[Column]) -> Column:
    return F.coalesce(*place)
