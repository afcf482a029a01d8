"""Every table with its columns, types, nullability and comments; one module per table.

Spark schemas, `CREATE TABLE` statements, docs/tables.md, the JSON Lines of `inspect` and the checks derive from
`TABLES`. To add a column, edit the module of its table.
"""

from __future__ import annotations

import pyarrow as pa

from rtmp_spark.schema.captures import CAPTURES
from rtmp_spark.schema.commands import COMMANDS
from rtmp_spark.schema.connections import CONNECTIONS
from rtmp_spark.schema.controls import CONTROLS
from rtmp_spark.schema.deliveries import DELIVERIES
from rtmp_spark.schema.findings import FINDINGS
from rtmp_spark.schema.handshakes import HANDSHAKES
from rtmp_spark.schema.intervals import INTERVALS
from rtmp_spark.schema.media_tags import MEDIA_TAGS
from rtmp_spark.schema.messages import MESSAGES
from rtmp_spark.schema.open_flows import OPEN_FLOWS
from rtmp_spark.schema.paths import PATHS
from rtmp_spark.schema.payloads import PAYLOADS
from rtmp_spark.schema.streams import STREAMS
from rtmp_spark.schema.table import DIRECTIONS, Column, Table

__all__ = [
    "DIRECTIONS",
    "MESSAGE_TABLES",
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Table",
    "arrow_schema",
    "column_names",
]

SCHEMA_VERSION = 1

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        CAPTURES,
        CONNECTIONS,
        HANDSHAKES,
        MESSAGES,
        CONTROLS,
        COMMANDS,
        MEDIA_TAGS,
        STREAMS,
        DELIVERIES,
        PATHS,
        INTERVALS,
        FINDINGS,
        PAYLOADS,
        OPEN_FLOWS,
    )
}

MESSAGE_TABLES = ("messages", "controls", "commands", "media_tags", "payloads")

_ARROW_SCHEMAS = {name: table.arrow_schema() for name, table in TABLES.items()}


def arrow_schema(table: str) -> pa.Schema:
    return _ARROW_SCHEMAS[table]


def column_names(table: str) -> tuple[str, ...]:
    return TABLES[table].column_names
