"""stub"""
from __future__ import annotations
from rtmp_spark.capture.findings import plain_entry as entry
__all__ = ["entry"]
