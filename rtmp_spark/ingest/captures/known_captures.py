"""Which of the files given to an ingest are new, by what the lake knows of captures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rtmp_spark.ingest.captures.capture_paths import CaptureFile
from rtmp_spark.ingest.publish.lake_rows import PublishedTables
from rtmp_spark.ingest.publish.neighbours import of_sensor

CaptureRow = dict[str, Any]  # a row of `captures`, times in microseconds
UNREADABLE, CRASHED = "UNREADABLE", "CRASHED"
_COLUMNS = (
    "path", "size_bytes", "modified_at", "capture_id", "status", "error_hint", "error_code", "sensor", "ts_first",
    "ts_last", "compression", "codec_version", "ingest_id",
)  # fmt: skip


@dataclass
class KnownCaptures:
    """The rows of `captures` of one sensor."""

    rows: list[CaptureRow] = field(default_factory=list)

    @classmethod
    def of(cls, lake: PublishedTables, sensor: str) -> KnownCaptures:
        if lake.is_new:
            return cls()
        table = lake.read("captures", _COLUMNS, of_sensor(sensor))
        for name in ("modified_at", "ts_first", "ts_last"):
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
        return cls(table.to_pylist())

    @property
    def content_ids(self) -> set[str]:
        return {row["capture_id"] for row in self.rows if row["capture_id"] and row["status"] != "failed"}

    def crashed_ids(self, codec_version: str) -> set[str]:
        """Captures with a connection on which a worker died under another version of the decoder."""
        crashed = (row for row in self.rows if row["error_code"] == CRASHED and row["codec_version"] != codec_version)
        return {row["capture_id"] for row in crashed if row["capture_id"]}

    @property
    def newest_packet(self) -> int:
        """Epoch microseconds; 0 if the lake has no packet of this sensor."""
        return max((row["ts_last"] or 0 for row in self.rows), default=0)

    @property
    def newest_beginning(self) -> int:
        """The latest beginning of a capture of this sensor, epoch microseconds; 0 if the lake has no packet of it."""
        return max((row["ts_first"] or 0 for row in self.rows), default=0)

    @property
    def failures(self) -> set[tuple[Any, ...]]:
        """Path, size, modification time and reason of each file that failed."""
        columns = ("path", "size_bytes", "modified_at", "error_hint")
        return {tuple(row[name] for name in columns) for row in self.rows if row["status"] == "failed"}

    def select(self, files: Iterable[CaptureFile], verify: bool, codec_version: str) -> Selection:
        """Files to read. A file with a known path, size and modification time is skipped, unless `verify`.

        A file that could not be read, or on which a worker died under another version of the decoder, is tried again.
        """
        known = {(row["path"], row["size_bytes"], row["modified_at"]): row for row in self.rows}
        chosen = Selection()
        for file in files:
            row = known.get((file.path, file.size_bytes, file.modified_ns // 1000))
            if row is None or verify or row["error_code"] == UNREADABLE:
                chosen.new.append(file)
            elif row["error_code"] == CRASHED and row["codec_version"] != codec_version:
                chosen.new.append(file)
            elif row["status"] == "failed":
                chosen.failed.append((file.path, row["error_hint"] or ""))
            else:
                chosen.known.append(file.path)
        return chosen


@dataclass
class Selection:
    new: list[CaptureFile] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # path and reason of an earlier ingest
