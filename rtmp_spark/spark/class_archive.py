"""A class-data archive that halves the time to the first write of a local session (200 MB in the cache directory).

Nobody waits for it: a session that has none starts without, and when its process ends another one makes the archive in
the background, at the lowest priority, for the sessions to come. One at a time, by a lock that dies with its holder; an
archive appears under its name only when it is whole. It is tied to the Java and the class path; of those that are not
used any more the oldest go. RTMP_SPARK_CLASS_ARCHIVE=0 does without.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from .jars import cache_directory, check_java, delta_jars

VARIABLE = "RTMP_SPARK_CLASS_ARCHIVE"
KEPT = 3  # archives: of other Java versions, other environments
_SECONDS = 600
_planned: set[Path] = set()


def java_options(jars: list[Path]) -> list[str]:
    """Options that use the archive, none when it is not there yet (then it will be, after this process)."""
    if os.environ.get(VARIABLE, "1") == "0":
        return []
    archive = _path(jars)
    if not _is_whole(archive):
        if archive not in _planned and not _hopeless(archive).exists():
            _planned.add(archive)
            atexit.register(_make_later, archive)
        return []
    with suppress(OSError):
        os.utime(archive)  # in use
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]


def make_now() -> None:
    """Make the archive and wait for it: for who will start many sessions."""
    from .session import local_settings

    local_settings(small=True)  # chooses the Java
    make(str(_path(delta_jars())))


def forget(jars: list[Path]) -> None:
    """Remove an archive that a session did not start with; the next one is made anew."""
    with suppress(OSError):
        _path(jars).unlink()


def _path(jars: list[Path]) -> Path:
    import pyspark

    home = os.environ.get("JAVA_HOME")
    version = check_java(Path(home, "bin", "java") if home else Path("java"))
    key = hashlib.sha256("\n".join([version, pyspark.__version__, pyspark.__file__, *map(str, jars)]).encode())
    return cache_directory() / f"classes-{key.hexdigest()[:12]}.jsa"


def _hopeless(archive: Path) -> Path:
    """Says that this Java was asked and cannot."""
    return archive.with_suffix(".none")


def _is_whole(file: Path) -> bool:
    return file.suffix == ".jsa" and file.exists() and file.stat().st_size > 0


def _make_later(archive: Path) -> None:
    run = f"import os; os.nice(19); from rtmp_spark.spark.class_archive import make; make({str(archive)!r})"
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-c", run],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def make(name: str) -> None:
    """Make the archive, unless it is there or somebody else is at it; sweep what earlier ones left."""
    archive = Path(name)
    with open(archive.with_name("classes.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _sweep(archive)
        if _is_whole(archive):
            return
        growing = archive.with_suffix(".growing")
        run = [sys.executable, "-c", f"from rtmp_spark.spark.class_archive import warm_up; warm_up({str(growing)!r})"]
        without = os.environ | {VARIABLE: "0"}
        try:
            subprocess.run(run, env=without, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return  # another day, on a quieter machine
        if growing.exists() and growing.stat().st_size:
            growing.replace(archive)
        else:
            _hopeless(archive).touch()


def _sweep(archive: Path) -> None:
    """Under the lock: what is not a whole archive is a dead one's, and of many archives the latest used stay."""
    files = list(archive.parent.glob("classes-*"))
    whole = [f for f in files if _is_whole(f)]
    old = sorted(whole, key=lambda f: f.stat().st_mtime, reverse=True)[KEPT:]
    for file in {*files} - {*whole} - {_hopeless(archive)} | {*old}:
        with suppress(OSError):
            file.unlink()


def warm_up(archive: str) -> None:
    """Start a session that archives its classes when its Java ends, and use what an ingest uses."""
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from .session import local_settings

    settings = local_settings(small=True) | {"spark.master": "local[2]"}
    settings["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={archive}"
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
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
    java.stdin.close()  # it ends by that, and writes the archive
    java.wait(_SECONDS)
