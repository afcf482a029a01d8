"""From an index to rows that can be written: in the driver where they are few, else as staged Parquet in the lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.schema import arrow_schema

from . import passes
from .failpoint import failpoint
from .lake import Writer
from .tables import no_glob, spark_schema

COLLECT_BYTES = 256 << 20  # of input; below it rows come to the driver, which writes small tables quicker
SMALL_TABLE = 8 << 20  # of staged rows; up to here they do so from a large input too
SEEN_TOGETHER = ("connections", "streams", "findings")  # always in the driver: what several connections show


@dataclass
class Decoded:
    rows: dict[str, pa.Table] = field(default_factory=dict)  # in the driver
    large: dict[str, DataFrame] = field(default_factory=dict)  # staged, to be written by executors
    accounts: list[dict[str, Any]] = field(default_factory=list)  # of the buckets
    crashed: list[tuple[int, str]] = field(default_factory=list)  # groups that kill their worker, and how
    staged: bool = False  # something lies in the lake's staging directory


def decode(
    spark: SparkSession, decoder: passes.Decoder, index: pa.Table, writer: Writer, cores: int, input_bytes: int
) -> Decoded:
    """The rows of all buckets, wherever they fit."""
    if not index.num_rows:
        return Decoded()
    groups, ingest_id = decoder.buckets.groups, writer.ingest_id
    if input_bytes <= COLLECT_BYTES:
        found: list[pa.Table] = []
        crashed = decoder.run(index, groups, lambda staged: found.append(staged.toArrow()))
        parts = pa.concat_tables(found) if found else decoder.schema.empty_table()
        return Decoded(passes.collected(parts, decoder.tables, ingest_id), {}, passes.accounts(parts), crashed)

    def keep(staged: DataFrame) -> None:
        staged.write.mode("append").option("compression", "uncompressed").parquet(writer.staging)

    crashed = decoder.run(index, groups, keep)
    failpoint("staged")
    kept = spark.read.schema(spark_schema(decoder.schema)).parquet(no_glob(writer.staging))
    parts = kept.select("account", *SEEN_TOGETHER).toArrow()
    accounts = passes.accounts(parts)
    rows = passes.collected(parts, SEEN_TOGETHER, ingest_id)
    sizes = {name: sum(a["bytes"].get(name, 0) for a in accounts) for name in decoder.tables}
    others = {name: size for name, size in sizes.items() if size and name not in SEEN_TOGETHER}
    few = [name for name, size in others.items() if size <= SMALL_TABLE]
    if few:
        rows |= passes.collected(kept.select(*few).toArrow(), few, ingest_id)
    large = {}
    for name in (n for n in others if n not in few):
        column = kept.select(name).where(f"`{name}` IS NOT NULL")
        if decoder.buckets.count < cores:  # one file of parts would be read by one task
            column = column.repartition(cores)
        large[name] = column.mapInArrow(passes.unstage(name, ingest_id), spark_schema(arrow_schema(name)))
    return Decoded(rows, large, accounts, crashed, staged=True)
