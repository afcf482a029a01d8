"""The ledger of a lake: which ingests began, committed and were cleaned up; what each one replaced.

Delta has no transaction over several tables. The row `committed` in `_ingests` is the commit point of an ingest:
rows of other tables count only when their `ingest_id` has one. Every attempt gets a new id, so a row of a dead
attempt can be told from all others for ever. Beside it lies the key of the lake's hashes, in a file: properties of
tables are logged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from rtmp_spark import __version__
from rtmp_spark.capture.redact import KEY_VARIABLE
from rtmp_spark.codec.errors import UserError
from rtmp_spark.schema import MESSAGE_TABLES, SCHEMA_VERSION, TABLES

from .lock import holder_name, local_path
from .tables import CHECKPOINT_INTERVAL, delta_name, evolve, fingerprint, literal, no_glob, spark_schema

BEGUN, COMMITTED, CLEANED, ROLLED_BACK = "begun", "committed", "cleaned", "rolled_back"

_TEXT_MAP = pa.list_(pa.string())
_LEDGER = pa.schema(
    [
        pa.field("ingest_id", pa.int64(), False),
        pa.field("event", pa.string(), False),
        pa.field("at", pa.timestamp("us", tz="UTC"), False),
        pa.field("by", pa.string(), False),
        pa.field("codec_version", pa.string(), False),
        pa.field("superseded", _TEXT_MAP),  # one JSON text per connection whose rows were replaced
        pa.field("summary", pa.string()),
    ]
)
LEDGER = "_ingests"
_KEY_FILE = "_redact/key"
_OLD_KEY = "rtmp_spark.redact_key"  # where lakes had it before; the next ingest moves it
_COMMENT = "the ledger: an ingest's rows count once it is committed here"
REPLACEABLE = tuple(name for name in TABLES if name != "captures")
CAPTURES, FAILED = ("captures",), ("failed",)  # what an entry is about, if about no connection


@dataclass(frozen=True)
class Superseded:
    """A connection that went on: its connection-level rows and its provisional message rows are replaced."""

    uid: str
    msg_no_c2s: int = 0
    msg_no_s2c: int = 0
    second: int = 0  # first epoch second whose interval is replaced
    tables: tuple[str, ...] = REPLACEABLE  # those that hold rows to replace
    command_c2s: int | None = None  # commands may lag behind their messages; None: they do not
    command_s2c: int | None = None

    @classmethod
    def failed(cls, sensor: str, path: str) -> Superseded:
        """The row about a file that failed."""
        return cls(json.dumps([sensor, path]), tables=FAILED)

    def dump(self) -> str:
        return json.dumps(list(vars(self).values()))

    @classmethod
    def parse(cls, text: str) -> Superseded:
        uid, c2s, s2c, second, tables, *commands = json.loads(text)
        return cls(uid, c2s, s2c, second, tuple(tables), *commands)

    def first_message(self, table: str) -> tuple[int, int]:
        """The first replaced rows of a message table, c2s and s2c."""
        first = self.msg_no_c2s, self.msg_no_s2c
        if table == "commands" and self.command_c2s is not None and self.command_s2c is not None:
            first = self.command_c2s, self.command_s2c
        return first


def replaced(table: str, entries: Iterable[Superseded], before: int) -> str:
    """SQL condition for the rows of `table` that ingest `before` replaced; empty when there can be none.

    An entry for `captures` names a capture instead of a connection, and stands for the findings about it too; one for
    a file that failed names its sensor and path.
    """
    entries = list(entries)
    captures = ", ".join(literal(e.uid) for e in entries if e.tables == CAPTURES)
    if table == "captures":
        files = [json.loads(e.uid) for e in entries if e.tables == FAILED]
        any_of = [f"(sensor = {literal(s)} AND path = {literal(p)} AND status = 'failed')" for s, p in files]
        any_of += [f"capture_id IN ({captures})"] if captures else []
        return f"ingest_id < {before} AND ({' OR '.join(any_of)})" if any_of else ""
    about_files = f"(ingest_id < {before} AND uid IS NULL AND capture_id IN ({captures}))"
    entries = [e for e in entries if table in e.tables]
    if table == "findings" and captures:
        return f"({replaced(table, entries, before)}) OR {about_files}" if entries else about_files
    if not entries:
        return ""
    if table in MESSAGE_TABLES:
        each = []
        for e in entries:
            c2s, s2c = e.first_message(table)
            sides = f"(direction = 'c2s' AND msg_no >= {c2s}) OR (direction = 's2c' AND msg_no >= {s2c})"
            each.append(f"(uid = {literal(e.uid)} AND ({sides}))")
        return f"ingest_id < {before} AND ({' OR '.join(each)})"
    if table == "intervals":
        each = [f"(uid = {literal(e.uid)} AND ts_second >= timestamp_seconds({e.second}))" for e in entries]
        return f"ingest_id < {before} AND ({' OR '.join(each)})"
    uids = ", ".join(literal(e.uid) for e in entries)
    return f"ingest_id < {before} AND uid IN ({uids})"


@dataclass(frozen=True)
class State:
    """What the ledger says now."""

    last: int = 0  # the last committed ingest
    highest: int = 0  # the last id ever given
    dead: tuple[int, ...] = ()  # begun, never committed
    unswept: tuple[int, ...] = ()  # of these, rows may still lie in the tables
    pending: tuple[tuple[int, tuple[Superseded, ...]], ...] = field(default=())  # committed, not yet cleaned up
    files: int = 0  # numbers given to captures so far
    unswept_tables: tuple[str, ...] = ()

    def visible(self, table: str) -> str:
        """SQL condition for the rows that count."""
        conditions = [f"ingest_id <= {self.last}"]
        if self.dead:
            conditions.append(f"ingest_id NOT IN ({', '.join(map(str, self.dead))})")
        for ingest_id, entries in self.pending:
            gone = replaced(table, entries, ingest_id)
            if gone:
                conditions.append(f"NOT coalesce({gone}, false)")
        return " AND ".join(conditions)


def ledger_statement(path: str) -> str:
    columns = ", ".join(
        f"`{f.name}` {f.dataType.simpleString().upper()}{'' if f.nullable else ' NOT NULL'}"
        for f in spark_schema(_LEDGER)
    )
    return (
        f"CREATE TABLE IF NOT EXISTS {delta_name(f'{path}/{LEDGER}')} ({columns}) USING DELTA "
        f"COMMENT {literal(_COMMENT)} TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', "
        f"'delta.checkpointInterval' = '{CHECKPOINT_INTERVAL}', "
        f"'rtmp_spark.columns' = '{fingerprint()}', 'rtmp_spark.schema_version' = '{SCHEMA_VERSION}')"
    )


class Ledger:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        self.name = delta_name(f"{path}/{LEDGER}")

    def exists(self) -> bool:
        directory = local_path(self.path)
        if directory is not None:
            return (directory / LEDGER / "_delta_log").is_dir()
        try:
            return bool(self.spark.table(self.name).columns)
        except AnalysisException:
            return False

    def create(self) -> None:
        """Last of a new lake's tables: a lake without a ledger is made again."""
        self.spark.sql(ledger_statement(self.path))

    def evolve(self, properties: dict[str, str]) -> None:
        if properties.get("rtmp_spark.columns") != fingerprint():
            evolve(self.spark, self.path)
            self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('rtmp_spark.columns' = '{fingerprint()}')")
        if _OLD_KEY in properties:
            self.keep_key(bytes.fromhex(properties[_OLD_KEY]))
            self.spark.sql(f"ALTER TABLE {self.name} UNSET TBLPROPERTIES IF EXISTS ('{_OLD_KEY}')")

    def properties(self) -> dict[str, str]:
        return {r["key"]: r["value"] for r in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def check_version(self) -> dict[str, str]:
        properties = self.properties()
        version = int(properties.get("rtmp_spark.schema_version", "0"))
        if version == 0:
            raise UserError(f"{self.path} is no lake of rtmp-spark.", "Name another directory with --lake.")
        if version > SCHEMA_VERSION:
            raise UserError(
                f"The lake {self.path} was made by a newer rtmp-spark (tables of version {version}; "
                f"this one knows {SCHEMA_VERSION}).",
                "Upgrade rtmp-spark, or use another lake.",
            )
        return properties

    def redact_key(self, properties: dict[str, str]) -> bytes:
        """The environment's, else the one its maker had: the same names in all lakes of one person hash alike."""
        given = os.environ.get(KEY_VARIABLE)
        if given:
            return given.encode()
        return bytes.fromhex(properties.get(_OLD_KEY) or self._kept_key())

    def _kept_key(self) -> str:
        directory = local_path(self.path)
        if directory is not None:  # to read one line needs no Spark job
            parts = [part.read_text().strip() for part in sorted((directory / _KEY_FILE).glob("part-*"))]
        else:
            parts = [row[0] for row in self.spark.read.text(no_glob(f"{self.path}/{_KEY_FILE}")).collect()]
        kept: list[str] = [part for part in parts if part]
        if not kept:
            raise UserError(
                f"The lake {self.path} lacks its key for hashing names ({_KEY_FILE}).",
                f"Copy it from where the lake came from, or give the key in {KEY_VARIABLE}.",
            )
        return kept[0]

    def keep_key(self, key: bytes) -> None:
        directory = local_path(self.path)
        if directory is not None:
            (directory / _KEY_FILE).mkdir(parents=True, exist_ok=True)
            (directory / _KEY_FILE / "part-0").write_text(key.hex())
            return
        frame = self.spark.createDataFrame(pa.table({"value": [key.hex()]})).coalesce(1)
        frame.write.mode("overwrite").text(f"{self.path}/{_KEY_FILE}")

    def read(self) -> State:
        rows = self.spark.table(self.name).select("ingest_id", "event", "superseded", "summary").toArrow().to_pylist()
        events: dict[int, dict[str, list[str]]] = {}
        files = 0
        begun: dict[int, list[str]] = {}
        for row in rows:
            events.setdefault(row["ingest_id"], {})[row["event"]] = row["superseded"] or []
            summary = json.loads(row["summary"]) if row["summary"] else {}
            files = max(files, int(summary.get("files", 0)))
            if row["event"] == BEGUN:
                begun[row["ingest_id"]] = summary.get("tables", list(TABLES))
        committed = [i for i, e in events.items() if COMMITTED in e]
        dead = sorted(i for i, e in events.items() if COMMITTED not in e)
        unswept = tuple(i for i in dead if ROLLED_BACK not in events[i])
        return State(
            last=max(committed, default=0),
            highest=max(events, default=0),
            dead=tuple(dead),
            unswept=unswept,
            pending=tuple(
                (i, tuple(Superseded.parse(t) for t in events[i][COMMITTED]))
                for i in sorted(committed)
                if CLEANED not in events[i]
            ),
            files=files,
            unswept_tables=tuple(dict.fromkeys(t for i in unswept for t in begun.get(i, TABLES))),
        )

    def write(
        self, events: Sequence[str], *ingest_ids: int, superseded: Iterable[Superseded] = (), summary: str = ""
    ) -> None:
        now = datetime.now(timezone.utc)
        rows = [
            {
                "ingest_id": i,
                "event": event,
                "at": now,
                "by": holder_name(),
                "codec_version": __version__,
                "superseded": [s.dump() for s in superseded],
                "summary": summary or None,
            }
            for i in ingest_ids
            for event in events
        ]
        frame = self.spark.createDataFrame(pa.Table.from_pylist(rows, _LEDGER)).coalesce(1)
        writer = frame.write.format("delta").mode("append").option("userMetadata", f"{events} {ingest_ids}")
        writer.save(f"{self.path}/{LEDGER}")
