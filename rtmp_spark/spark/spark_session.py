"""A Spark session with Delta Lake: the user's own when there is one, else a local one that starts quickly.

A session that exists (notebook, spark-submit, a hosted cluster) or a Spark Connect server (`SPARK_REMOTE`) is
taken as it is; it only has to know Delta. Our own local session gets the settings that make small Delta tables
quick, quiet logs, and a class archive that halves the time to the first write.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError

from . import class_archive
from .jars import cache_directory, delta_jars, java_home
from .lock import local_path, whole_path

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SMALL_LAKE_BYTES = 64 << 20
_OWN = "spark.rtmp_spark.own"  # a session of ours, whose settings are ours to change
_CODE = "spark.sql.codegen.factoryMode"
# Who chooses a collector in one of these keeps it: Java does not start with two.
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

_LOG4J = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.executor.name = org.apache.spark.executor
logger.executor.level = fatal
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = fatal
logger.write.name = org.apache.spark.sql.execution.datasources
logger.write.level = fatal
"""


def start_spark(
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    small: bool = False,
    app_name: str = "rtmp_spark",
) -> SparkSession:
    """A session that reads and writes Delta tables.

    `small` trades peak speed for a quick start (the simple compiler only). UserError with exit code 3 when Java,
    Spark or the Delta jars are missing.
    """
    existing = SparkSession.getActiveSession()
    if existing is not None:
        return _with_delta(existing)
    remote = master if master and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote and (master is None or master == remote):
        return _connect(remote, app_name)
    builder: Any = SparkSession.builder.appName(app_name)
    settings = _everywhere()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit: master and jars are its business
        if master:
            settings["spark.master"] = master
    else:
        master = master or os.environ.get("MASTER") or "local[*]"
        settings["spark.master"] = master
        settings |= local_settings(small) if master.startswith("local[") or master == "local" else _cluster()
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    with _quiet_start() as said:
        try:
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            if "-XX:SharedArchiveFile=" in settings.get("spark.driver.extraJavaOptions", ""):
                os.environ[class_archive.VARIABLE] = "0"  # once more, without: a broken one is to blame if that works
                spark = start_spark(master, conf=conf, small=small, app_name=app_name)
                class_archive.forget(delta_jars())
                return spark
            reason = said() or _first_line(error)
            raise UserError(f"Spark did not start: {reason}.", "Run `rtmp-spark doctor`.", 3) from error
    if not str(settings.get("spark.master", "local")).startswith("local["):
        _ship_package(spark)
    return _with_delta(spark, own_jars="PYSPARK_GATEWAY_PORT" not in os.environ)


def start_spark_for(lake: str, master: str | None = None) -> SparkSession:
    """A session to read a lake: a quick start is worth more than a fast run where there is little to read."""
    directory = local_path(whole_path(lake))
    small = directory is not None and sum(f.stat().st_size for f in directory.glob("*/*.parquet")) < SMALL_LAKE_BYTES
    return start_spark(master, small=small)


@contextmanager
def interpreted(spark: SparkSession, wanted: bool = True) -> Iterator[None]:
    """Inside, a session of our own writes no code for its queries (or does again, if not `wanted`).

    Writing and compiling it takes longer than a few rows take without: a fifth of an ingest of one small file.
    """
    if not spark.conf.get(_OWN, ""):
        yield
        return
    _interpret(spark, wanted)
    try:
        yield
    finally:
        with suppress(Exception):  # its Java may be dead, and what was said of that is worth more
            _interpret(spark, not wanted)


def _interpret(spark: SparkSession, wanted: bool) -> None:
    if wanted:
        spark.conf.set(_CODE, "NO_CODEGEN")
    else:
        spark.conf.unset(_CODE)


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 takes longer and tells no range
    }


