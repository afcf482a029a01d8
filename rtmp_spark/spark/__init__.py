"""The capture layer on Spark: sessions, the Delta lake, the `pcap` data source, the ingest pipeline.

The only package here that knows Spark exists.
"""

from __future__ import annotations

from .lake import Lake
from .pipeline import ingest
from .session import start_spark
from .source import register
from .summary import Summary

__all__ = ["Lake", "Summary", "ingest", "register", "start_spark"]
