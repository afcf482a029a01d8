"""The capture layer on Spark: sessions, the Delta lake, the `pcap` data source, the ingest pipeline.

The only package here that knows Spark exists.
"""

from __future__ import annotations

from .session import start_spark

__all__ = ["start_spark"]