def local_settings(small: bool) -> dict[str, str]:
    """Those of a session of our own on this machine."""
    cores = str(os.cpu_count() or 2)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    jars = delta_jars()
    cache = cache_directory()
    java = [f"-Dlog4j2.configurationFile={_log4j(cache)}", f"-Dderby.system.home={tempfile.gettempdir()}"]
    if not any(re.search(r"-XX:\+Use\w+GC", os.environ.get(name, "")) for name in _JAVA_VARIABLES):
        java.append("-XX:+UseParallelGC")  # the work waits for the whole, never for a pause
    if small:
        # With C1 alone Java reserves 48 MB for code, Spark fills it, and from then on nothing is compiled.
        java += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    java += class_archive.java_options(jars)
    # Tells in which cell of a notebook a DataFrame was made; elsewhere it only imports IPython and costs time.
    own = {} if "IPython" in sys.modules else {"spark.python.sql.dataFrameDebugging.enabled": "false"}
    return (
        _everywhere()
        | own
        | {
            "spark.driver.extraClassPath": ":".join(map(str, jars)),
            "spark.driver.extraJavaOptions": " ".join(java),
            "spark.driver.memory": os.environ.get("RTMP_SPARK_DRIVER_MEMORY", "2g"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": cores,
            "spark.sql.execution.arrow.localRelationThreshold": "256k",  # every rule walks over every row of one
            "spark.sql.warehouse.dir": str(cache / "warehouse"),
            "spark.sql.adaptive.enabled": "true",
            _OWN: "true",
        }
    )


def _cluster() -> dict[str, str]:
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log4j(cache_directory())}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(cache_directory() / "warehouse"),
    }


def _log4j(cache: Path) -> Path:
    path = cache / "log4j2.properties"
    if not path.exists() or path.read_text() != _LOG4J:
        path.write_text(_LOG4J)
    return path


def _connect(remote: str, app_name: str) -> SparkSession:
    try:
        builder: Any = SparkSession.builder
        spark: SparkSession = builder.remote(remote).appName(app_name).getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    except Exception as error:
        raise UserError(
            f"No Spark Connect server answers at {remote}: {_first_line(error)}.",
            "Check the address in SPARK_REMOTE or --master.",
            3,
        ) from error
    _ship_package(spark)
    return _with_delta(spark)


def _loads(spark: SparkSession) -> bool:
    """Whether the catalog that the settings name is there: under spark-submit the jars are its user's business."""
    try:
        spark.catalog.currentDatabase()
    except Exception as error:
        if CATALOG in str(error):
            return False
        raise
    return True


def _with_delta(spark: SparkSession, *, own_jars: bool = False) -> SparkSession:
    """The session, if it can write Delta tables."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    if EXTENSION not in extensions or not catalog or not (own_jars or _loads(spark)):
        raise UserError(
            "This Spark session has no Delta Lake.",
            f"Start it with spark.sql.extensions={EXTENSION} and "
            f"spark.sql.catalog.spark_catalog={CATALOG}, and the package io.delta:delta-spark_4.2_2.13.",
            3,
        )
    return spark


def _ship_package(spark: SparkSession) -> None:
    """Executors need this package; a zip of it goes with the session (under --py-files it is there already)."""
    package = Path(__file__).resolve().parent.parent
    if not package.is_dir():  # we run from a zip: --py-files
        return
    directory = tempfile.mkdtemp(prefix="rtmp_spark_")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # not before: executors fetch it when they start
    archive = Path(directory) / "rtmp_spark.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*.py")):
            out.write(path, str(Path("rtmp_spark") / path.relative_to(package)))
    spark.addArtifacts(str(archive), pyfile=True)


@contextmanager
def _quiet_start() -> Iterator[Callable[[], str]]:
    """The JVM started inside keeps writing to a log of its own instead of our stderr; yields its last word.

    RTMP_SPARK_LOG names a file to keep; without it the log goes with the process.
    """
    kept = os.environ.get("RTMP_SPARK_LOG")
    log: IO[bytes] = open(kept, "ab+") if kept else tempfile.TemporaryFile()  # noqa: SIM115
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield lambda: _last_error(log)
    finally:
        os.dup2(before, 2)
        os.close(before)
        log.close()


def _last_error(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    telling = [x for x in lines if ("rror" in x or "xception" in x) and not x.startswith("at ")]
    return (telling[0] if telling else "").rstrip(".")[:300]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
