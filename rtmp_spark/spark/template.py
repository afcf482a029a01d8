"""New local lakes from a template: empty tables and an empty ledger, made by SQL once for each version and then copied.

Making them takes most of the time of a first ingest. A copy gets table ids of its own. Only local lakes; nothing but
empty tables is ever copied.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
import zlib
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import TABLES

from .jars import DELTA_VERSION, cache_directory
from .ledger import LEDGER, Ledger, ledger_statement
from .tables import create_statement, create_tables

_ID = re.compile(r'(?<="id":")[0-9a-f-]{36}(?=")')


def new_lake(spark: SparkSession, directory: Path) -> None:
    """Every table that is not there yet; copied if nothing is there. The ledger comes last, as a whole."""
    path = str(directory.absolute())
    template = None if any((directory / name).exists() for name in TABLES) else _template(spark)
    if template is None:
        create_tables(spark, path)
        Ledger(spark, path).create()
        return
    for name in (*TABLES, LEDGER):
        _copy(template / name, directory / name)


def _template(spark: SparkSession) -> Path | None:
    try:
        statements = "".join(create_statement(table, "") for table in TABLES.values()) + ledger_statement("")
        template = cache_directory() / f"lake-{DELTA_VERSION}-{zlib.crc32(statements.encode()):08x}"
    except UserError:  # no cache: without
        return None
    if not template.is_dir():
        growing = template.with_name(f"{template.name}.{os.getpid()}")
        try:
            create_tables(spark, str(growing))
            Ledger(spark, str(growing)).create()
            growing.rename(template)
        except (OSError, PySparkException):  # somebody else was quicker, or there is no room
            shutil.rmtree(growing, ignore_errors=True)
    return template if template.is_dir() else None


def _copy(table: Path, target: Path) -> None:
    """The log of an empty table under a new id, whole or not at all; Hadoop's checksum files would not fit any more."""
    fresh = str(uuid.uuid4())
    growing = target.with_name(f"_{target.name}.new")
    shutil.rmtree(growing, ignore_errors=True)
    log = growing / "_delta_log"
    log.mkdir(parents=True)
    for file in sorted((table / "_delta_log").iterdir()):
        if file.is_file() and not file.name.startswith("."):
            (log / file.name).write_text(_ID.sub(fresh, file.read_text(), count=1))
    growing.rename(target)
