"""Where a lake is, as a Spark session sees it: with its default file system and its credentials."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.location import Location, locate

from .job_faults import reason
from .session.spark_session import is_own_session

_PREFIX = "spark.hadoop."
_HADOOP = ("fs.", "google.")  # settings of a session that Spark passes to Hadoop as they are
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def lake_location(spark: SparkSession, lake: str | Path) -> Location:
    """The place that `lake` names, the same for Python and for Spark."""
    path = str(lake)
    settings = _hadoop_settings(spark)
    if "fs.defaultFS" not in settings and not _SCHEME.match(path) and not _uses_local_files(spark):
        settings["fs.defaultFS"] = _default_filesystem(spark, path)
    return locate(path, hadoop=settings)


def _hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """Not by the SQL command SET, which replaces access keys by asterisks."""
    settings = spark.conf.getAll
    hadoop = {key.removeprefix(_PREFIX): value for key, value in settings.items() if key.startswith(_PREFIX)}
    return hadoop | {key: value for key, value in settings.items() if key.startswith(_HADOOP)}


def _uses_local_files(spark: SparkSession) -> bool:
    """True if no file of settings can have given the session another default file system."""
    return is_own_session(spark) and "HADOOP_CONF_DIR" not in os.environ


def _default_filesystem(spark: SparkSession, path: str) -> str:
    """What Hadoop puts before a path without a scheme, taken from the error about a path that does not exist.

    The settings of a session may not state it: it may come from the cluster's core-site.xml.
    """
    name = f"/rtmp-spark-{uuid.uuid4().hex}"
    why = "it is not known"
    try:
        _ = spark.read.text(name).schema
    except AnalysisException as error:
        found = re.search(rf"([A-Za-z][\w+.-]*:(?://[^/\s]*)?){name}", str(error))
        if found:
            return found[1] if "//" in found[1] else f"{found[1]}//"
    except Exception as error:  # py4j has errors of its own
        why = reason(error)
    raise UserError(
        f"The lake path {path} belongs to the default file system of this Spark, which cannot be used: {why}.",
        "Write file:///PATH for a local directory, or the URI of a store.",
        3,
    )
