"""The rows that say what became of each file: `captures`, and the findings about files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import pyarrow as pa

from rtmp_spark.capture.recording import CaptureFile as Described
from rtmp_spark.capture.recording import Recording
from rtmp_spark.schema import arrow_schema

from .decode import Options
from .passes import stamped
from .plan import Scanned
from .scan import About, as_problem


def _described(item: Scanned, other_flows: int) -> Described:
    about: About = item.about
    return Described(
        path=item.file.path,
        capture_id=about.capture_id,
        size_bytes=item.file.size_bytes,
        modified_at=item.file.modified_ns // 1000,
        status=about.status,
        error_code=about.error_code,
        error_hint=about.error_hint,
        format=about.format if about.capture_id else None,
        compression=about.compression or None,
        link_types=about.link_types,
        snaplen=about.snaplen or None,
        packets=about.packets,
        packets_truncated=about.packets_truncated,
        ts_first=None if about.ts_first_ns is None else about.ts_first_ns // 1000,
        ts_last=None if about.ts_last_ns is None else about.ts_last_ns // 1000,
        other_flows=other_flows,
        problems=[as_problem(p) for p in about.problems],
    )


def file_rows(
    new: Sequence[Scanned], other: Mapping[int, int], options: Options, ingest_id: int
) -> dict[str, pa.Table]:
    """The rows of `captures`, and the findings about files, as a recording of these files ends."""
    names = ("captures", "findings")
    recording = Recording([], options.settings(), names)
    recording.files = [_described(item, other.get(item.number, 0)) for item in new]
    recording._end_of_recording()
    made: dict[str, list[pa.RecordBatch]] = {name: [] for name in names}
    for table, batch in recording._sink.flush([file.capture_id for file in recording.files]):
        made[table].append(batch)
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", tz="UTC"))
    tables: dict[str, pa.Table] = {}
    for name, batches in made.items():
        schema = arrow_schema(name)
        table = pa.Table.from_batches(batches, schema)
        if name == "captures":
            place = schema.get_field_index("ingested_at")
            table = table.set_column(place, schema.field(place), pa.repeat(now, table.num_rows))
        tables[name] = stamped(table, schema, ingest_id)
    return tables
