"""Delta tables without Spark: writing, publishing, maintaining and reading a lake.

Executors write Parquet files, the driver commits lists of files, one row of the ledger publishes them all. What the
rest of the project calls:

    location = locate(path, options, hadoop=settings)              location.py: where the lake is; goes to executors
    location.for_spark                                             the same place as Hadoop names it

    with open_writer(location, wait_seconds=600) as writer:        writer.py, in the driver: one ingest
        writer.ingest_id, writer.is_new, writer.captures_numbered
        writer.is_delivered(Batch(app_id, batch_id))               streaming: published before?
        writer.lake.redact_key                                     the key under which secrets are hashed
        writer.table("captures").to_table(columns, filter)         published rows, a pyarrow dataset
        target = writer.target                                     a small value for the executors

        files = BucketFiles(target, bucket)                        parquet_files.py, in an executor
        files.add("messages", rows, kind)                          kind: PART, OPEN or RESUMED
        written = files.finish()                                   list[WrittenFile], small; back to the driver
        write_rows(target, "captures", rows)                       one file, for few rows

        writer.resume(uids)                                        connections that continue: their OPEN rows go
        writer.replace("findings", expression)                     rows of earlier ingests for which it is true go
        writer.pending("messages", written)                        rows as they will be once they are published
        writer.publish(written, summary=..., captures_numbered=..., batch=...)

Rows that a later ingest may replace belong into OPEN files: the connection-level rows, provisional messages and last
interval of connections that are still open. Final message rows of connections that began in an earlier ingest belong
into RESUMED files. `resume` writes only OPEN files again; `replace` takes a pyarrow expression and writes every file
again that holds such rows (decoding again: those of the connections, in every table).

    lake = open_lake(path, options, hadoop=settings)               reader.py: every table at one published moment
    lake.messages, lake.table(name), lake.tables()                 pyarrow datasets; DuckDB, Polars, pandas take them
    lake.published.versions                                        for Spark: versionAsOf of every table
    lake.refresh(), lake.redact_key

    needs_compaction(location), compact(location)                  compaction.py
    clean_up(location, retention_hours=168)                        maintenance.py: old files, orphans, old log entries

Errors that a person can act on are `UserError`; storage faults are `LakeFault`, a lost race is `LostRace` (faults.py).
After any of them nothing is published, unless `writer.published` is set. The public names are loaded when they are
used, so that `rtmp_spark.lake.failpoint` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "Lake": "reader",
    "clean_up": "maintenance",
    "compact": "compaction",
    "locate": "location",
    "open_lake": "reader",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
