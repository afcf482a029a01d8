"""How many tasks a Spark session runs at once."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def cluster_cores(spark: SparkSession) -> int:
    """From the master or the executors' settings where these state it, else from Spark's default parallelism.

    `spark.sql.shuffle.partitions` does not state it: it is 200 by default, whatever the size of the cluster.
    """
    master = _setting(spark, "spark.master")
    local = re.fullmatch(r"local(?:\[(\d+)(?:,\d+)?\])?", master)
    if local:
        return int(local[1] or 1)
    processes = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    if processes:
        return int(processes[1]) * int(processes[2])
    instances, cores = _setting(spark, "spark.executor.instances"), _setting(spark, "spark.executor.cores")
    if instances.isdigit() and cores.isdigit():
        return max(int(instances) * int(cores), 1)
    # Spark spreads a range over its default parallelism, which Spark Connect does not state otherwise.
    return max(spark.range(1 << 16).select(F.spark_partition_id().alias("part")).distinct().count(), 1)


def _setting(spark: SparkSession, name: str) -> str:
    try:
        return spark.conf.get(name, "") or ""
    except Exception:  # a Connect server may withhold settings
        return ""
