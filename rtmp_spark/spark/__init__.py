"""Everything that uses Spark: sessions, DataFrames of captures and lakes, SQL functions, the stages of an ingest.

No other package imports pyspark.
"""

from __future__ import annotations

from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.ingest.options import IngestOptions

from .byte_functions import amf0, amf3, flv_tags, rtmp_messages, rtmp_tag
from .decoding import Tables, decode
from .lake import Lake
from .packet_decoding import decode_packets
from .pipeline import ingest
from .registration import register
from .spark_session import start_spark
from .streaming_ingest import ingest_batch

__all__ = [
    "IngestOptions",
    "Lake",
    "Summary",
    "Tables",
    "amf0",
    "amf3",
    "decode",
    "decode_packets",
    "flv_tags",
    "ingest",
    "ingest_batch",
    "register",
    "rtmp_messages",
    "rtmp_tag",
    "start_spark",
]
