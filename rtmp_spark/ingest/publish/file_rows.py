"""The rows about each file of an ingest: `captures`, and the findings about files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa

from rtmp_spark.analysis.recording import file_rows as rows_about_files
from rtmp_spark.analysis.row_sink import RowSink
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.ingest.scan.plan import Scanned
from rtmp_spark.schema import arrow_schema


def _described(item: Scanned, other_flows: int) -> FileFacts:
    file = item.file
    return replace(
        item.about,
        path=file.path,
        size_bytes=file.size_bytes,
        modified_at=file.modified_ns // 1000,
        other_flows=other_flows,
    )


def file_rows(
    new: Sequence[Scanned], other_flows: Mapping[int, int], sensor: str, ingest_id: int
) -> dict[str, pa.Table]:
    """The rows of `captures` and the findings about files. `other_flows`: connections that are not RTMP, by number."""
    files = [_described(item, other_flows.get(item.number, 0)) for item in new]
    rows = rows_about_files(files, sensor)
    sink = RowSink(rows)
    for name, own in rows.items():
        sink.add(name, own)
    made: dict[str, list[pa.RecordBatch]] = {name: [] for name in rows}
    for name, batch in sink.flush([file.capture_id for file in files]):
        made[name].append(batch)
    values = {"ingested_at": pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", tz="UTC"))}
    values["ingest_id"] = pa.scalar(ingest_id, pa.int64())
    tables: dict[str, pa.Table] = {}
    for name, batches in made.items():
        schema = arrow_schema(name)
        table = pa.Table.from_batches(batches, schema)
        for column, value in values.items():
            place = schema.get_field_index(column)
            if place >= 0:
                table = table.set_column(place, schema.field(place), pa.repeat(value, table.num_rows))
        tables[name] = table
    return tables
