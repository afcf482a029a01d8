"""Keeping a lake in shape: small files packed and clustered, old ones removed. It changes no row.

Takes the writer's lock. Files that no version of the last `retention_hours` needs are deleted, so time travel and
readers that started longer ago than that end there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import TABLES

from .lake import Lake, open_writer
from .tables import delta_name

RETENTION_HOURS = 168
LISTERS = 4


def optimize(
    spark: SparkSession, lake: str, *, retention_hours: int = RETENTION_HOURS, vacuum: bool = True
) -> list[str]:
    """Compact every table and the ledger; the names of those that were done."""
    if retention_hours < 0:
        raise UserError(f"Files cannot be kept for {retention_hours} hours.", "Give 0 or more.")
    Lake(spark, lake)  # to open it for writing would make one that is not there
    done: list[str] = []
    with open_writer(spark, lake) as writer, _vacuuming(spark):
        for name in (*TABLES, "_ingests"):
            table = delta_name(f"{writer.lake.path}/{name}")
            spark.sql(f"OPTIMIZE {table}").collect()
            if vacuum:
                spark.sql(f"VACUUM {table} RETAIN {int(retention_hours)} HOURS").collect()
            done.append(name)
    return done


@contextmanager
def _vacuuming(spark: SparkSession) -> Iterator[None]:
    """Delta refuses less than a week for the sake of other writers; there is none, for the lock is ours. And it would
    list each table, which is one directory, with ten thousand tasks: minutes for a small lake.
    """
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(LISTERS),
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
