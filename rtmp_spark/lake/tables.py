"""The Delta tables of a lake, made from `rtmp_spark.schema`: creation, missing columns, versions of the layout.

Reader version 1 and writer version 2: no clustering, no partitions, no deletion vectors, so any Delta reader can read
a lake.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from rtmp_spark.codec.errors import UserError
from rtmp_spark.redact import load_key
from rtmp_spark.schema import SCHEMA_VERSION, TABLES, arrow_schema

from .commit import NO_HOOKS, Act, Marker, open_table
from .failpoint import failpoint
from .faults import explained
from .location import Location

LEDGER = "_ingests"
LAYOUT = 2  # how a lake is published; 1: by the events of each ingest, before there were published versions
_LAYOUT, _SCHEMA, _NAME, _TABLES, _KEY = (
    f"rtmp_spark.{word}" for word in ("layout", "schema_version", "table", "tables", "key_file")
)
LEDGER_SCHEMA = pa.schema(
    [
        pa.field("ingest_id", pa.int64(), False, {"comment": "number of the published change, from 1"}),
        pa.field("uuid", pa.string(), False, {"comment": "marks the commits of this change in the logs"}),
        pa.field("kind", pa.string(), False, {"comment": "ingest or maintenance"}),
        pa.field("versions", pa.map_(pa.string(), pa.int64()), False, {"comment": "published version of every table"}),
        pa.field("published_at", pa.timestamp("us", tz="UTC"), False, {"comment": "when the writer published it"}),
        pa.field("writer", pa.string(), False, {"comment": "user, host and process"}),
        pa.field("codec_version", pa.string(), False, {"comment": "version of rtmp-spark"}),
        pa.field("captures_numbered", pa.int64(), False, {"comment": "numbers given to captures so far"}),
        pa.field("summary", pa.string(), True, {"comment": "JSON of what the ingest did"}),
        pa.field("app_id", pa.string(), True, {"comment": "streaming query, if one called"}),
        pa.field("batch_id", pa.int64(), True, {"comment": "its batch"}),
    ]
)
_LEDGER_COMMENT = "the ledger: the newest row names the published version of every table"


def create_lake(location: Location) -> None:
    """Create every table and then the ledger. The creator of the ledger has made the lake; others use that one."""
    _refuse_foreign_content(location)
    key_file = f"_redact/key-{uuid.uuid4().hex}"
    maker = Marker(uuid.uuid4().hex, "create")
    with explained(str(location), "create the tables"):
        location.write(key_file, load_key().hex().encode())
        failpoint("key written")
        for name in TABLES:
            create_table(location, name, maker)
            failpoint(f"created {name}")
        configuration = {
            _LAYOUT: str(LAYOUT), _SCHEMA: str(SCHEMA_VERSION), _KEY: key_file, _TABLES: ",".join(TABLES),
            "delta.dataSkippingStatsColumns": "ingest_id",
        }  # fmt: skip
        _create(location, LEDGER, LEDGER_SCHEMA, _LEDGER_COMMENT, configuration, maker)
    failpoint("lake created")


def create_table(location: Location, name: str, maker: Marker) -> None:
    """Create an empty table; one that a dead or concurrent creation left is used as it is."""
    table = TABLES[name]
    configuration = {_NAME: name, "delta.dataSkippingStatsColumns": ",".join(table.stats)}
    _create(location, name, arrow_schema(name), table.comment, configuration, maker)


def _create(
    location: Location, name: str, schema: pa.Schema, comment: str, configuration: dict[str, str], maker: Marker
) -> None:
    try:
        DeltaTable.create(
            location.table(name),
            schema=schema,
            mode="error",
            name=name,
            description=comment,
            configuration={**configuration, "delta.enableExpiredLogCleanup": "false"},
            storage_options=location.storage_options,
            commit_properties=maker.properties(),
            post_commithook_properties=NO_HOOKS,
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        if not exists(location, name):
            raise


def exists(location: Location, table: str) -> bool:
    return bool(DeltaTable.is_deltatable(location.table(table), storage_options=location.storage_options))


def require_lake_or_empty(location: Location) -> list[str]:
    """Raises a UserError if something else is at this place; returns the names of what is there."""
    if location.is_local and Path(location.uri).is_file():
        raise UserError(f"{location} is a file.", "Name a directory with --lake.")
    with explained(str(location), "list the directory"):
        present = [info.base_name for info in location.list("")]
    foreign = [name for name in present if not name.startswith(("_", ".")) and name not in TABLES]
    if foreign and LEDGER not in present:
        raise UserError(
            f"{location} is not a lake: it contains {foreign[0]!r}.", "Name an empty or new directory with --lake."
        )
    return present


def _refuse_foreign_content(location: Location) -> None:
    present = require_lake_or_empty(location)
    for name in TABLES:
        if name not in present:
            continue
        with explained(str(location), f"open the table {name}"):
            try:
                handle = open_table(location, name)
            except TableNotFoundError:
                if any(info.extension == "parquet" for info in location.list(name)):
                    raise _lost_ledger(location) from None
                continue
        if handle.metadata().configuration.get(_NAME) != name:
            sentence = f"{location} is not a lake: rtmp-spark did not create its Delta table {name!r}."
            raise UserError(sentence, "Name an empty or new directory with --lake.")
        if handle.version():
            raise _lost_ledger(location)


def _lost_ledger(location: Location) -> UserError:
    remedy = "Restore that directory from a backup, or ingest into a new lake."
    return UserError(f"The lake {location} lost its ledger ({LEDGER}).", remedy)


def check_layout(location: Location, ledger: DeltaTable) -> None:
    """Refuse lakes that this version cannot read."""
    properties = ledger.metadata().configuration
    layout, schema = (_number(properties.get(name)) for name in (_LAYOUT, _SCHEMA))
    if layout > LAYOUT or schema > SCHEMA_VERSION:
        raise UserError(
            f"The lake {location} was made by a newer rtmp-spark (layout {layout}, tables {schema}; "
            f"this version knows layout {LAYOUT}, tables {SCHEMA_VERSION}).",
            "Upgrade rtmp-spark, or use another lake.",
        )
    if schema and layout < LAYOUT:
        raise UserError(
            f"The lake {location} was made by an older rtmp-spark (layout {layout or 1}; this version needs {LAYOUT}).",
            "Ingest its captures into a new lake.",
        )
    if not schema:
        raise UserError(f"{location} is not a lake of rtmp-spark.", "Name another directory with --lake.")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def first_versions(ledger: DeltaTable) -> dict[str, int]:
    """The versions of the tables of a new lake, before anything is published."""
    names = ledger.metadata().configuration.get(_TABLES) or ""
    return dict.fromkeys(names.split(",") if names else (), 0)


def key_file(ledger: DeltaTable) -> str:
    return str(ledger.metadata().configuration.get(_KEY) or "")


def check_columns(location: Location, handle: DeltaTable, name: str) -> list[str]:
    """The columns of our schema that a table lacks; refuses a table with other types."""
    present = {field.name: field.type for field in pa.schema(handle.schema().to_arrow())}
    ours = arrow_schema(name)
    for field in ours:
        if field.name in present and present[field.name] != field.type and not pa.types.is_list(field.type):
            raise UserError(
                f"The column {name}.{field.name} of the lake {location} is {present[field.name]}, not {field.type}.",
                "Restore the table from a backup, or ingest into a new lake.",
            )
    return [field.name for field in ours if field.name not in present]


def add_columns(name: str, missing: list[str]) -> Act:
    """An act that adds columns of our schema to a table, nullable, at its end."""
    wanted = [arrow_schema(name).field(column).with_nullable(True) for column in missing]
    fields = Schema.from_arrow(pa.schema(wanted)).fields

    def act(handle: DeltaTable, properties: CommitProperties, hooks: PostCommitHookProperties) -> None:
        handle.alter.add_columns(fields, commit_properties=properties, post_commithook_properties=hooks)

    return act
