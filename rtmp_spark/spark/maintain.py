"""Keeping a lake in shape: small files packed and clustered, old ones removed. It changes no row.

Takes the writer's lock. Files that no version of the last `retention_hours` needs are deleted, so time travel and
readers that started longer ago than that end there.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from rtmp_spark.schema import TABLES

from .lake import open_writer
from .tables import delta_name

RETENTION_HOURS = 168


def optimize(
    spark: SparkSession, lake: str, *, retention_hours: int = RETENTION_HOURS, vacuum: bool = True
) -> list[str]:
    """Compact every table and the ledger; the names of those that were done."""
    done: list[str] = []
    with open_writer(spark, lake) as writer:
        for name in (*TABLES, "_ingests"):
            table = delta_name(f"{writer.lake.path}/{name}")
            spark.sql(f"OPTIMIZE {table}").collect()
            if vacuum:
                spark.sql(f"VACUUM {table} RETAIN {int(retention_hours)} HOURS").collect()
            done.append(name)
    return done
