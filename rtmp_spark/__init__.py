"""rtmp_spark: an offline analyzer for RTMP captures, on Spark.

Importing this package loads nothing else, so the codec can be used without Spark.
"""

__version__ = "0.2.0"
