"""The shapes `Column` and `Table`, the column types, and the columns that several tables share.

All integers are signed, because Spark has no unsigned types; times are UTC with microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

BOOL, I32, I64, F64, TEXT, BYTES = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary()
TIME = pa.timestamp("us", tz="UTC")
TEXTS, INTS = pa.list_(pa.string()), pa.list_(pa.int32())

DIRECTIONS = ("c2s", "s2c")


class Column(NamedTuple):
    name: str
    type: pa.DataType
    comment: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One table. `key` identifies a row, `cluster_by` is the clustering of the Delta table, and `stats` are the columns
    whose file statistics are used to skip files. `by_question` groups the names of all columns for readers."""

    name: str
    comment: str
    key: tuple[str, ...]
    cluster_by: tuple[str, ...]
    stats: tuple[str, ...]
    columns: tuple[Column, ...]
    by_question: dict[str, str] = field(hash=False)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def arrow_schema(self) -> pa.Schema:
        fields = [pa.field(c.name, c.type, c.nullable, {b"comment": c.comment.encode()}) for c in self.columns]
        return pa.schema(fields, {b"comment": self.comment.encode()})


def required(name: str, kind: pa.DataType, comment: str) -> Column:
    """A column that is never null."""
    return Column(name, kind, comment, nullable=False)


def per_direction(name: str, kind: pa.DataType, comment: str, nullable: bool = False) -> tuple[Column, ...]:
    """Two columns, for client to server and for server to client."""
    words = {"c2s": "client to server", "s2c": "server to client"}
    return tuple(Column(f"{name}_{d}", kind, f"{comment}; {words[d]}", nullable) for d in DIRECTIONS)


UID = required(
    "uid",
    TEXT,
    "connection id: C, 7 base32hex characters of the start second, 13 of a hash (sensor, endpoints, start)",
)
DIRECTION = required("direction", TEXT, "c2s (client to server) or s2c")
MESSAGE_KEY = ("uid", "direction", "msg_no")
MESSAGE_COLUMNS = (
    UID,
    DIRECTION,
    required("msg_no", I64, "number of the message in its direction, from 0, in order of completion"),
)
TS = required("ts", TIME, "time of the packet that completed the message")
FRAME = required("frame", I64, "packet that completed the message, 1-based in its capture as in Wireshark")
INGEST_ID = Column("ingest_id", I64, "ingest that wrote this row; null outside a lake")
