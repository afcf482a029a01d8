"""A Spark session with Delta Lake: the user's own when there is one, else a local one that starts quickly.

A session that exists (notebook, spark-submit, a hosted cluster) or a Spark Connect server (`SPARK_REMOTE`) is
taken as it is; it only has to know Delta. Our own local session gets the settings that make small Delta tables
quick, quiet logs, and a class archive that halves the time to the first write.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError

from .jars import cache_directory, check_java, delta_jars, java_home

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

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
        settings |= _local(small) if master.startswith("local[") or master == "local" else _cluster()
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    with _quiet_start() as said:
        try:
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            reason = said() or _first_line(error)
            raise UserError(f"Spark did not start: {reason}.", "Run `rtmp-spark doctor`.", 3) from error
    if not str(settings.get("spark.master", "local")).startswith("local["):
        _ship_package(spark)
    return _with_delta(spark)


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
    }


def _local(small: bool) -> dict[str, str]:
    cores = str(os.cpu_count() or 2)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    jars = delta_jars()
    cache = cache_directory()
    java = [f"-Dlog4j2.configurationFile={_log4j(cache)}", f"-Dderby.system.home={tempfile.gettempdir()}"]
    if small:
        # With C1 alone Java reserves 48 MB for code, Spark fills it, and from then on nothing is compiled.
        java += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    archive = class_archive(jars)
    if archive is not None:
        java += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    return {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.driver.memory": os.environ.get("RTMP_SPARK_DRIVER_MEMORY", "2g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.warehouse.dir": str(cache / "warehouse"),
        "spark.sql.adaptive.enabled": "true",
    }


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


def _with_delta(spark: SparkSession) -> SparkSession:
    """The session, if it can write Delta tables."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    if EXTENSION not in extensions or not catalog:
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
    archive = cache_directory() / f"rtmp_spark.{os.getpid()}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*.py")):
            out.write(path, str(Path("rtmp_spark") / path.relative_to(package)))
    spark.addArtifacts(str(archive), pyfile=True)


def class_archive(jars: list[Path]) -> Path | None:
    """A class-data archive of a session that wrote a Delta table, made once (about half a minute, 200 MB).

    It is tied to this Java and this class path. RTMP_SPARK_CLASS_ARCHIVE=0 does without; a Java that cannot make
    one does too.
    """
    if os.environ.get("RTMP_SPARK_CLASS_ARCHIVE", "1") == "0":
        return None
    import pyspark

    home = os.environ.get("JAVA_HOME")
    version = check_java(Path(home, "bin", "java") if home else Path("java"))
    key = hashlib.sha256("\n".join([version, pyspark.__version__, pyspark.__file__, *map(str, jars)]).encode())
    archive = cache_directory() / f"classes-{key.hexdigest()[:12]}.jsa"
    if archive.exists():
        return archive if archive.stat().st_size else None
    print("rtmp-spark: preparing Spark for quick starts (once, about half a minute)", file=sys.stderr)
    growing = archive.with_suffix(f".{os.getpid()}")
    environment = os.environ | {"RTMP_SPARK_CLASS_ARCHIVE": "0"}
    try:
        subprocess.run(
            [sys.executable, "-c", _ARCHIVE_RUN, str(growing)],
            env=environment,
            timeout=300,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass
    if growing.exists():
        growing.replace(archive)
        return archive
    archive.touch()  # so that a Java that cannot is asked only once
    return None


# Runs in its own process: what the archived JVM loads is what a first ingest uses.
_ARCHIVE_RUN = """
import shutil, sys, tempfile
from rtmp_spark.spark.session import warm_up
warm_up(sys.argv[1])
"""


def warm_up(archive: str) -> None:
    """Start a session that archives its classes at exit, and use what an ingest uses."""
    import shutil

    import pyarrow as pa

    settings = _everywhere() | _local(small=True) | {"spark.master": "local[2]"}
    settings["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={archive}"
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    directory = tempfile.mkdtemp()
    try:
        table = f"delta.`{directory}/t`"
        spark.sql(
            f"CREATE TABLE {table} (uid STRING COMMENT 'x', ts TIMESTAMP, n BIGINT, a ARRAY<STRING>) USING DELTA "
            "CLUSTER BY (uid, ts) TBLPROPERTIES ('delta.enableDeletionVectors'='false')"
        )
        rows = pa.table(
            {"uid": ["a", "b"], "n": pa.array([1, 2], pa.int64()), "a": pa.array([["x"], None], pa.list_(pa.string()))}
        )
        frame = spark.createDataFrame(rows).selectExpr("uid", "timestamp_micros(n) AS ts", "n", "a")
        frame.write.format("delta").mode("append").save(f"{directory}/t")
        staged = frame.repartition(2).mapInArrow(lambda batches: batches, frame.schema)
        staged.write.option("compression", "uncompressed").parquet(f"{directory}/s")
        spark.read.parquet(f"{directory}/s").write.format("delta").mode("append").save(f"{directory}/t")
        spark.sql(f"MERGE INTO {table} t USING (SELECT 'a' AS uid) s ON t.uid = s.uid WHEN MATCHED THEN DELETE")
        spark.sql(f"DELETE FROM {table} WHERE n > 5")
        spark.read.format("delta").load(f"{directory}/t").where("n < 3").toArrow()
        spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
