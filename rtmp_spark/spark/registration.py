"""`register(spark)`: the data sources and SQL functions of this package in a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from rtmp_spark.spark.sources.pcap_source import PcapDataSource
from rtmp_spark.spark.sources.rtmp_source import RtmpDataSource

from .byte_functions import register_functions


def register(spark: SparkSession) -> None:
    """Register `format("pcap")`, `format("rtmp")` and the SQL functions of `byte_functions` in this session."""
    spark.dataSource.register(PcapDataSource)
    spark.dataSource.register(RtmpDataSource)
    register_functions(spark)
