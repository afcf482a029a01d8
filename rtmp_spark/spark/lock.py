"""One writer per lake: a file lock for a local lake, a lease in a Delta table elsewhere.

The file lock is freed by the kernel when its holder dies. A lease runs out after some minutes unless its holder
renews it. The second writer waits and says for whom, or gives up with that sentence.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rtmp_spark.codec.errors import UserError

from .tables import delta_name, literal

LEASE_SECONDS = 300
RENEW_SECONDS = 60


def holder_name() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "?"
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"


def whole_path(lake: str) -> str:
    """The path of a lake as it is used everywhere: absolute, because Java does not follow a Python that changes its
    directory, and without a slash at the end."""
    bare = str(lake).rstrip("/") or "/"
    return bare if ":/" in bare else str(Path(bare).absolute())


def local_path(lake: str) -> Path | None:
    """The directory of a lake on this machine's file systems, None for any other."""
    if lake.startswith("file:"):
        return Path(lake[5:].replace("//", "", 1) if lake.startswith("file://") else lake[5:])
    return None if "://" in lake else Path(lake)


@contextmanager
def writer_lock(spark: SparkSession, lake: str, wait_seconds: float) -> Iterator[None]:
    directory = local_path(lake)
    with _flock(directory, wait_seconds) if directory is not None else _lease(spark, lake, wait_seconds):
        yield


@contextmanager
def _flock(directory: Path, wait_seconds: float) -> Iterator[None]:
    path = directory / "_lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115
    except OSError as error:
        sentence = f"The lake {directory} cannot be written: {error.strerror}."
        raise UserError(sentence, "Check its path and permissions.") from error
    with file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        def holder() -> str:
            try:
                return str(json.loads(path.read_text() or "{}").get("holder", "another process"))
            except (OSError, ValueError):
                return "another process"

        _wait(taken, holder, str(directory), wait_seconds)
        file.truncate(0)
        file.write(json.dumps({"holder": holder_name(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _wait(taken: Callable[[], bool], holder: Callable[[], str], lake: str, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    said = False
    while not taken():
        if time.monotonic() >= deadline:
            raise UserError(f"{holder()} is writing to the lake {lake}.", "Try again when it is done.")
        if not said:
            print(f"rtmp-spark: waiting for {holder()}, who is writing to {lake}", file=sys.stderr)
            said = True
        time.sleep(0.2)


@contextmanager
def _lease(spark: SparkSession, lake: str, wait_seconds: float) -> Iterator[None]:
    name = delta_name(f"{lake}/_lease")
    me = f"{holder_name()} {uuid.uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} (holder STRING, until TIMESTAMP) USING DELTA "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    )
    if not spark.table(name).head(1):
        spark.sql(f"INSERT INTO {name} VALUES (NULL, NULL)")

    def extend(condition: str) -> bool:
        try:
            spark.sql(
                f"UPDATE {name} SET holder = {literal(me)}, "
                f"until = current_timestamp() + INTERVAL {LEASE_SECONDS} SECONDS WHERE {condition}"
            )
        except PySparkException:  # somebody else's update came first
            return False
        return spark.table(name).where(f"holder <> {literal(me)} OR holder IS NULL").head(1) == []

    def holder() -> str:
        rows = spark.table(name).head(1)
        return str(rows[0]["holder"]) if rows else "another process"

    _wait(lambda: extend("holder IS NULL OR until < current_timestamp()"), holder, lake, wait_seconds)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(RENEW_SECONDS):
            extend(f"holder = {literal(me)}")

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        spark.sql(f"UPDATE {name} SET holder = NULL, until = NULL WHERE holder = {literal(me)}")
