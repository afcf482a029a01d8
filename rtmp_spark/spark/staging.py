"""From an index to rows that can be written: in the driver where they are few, else as staged Parquet in the lake.

One connection is decoded by one core. Where connections are too few to keep all cores busy, they are decoded in rounds:
the states of one go into the next, and what is final is written while the next is decoded.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rtmp_spark.schema import arrow_schema

from . import passes
from .decode import PAUSED
from .failpoint import failpoint
from .lake import Writer, sweep_staging
from .session import interpreted
from .tables import no_glob, spark_schema

COLLECT_BYTES = 256 << 20  # of input; below it rows come to the driver, which writes small tables quicker
SMALL_TABLE = 8 << 20  # of staged rows; up to here they do so from a large input too
ROUND_BYTES = 512 << 20  # of payload for each bucket: some seconds, for a round costs half of one
MOST_ROUNDS = 32
MOST_PAUSED = 10_000  # connections times splits: every task of a round gets the states of all
SEEN_TOGETHER = ("connections", "streams", "findings")  # always in the driver: what several connections show
FINAL = ("messages", "media_tags", "payloads")  # rows that a connection which goes on never takes back


@dataclass
class Decoded:
    rows: dict[str, pa.Table] = field(default_factory=dict)  # in the driver
    large: dict[str, DataFrame] = field(default_factory=dict)  # staged, to be written by executors
    accounts: list[dict[str, Any]] = field(default_factory=list)  # of the buckets
    crashed: list[tuple[int, str]] = field(default_factory=list)  # groups that kill their worker, and how
    staged: bool = False  # something lies in the lake's staging directory


class Staging:
    def __init__(
        self, spark: SparkSession, writer: Writer, decoder: passes.Decoder, cores: int, input_bytes: int
    ) -> None:
        self.spark = spark
        self.writer = writer
        self.decoder = decoder
        self.cores = cores
        self.input_bytes = input_bytes

    def decode(self, index: pa.Table, begun: Future[None], *, may_pause: bool) -> Decoded:
        """`begun` is done when rows may be written; without `may_pause` connections are decoded in one go."""
        if not index.num_rows:
            return Decoded()
        if self.input_bytes <= COLLECT_BYTES:
            return self._collected(index)
        buckets = self.decoder.buckets.count
        rounds, crashed = 0, []
        fenced = self.writer.fenced  # who is, appends once to a table
        if 2 * buckets <= self.cores and may_pause and not fenced and passes.flow_count(index) <= MOST_PAUSED:
            rounds = self._write_rounds(index, begun)
        last = self._directory(rounds)
        if not rounds:
            crashed = self.decoder.run(index, self.decoder.buckets.groups, lambda parts: _stage(parts, last))
        failpoint("staged")
        kept = self._read(*map(self._directory, range(rounds + 1)))
        parts = kept.select("account", *SEEN_TOGETHER).toArrow()
        accounts, ingest_id = passes.accounts(parts), self.writer.ingest_id
        rows = passes.collected(parts, SEEN_TOGETHER, ingest_id)
        sizes = {name: sum(a["bytes"].get(name, 0) for a in accounts) for name in self.decoder.tables}
        unwritten = {name: self._read(last) if rounds and name in FINAL else kept for name in sizes}
        large, small = {}, []
        for name in [n for n, size in sizes.items() if size and n not in SEEN_TOGETHER]:
            if sizes[name] > SMALL_TABLE or unwritten[name] is not kept:
                large[name] = _rows(unwritten[name], name, ingest_id, self.cores if buckets < self.cores else 0)
            else:
                small.append(name)
        if small:
            rows |= passes.collected(kept.select(*small).toArrow(), small, ingest_id)
        return Decoded(rows, large, accounts, crashed, staged=True)

    def _collected(self, index: pa.Table) -> Decoded:
        decoder, found = self.decoder, list[pa.Table]()
        crashed = decoder.run(index, decoder.buckets.groups, lambda staged: found.append(staged.toArrow()))
        parts = pa.concat_tables(found) if found else decoder.schema.empty_table()
        rows = passes.collected(parts, decoder.tables, self.writer.ingest_id)
        return Decoded(rows, {}, passes.accounts(parts), crashed)

    def _write_rounds(self, index: pa.Table, begun: Future[None]) -> int:
        """How many rounds were decoded and written before the last, which is only decoded.

        None where that does not pay, or where a worker died: who did it is found where nothing was written yet.
        """
        decoder, writer = self.decoder, self.writer
        size = max(ROUND_BYTES * decoder.buckets.count, self.input_bytes // MOST_ROUNDS)
        *rounds, last = passes.rounds(index, decoder.plans, size)
        if not rounds:
            return 0
        begun.result()
        groups, tables = decoder.buckets.groups, [name for name in FINAL if name in decoder.tables]
        states: passes.States = decoder.states
        writing: list[Future[None]] = []
        with ThreadPoolExecutor(1) as beside, ExitStack() as stack, interpreted(self.spark, False):
            stack.callback(beside.shutdown, wait=False, cancel_futures=True)  # what failed, or Ctrl-C, begins no more
            try:
                for number, part in enumerate(rounds):
                    _stage(decoder.staged(part, groups, states, last=False), self._directory(number))
                    kept = self._read(self._directory(number))
                    left = kept.select(PAUSED).toArrow()[PAUSED].drop_null()
                    states = passes.paused(left.to_pylist(), index)
                    parts = [(name, _rows(kept, name, writer.ingest_id)) for name in tables]
                    writing += [beside.submit(writer.append, name, made) for name, made in parts]
                _stage(decoder.staged(last, groups, states), self._directory(len(rounds)))
            except Exception as error:
                if not passes.is_workers_fault(error):
                    raise
                _wait(writing)
                writer.take_back(tables)
                sweep_staging(self.spark, writer.staging)
                return 0
            _wait(writing)
        return len(rounds)

    def _directory(self, number: int) -> str:
        return f"{self.writer.staging}/{number}"

    def _read(self, *directories: str) -> DataFrame:
        return self.spark.read.schema(spark_schema(self.decoder.schema)).parquet(*map(no_glob, directories))


def _stage(parts: DataFrame, directory: str) -> None:
    parts.write.mode("append").option("compression", "uncompressed").parquet(directory)


def _rows(staged: DataFrame, name: str, ingest_id: int, tasks: int = 0) -> DataFrame:
    """The rows of one table out of staged parts, by so many tasks; 0: one for each file of parts."""
    column = staged.select(name).where(f"`{name}` IS NOT NULL")
    if tasks:
        column = column.repartition(tasks)
    return column.mapInArrow(passes.unstage(name, ingest_id), spark_schema(arrow_schema(name)))


def _wait(writing: list[Future[None]]) -> None:
    for each in writing:
        each.result()
