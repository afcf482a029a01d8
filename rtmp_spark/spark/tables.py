"""Delta tables made from `rtmp_spark.schema`: DDL, Spark types, clustering, comments; additive evolution.

Created by SQL, because a DataFrame writer silently drops the clustering. Deletion vectors stay off, so that
every Delta reader can read a lake. Nothing here writes rows.
"""

from __future__ import annotations

import json
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rtmp_spark.schema import TABLES, Table

CHECKPOINT_INTERVAL = 50  # a checkpoint of every table takes longer than an ingest; reading 50 small commits does not
WRITERS = 4  # tables created or written side by side; more only queue in the driver

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    return _SPARK_TYPES[kind]


def spark_schema(arrow: pa.Schema) -> StructType:
    return StructType([StructField(f.name, spark_type(f.type), f.nullable) for f in arrow])


def delta_name(path: str) -> str:
    """A Delta table by its path, as SQL names it; the path is data, whatever is in it.

    SQL takes a relative path for a table of a catalog, so it is made absolute; one with a scheme is left alone.
    """
    whole = path if ":/" in path else str(Path(path).absolute())
    return "delta.`" + whole.replace("`", "``") + "`"


def no_glob(path: str) -> str:
    """A path as Spark's readers of files take it, who would take some letters in it for a pattern."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", path)


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def create_statement(table: Table, path: str) -> str:
    columns = ", ".join(
        f"`{c.name}` {spark_type(c.type).simpleString().upper()}{'' if c.nullable else ' NOT NULL'} "
        f"COMMENT {literal(c.comment)}"
        for c in table.columns
    )
    stats = list(dict.fromkeys([*table.stats, *table.cluster_by]))
    properties = {
        "delta.enableDeletionVectors": "false",
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        "delta.dataSkippingStatsColumns": ",".join(stats),
    }
    pairs = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {delta_name(f'{path}/{table.name}')} ({columns}) USING DELTA "
        f"COMMENT {literal(table.comment)} CLUSTER BY ({', '.join(f'`{c}`' for c in table.cluster_by)}) "
        f"TBLPROPERTIES ({pairs})"
    )


def create_tables(spark: SparkSession, path: str) -> None:
    """Every table of the schema that is not there yet."""
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(spark.sql, create_statement(table, path)) for table in TABLES.values()]:
            done.result()


def fingerprint() -> str:
    """Tells lakes whose tables have all our columns from older ones."""
    names = [[name, *table.column_names] for name, table in TABLES.items()]
    return f"{zlib.crc32(json.dumps(names).encode()):08x}"


def evolve(spark: SparkSession, path: str) -> None:
    """Make the tables and columns that this version has and the lake lacks; nothing is ever taken away."""
    create_tables(spark, path)
    for table in TABLES.values():
        add_columns(spark, path, table)


def add_columns(spark: SparkSession, path: str, table: Table) -> list[str]:
    """Columns that the schema has and an older lake lacks, added at its end as nullable; their names."""
    name = delta_name(f"{path}/{table.name}")
    present = set(spark.table(name).columns)
    missing = [c for c in table.columns if c.name not in present]
    if missing:
        columns = ", ".join(
            f"`{c.name}` {spark_type(c.type).simpleString().upper()} COMMENT {literal(c.comment)}" for c in missing
        )
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
    return [c.name for c in missing]
