"""A lake: one directory with one Delta table per name, readable while an ingest is under way.

`Lake(spark, path).messages` (and every other table) is a DataFrame of the rows that count: those of committed
ingests, none of them replaced. `Writer` is the other side: one ingest, under the writer's lock, that either
commits as a whole or leaves nothing that a reader sees. What a dead ingest left behind is swept by the next one.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark import __version__
from rtmp_spark.capture.redact import load_key
from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import MESSAGE_TABLES, TABLES
from rtmp_spark.views import VIEWS

from .failpoint import failpoint
from .ledger import (
    BEGUN,
    CAPTURES,
    CLEANED,
    COMMITTED,
    FAILED,
    REPLACEABLE,
    ROLLED_BACK,
    Ledger,
    State,
    Superseded,
    replaced,
)
from .lock import local_path, whole_path, writer_lock
from .tables import WRITERS, create_tables, delta_name, literal
from .template import new_lake

if TYPE_CHECKING:
    from rtmp_spark.report.view import ConnectionView

MERGE_FROM = 200  # connections; up to here a DELETE with the uids in it is cheaper than a MERGE


class Lake:
    """The tables of one lake, as DataFrames."""

    captures: DataFrame
    connections: DataFrame
    handshakes: DataFrame
    messages: DataFrame
    controls: DataFrame
    commands: DataFrame
    media_tags: DataFrame
    streams: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    findings: DataFrame
    payloads: DataFrame
    open_flows: DataFrame

    def __init__(self, spark: SparkSession, path: str, *, new: bool = False) -> None:
        self.spark = spark
        self.path = whole_path(path)
        self.ledger = Ledger(spark, self.path)
        self.properties: dict[str, str] = {}
        if new:  # just made: nothing to ask
            return
        if not self.ledger.exists():
            raise UserError(f"There is no lake at {self.path}.", "Make one with `rtmp-spark ingest PATH --lake DIR`.")
        self.properties = self.ledger.check_version()

    def table(self, name: str) -> DataFrame:
        """The rows of one table that count, as of now."""
        return self.tables([name])[name]

    def tables(self, names: Sequence[str]) -> dict[str, DataFrame]:
        """The rows of several tables that count, all as of the same moment.

        The ledger is read before and after the snapshots of the tables are taken: an ingest that commits in between
        would show half of itself.
        """

        def load(name: str) -> DataFrame:
            return self.spark.read.format("delta").load(f"{self.path}/{name}").where(state.visible(name))

        state = self.ledger.read()
        with ThreadPoolExecutor(WRITERS) as pool:
            while True:
                frames = dict(zip(names, pool.map(load, names)))
                after = self.ledger.read()
                if after == state:
                    return frames
                state = after

    def __getattr__(self, name: str) -> DataFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(name)

    def create_views(self) -> dict[str, str]:
        """Every table, and the common questions (views.py), as temporary SQL views of the session: what each has.

        They show the lake as it is now; call it again after an ingest.
        """
        for name, frame in self.tables(tuple(TABLES)).items():
            frame.createOrReplaceTempView(name)
        for name, view in VIEWS.items():
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} COMMENT {literal(view.answers)} AS {view.query}")
        return {n: t.comment for n, t in TABLES.items()} | {n: view.answers for n, view in VIEWS.items()}

    def connection(self, uid: str) -> ConnectionView:
        """One connection, as notebooks work with it: renders itself, plots, dumps, exports."""
        from .connection import open_connection

        return open_connection(self, uid)

    @property
    def redact_key(self) -> bytes:
        return self.ledger.redact_key(self.properties)


class Writer:
    """One ingest into a lake. Used inside `open_writer`; ends with `commit`, or rolls back at the next one."""

    def __init__(self, lake: Lake, state: State) -> None:
        self.lake = lake
        self.spark = lake.spark
        self.state = state
        self.ingest_id = state.highest + 1
        # A dead ingest may have had this number before it was written down, and left something under it.
        self.staging = f"{lake.path}/_staging/{self.ingest_id}-{uuid.uuid4().hex[:8]}"
        self.committed = False
        # Who holds a file lock cannot be stale; who holds a lease can, and Delta then refuses the lower number. It
        # costs a replay of the table's log for every append.
        self.fenced = local_path(lake.path) is None

    @property
    def is_new(self) -> bool:
        """Nothing was ever ingested: there is nothing to ask for."""
        return not self.state.last

    def table(self, name: str) -> DataFrame:
        """The rows that count; nobody else writes, so the ledger need not be asked again."""
        frame = self.spark.read.format("delta").load(f"{self.lake.path}/{name}")
        return frame.where(self.state.visible(name))

    def written(self, name: str) -> DataFrame:
        """The rows that count and those of this ingest."""
        frame = self.spark.read.format("delta").load(f"{self.lake.path}/{name}")
        return frame.where(f"({self.state.visible(name)}) OR ingest_id = {self.ingest_id}")

    def begin(self, tables: Iterable[str] = tuple(TABLES)) -> None:
        """Before the first row is written: the tables that will get some, so that a death can be swept."""
        self.lake.ledger.write([BEGUN], self.ingest_id, summary=json.dumps({"tables": list(tables)}))
        failpoint("begun")

    def append(self, table: str, rows: pa.Table | DataFrame) -> None:
        """Rows of this ingest; they count from `commit` on."""
        if isinstance(rows, pa.Table):
            if not rows.num_rows:
                return
            rows = self.spark.createDataFrame(rows).coalesce(1)
        failpoint(f"before {table}")
        writing = rows.write.format("delta").mode("append")
        writing = writing.option("userMetadata", f"ingest {self.ingest_id} rtmp_spark {__version__}")
        if self.fenced:
            writing = writing.option("txnAppId", f"rtmp_spark/{table}").option("txnVersion", self.ingest_id)
        writing.save(f"{self.lake.path}/{table}")
        failpoint(f"after {table}")

    def commit(self, superseded: Iterable[Superseded] = (), summary: str = "") -> None:
        entries = tuple(superseded)
        failpoint("before commit")
        events = (COMMITTED,) if entries else (COMMITTED, CLEANED)  # nothing to clean up: one write for both
        self.lake.ledger.write(events, self.ingest_id, superseded=entries, summary=summary)
        self.committed = True
        failpoint("after commit")
        if entries:
            _clean_up(self.lake, self.ingest_id, entries)


@contextmanager
def open_writer(spark: SparkSession, path: str, *, wait_seconds: float = 600) -> Iterator[Writer]:
    """The lake at `path`, made if need be, locked, and healed of what an earlier ingest left half done."""
    path = whole_path(path)
    directory = local_path(path)
    if directory is not None and directory.is_dir():
        foreign = [p.name for p in directory.iterdir() if not p.name.startswith(("_", ".")) and p.name not in TABLES]
        if foreign and not (directory / "_ingests").exists():
            remedy = "Name an empty or new directory with --lake."
            raise UserError(f"{path} is no lake: it holds {foreign[0]!r}.", remedy)
    with writer_lock(spark, path, wait_seconds):
        ledger = Ledger(spark, path)
        if not ledger.exists():
            ledger.keep_key(load_key())
            if directory is not None:
                new_lake(spark, directory)
            else:
                create_tables(spark, path)
                ledger.create()
            yield Writer(Lake(spark, path, new=True), State())
            return
        lake = Lake(spark, path)
        ledger.evolve(lake.properties)
        state = ledger.read()
        recover(lake, state)
        yield Writer(lake, ledger.read() if state.unswept or state.pending else state)


def recover(lake: Lake, state: State) -> None:
    """Sweep the rows of dead ingests and finish the clean-up of committed ones. Doing it twice does no harm."""
    if state.unswept:
        dead = ", ".join(map(str, state.unswept))
        _each_table(lake, dict.fromkeys(state.unswept_tables, f"ingest_id IN ({dead})"))
        lake.ledger.write([ROLLED_BACK], *state.unswept)
    for ingest_id, entries in state.pending:
        _clean_up(lake, ingest_id, entries)
    if state.unswept or local_path(lake.path) is not None:
        sweep_staging(lake.spark, f"{lake.path}/_staging")


def sweep_staging(spark: SparkSession, path: str) -> None:
    """Rows that were on their way into the tables: nobody needs them any more."""
    directory = local_path(path)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
        return
    with suppress(PySparkException, OSError):  # the next ingest that heals the lake tries again
        spark.range(0).write.mode("overwrite").parquet(path)  # how Spark deletes, wherever it writes


def _clean_up(lake: Lake, ingest_id: int, entries: tuple[Superseded, ...]) -> None:
    inline = entries
    if len(entries) > MERGE_FROM:
        _merge_away(lake, ingest_id, tuple(e for e in entries if e.tables not in (CAPTURES, FAILED)))
        inline = tuple(e for e in entries if e.tables in (CAPTURES, FAILED))
    _each_table(lake, {name: replaced(name, inline, ingest_id) for name in TABLES})
    failpoint("before cleaned")
    lake.ledger.write([CLEANED], ingest_id)


def _each_table(lake: Lake, conditions: Mapping[str, str]) -> None:
    def delete(item: tuple[str, str]) -> None:
        lake.spark.sql(f"DELETE FROM {delta_name(f'{lake.path}/{item[0]}')} WHERE {item[1]}")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(delete, [(name, condition) for name, condition in conditions.items() if condition]))


def _merge_away(lake: Lake, ingest_id: int, entries: tuple[Superseded, ...]) -> None:
    for name in REPLACEABLE:
        touched = [e for e in entries if name in e.tables]
        if not touched:
            continue
        columns = {
            "s_uid": [e.uid for e in touched],
            "s_c2s": pa.array([e.first_message(name)[0] for e in touched], pa.int64()),
            "s_s2c": pa.array([e.first_message(name)[1] for e in touched], pa.int64()),
            "s_second": pa.array([e.second for e in touched], pa.int64()),
        }
        lake.spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("rtmp_spark_superseded")
        on = "t.uid = s.s_uid"
        if name in MESSAGE_TABLES:
            on += " AND t.msg_no >= CASE t.direction WHEN 'c2s' THEN s.s_c2s ELSE s.s_s2c END"
        if name == "intervals":
            on += " AND t.ts_second >= timestamp_seconds(s.s_second)"
        lake.spark.sql(
            f"MERGE INTO {delta_name(f'{lake.path}/{name}')} t USING rtmp_spark_superseded s "
            f"ON {on} AND t.ingest_id < {ingest_id} WHEN MATCHED THEN DELETE"
        )
