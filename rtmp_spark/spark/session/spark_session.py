"""A Spark session: the user's own if there is one, else a local one that starts quickly.

A session that exists (notebook, spark-submit, a hosted cluster) or a Spark Connect server (`SPARK_REMOTE`) is used as
it is. To read a lake as DataFrames it must have Delta Lake; to ingest it need not. Our own local session gets settings
for small tables, quiet logs, and a class archive that shortens its start.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import rtmp_spark
from rtmp_spark.codec.errors import UserError

from . import class_archive
from .jars import cache_directory, cached_delta_jars, delta_jars, java_home
from .java_process import java_process, spark_home

if TYPE_CHECKING:  # pyspark is imported while Java starts
    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_OWN = "spark.rtmp_spark.own"  # marks a local session that `start_spark` made
# If one of these chooses a garbage collector, we choose none: Java does not start with two.
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
    delta: bool = True,
    app_name: str = "rtmp_spark",
) -> SparkSession:
    """A session that reads Delta tables; an ingest does not need that (`delta=False`) and starts sooner without.

    `small` trades peak speed for a quick start (only Java's fast compiler). Raises UserError with exit code 3 if Java,
    Spark or the Delta jars are missing.
    """
    existing = _existing_session()
    if existing is not None:
        return _with_delta(existing) if delta else existing
    remote = master if master and master.startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote and (master is None or master == remote):
        return _connect(remote, app_name, delta)
    settings = _everywhere(delta)
    own_java = False
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started us and has chosen master and jars
        if master:
            settings["spark.master"] = master
    else:
        master = master or os.environ.get("MASTER") or "local[*]"
        settings["spark.master"] = master
        is_local = master.startswith("local[") or master == "local"
        settings |= local_settings(small, delta) if is_local else _cluster(delta)
        own_java = is_local and not conf  # its settings may be for the scripts of pyspark
    with _quiet_start() as said:
        try:
            with java_process(settings) if own_java else nullcontext(lambda: None) as wait_for_java:
                from pyspark.sql import SparkSession

                builder: Any = SparkSession.builder.appName(app_name)
                for key, value in (settings | dict(conf or {})).items():
                    builder = builder.config(key, value)
                wait_for_java()
                spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            if "-XX:SharedArchiveFile=" in settings.get("spark.driver.extraJavaOptions", ""):
                os.environ[class_archive.VARIABLE] = "0"  # if it starts without the archive, the archive is broken
                spark = start_spark(master, conf=conf, small=small, delta=delta, app_name=app_name)
                class_archive.forget(_jars(delta))
                return spark
            reason = said() or _first_line(error)
            raise UserError(f"Spark did not start: {reason}.", "Run `rtmp-spark doctor`.", 3) from error
    if not str(settings.get("spark.master", "local")).startswith("local["):
        _ship_package(spark)
    return _with_delta(spark, own_jars="PYSPARK_GATEWAY_PORT" not in os.environ) if delta else spark


def _existing_session() -> SparkSession | None:
    if "pyspark" not in sys.modules:
        spark_home()  # raises ModuleNotFoundError before Java is looked for
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def is_own_session(spark: SparkSession) -> bool:
    """True for a local session that `start_spark` made."""
    return bool(spark.conf.get(_OWN, ""))


def _everywhere(delta: bool) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
    }
    if delta:
        settings["spark.sql.extensions"] = EXTENSION
        settings["spark.sql.catalog.spark_catalog"] = CATALOG
        settings["spark.databricks.delta.snapshotPartitions"] = "1"
    return settings


def _jars(delta: bool) -> list[Path]:
    """The jars on the class path. A session without Delta Lake has them too if they need no download.

    A class archive belongs to one class path, so one archive serves both kinds of session.
    """
    return delta_jars() if delta else cached_delta_jars()


def local_settings(small: bool, delta: bool = True) -> dict[str, str]:
    """The settings of a session of our own on this machine."""
    cores = str(os.cpu_count() or 2)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    jars = _jars(delta)
    cache = cache_directory()
    java = [f"-Dlog4j2.configurationFile={_log4j(cache)}", f"-Dderby.system.home={tempfile.gettempdir()}"]
    if not any(re.search(r"-XX:\+Use\w+GC", os.environ.get(name, "")) for name in _JAVA_VARIABLES):
        java.append("-XX:+UseParallelGC")  # throughput matters here, pauses do not
    java.append("-XX:MetaspaceSize=256m")  # else four full collections, 0.15 s, while the classes of Spark are loaded
    if small:
        # With C1 alone Java reserves 48 MB for code; Spark fills it, and then Java stops compiling.
        java += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    java += class_archive.java_options(jars)
    # Only descriptions of files and connections pass through the JVM in an ingest: to compile code for their rows and
    # to plan again after each stage takes longer than it saves, a tenth of the CPU time of Java.
    interpreted = {
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    # It records in which notebook cell a DataFrame was made; elsewhere it costs the import of IPython.
    own = {} if "IPython" in sys.modules else {"spark.python.sql.dataFrameDebugging.enabled": "false"}
    return (
        _everywhere(delta)
        | own
        | {
            "spark.driver.extraClassPath": ":".join(map(str, jars)),
            "spark.driver.extraJavaOptions": shlex.join(java),
            "spark.driver.memory": os.environ.get("RTMP_SPARK_DRIVER_MEMORY", "2g"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": cores,
            "spark.sql.execution.arrow.localRelationThreshold": "256k",  # every optimizer rule visits every row of one
            "spark.sql.warehouse.dir": str(cache / "warehouse"),
            "spark.sql.adaptive.enabled": "true",
            _OWN: "true",
        }
        | (interpreted if small and not delta else {})
    )


def _cluster(delta: bool) -> dict[str, str]:
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = {"spark.jars": ",".join(map(str, delta_jars()))} if delta else {}
    return jars | {
        "spark.driver.extraJavaOptions": shlex.quote(f"-Dlog4j2.configurationFile={_log4j(cache_directory())}"),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(cache_directory() / "warehouse"),
    }


def _log4j(cache: Path) -> Path:
    path = cache / "log4j2.properties"
    if not path.exists() or path.read_text() != _LOG4J:
        path.write_text(_LOG4J)
    return path


def _connect(remote: str, app_name: str, delta: bool) -> SparkSession:
    from pyspark.sql import SparkSession

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
    return _with_delta(spark) if delta else spark


def _loads(spark: SparkSession) -> bool:
    """True if the catalog class that the settings name can be loaded; under spark-submit its jar may be missing."""
    try:
        spark.catalog.currentDatabase()
    except Exception as error:
        if CATALOG in str(error):
            return False
        raise
    return True


def _with_delta(spark: SparkSession, *, own_jars: bool = False) -> SparkSession:
    """The session, if it can read Delta tables; else raises UserError."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    if EXTENSION not in extensions or not catalog or not (own_jars or _loads(spark)):
        raise no_delta_lake()
    return spark


def no_delta_lake() -> UserError:
    return UserError(
        "This Spark session has no Delta Lake.",
        f"Start it with spark.sql.extensions={EXTENSION} and "
        f"spark.sql.catalog.spark_catalog={CATALOG}, and the package io.delta:delta-spark_4.2_2.13.",
        3,
    )


def _ship_package(spark: SparkSession) -> None:
    """Sends this package to the executors as a zip. With --py-files they have it already."""
    package = Path(rtmp_spark.__file__).resolve().parent
    if not package.is_dir():  # we run from the zip of --py-files
        return
    directory = tempfile.mkdtemp(prefix="rtmp_spark_")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # at exit: executors fetch it when they start
    archive = Path(directory) / "rtmp_spark.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*.py")):
            out.write(path, str(Path("rtmp_spark") / path.relative_to(package)))
    spark.addArtifacts(str(archive), pyfile=True)


@contextmanager
def _quiet_start() -> Iterator[Callable[[], str]]:
    """A JVM that is started inside writes to a log instead of our stderr; yields a function that returns its error.

    RTMP_SPARK_LOG names a file for the log; without it the log is deleted with the process.
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
