"""Everything that uses Spark: sessions, DataFrames of captures and lakes, SQL functions, the stages of an ingest.

No other package imports pyspark. The modules behind these names are imported when a name is first used: pandas and the
decoder take longer to import than a worker takes for a small task.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtmp_spark.ingest.ingest_summary import Summary
    from rtmp_spark.ingest.options import IngestOptions

    from .byte_functions import amf0, amf3, flv_tags, rtmp_messages, rtmp_tag
    from .decoding import Tables, decode
    from .lake import Lake
    from .packet_decoding import decode_packets
    from .pipeline import ingest
    from .registration import register
    from .session.spark_session import start_spark
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
_MODULES = {
    "IngestOptions": "rtmp_spark.ingest.options",
    "Lake": "rtmp_spark.spark.lake",
    "Summary": "rtmp_spark.ingest.ingest_summary",
    "Tables": "rtmp_spark.spark.decoding",
    "amf0": "rtmp_spark.spark.byte_functions",
    "amf3": "rtmp_spark.spark.byte_functions",
    "decode": "rtmp_spark.spark.decoding",
    "decode_packets": "rtmp_spark.spark.packet_decoding",
    "flv_tags": "rtmp_spark.spark.byte_functions",
    "ingest": "rtmp_spark.spark.pipeline",
    "ingest_batch": "rtmp_spark.spark.streaming_ingest",
    "register": "rtmp_spark.spark.registration",
    "rtmp_messages": "rtmp_spark.spark.byte_functions",
    "rtmp_tag": "rtmp_spark.spark.byte_functions",
    "start_spark": "rtmp_spark.spark.session.spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
