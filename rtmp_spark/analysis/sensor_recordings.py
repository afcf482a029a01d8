"""Recordings of one or several sensors, one after the other, and what their comparison shows.

Files of different sensors are never one recording: the packets of one would be copies of the packets of the other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rtmp_spark.analysis.arrow_columns import arrow_batch
from rtmp_spark.analysis.connection_analysis import ConnectionObserver
from rtmp_spark.analysis.recording import ALL_TABLES, CaptureSource, Progress, Recording
from rtmp_spark.analysis.row_sink import Batch
from rtmp_spark.analysis.rows.path_rows import COLUMNS, path_rows
from rtmp_spark.analysis.settings import Settings
from rtmp_spark.capture.files.file_facts import FileFacts
from rtmp_spark.codec.limits import COMPARED_MESSAGES
from rtmp_spark.schema import arrow_schema


class SensorRecordings:
    """Iterate `batches()` once; `files`, `connections` and the other counts are final after that."""

    def __init__(
        self,
        captures: Mapping[str, Sequence[str | os.PathLike[str]]],
        settings: Settings,
        tables: Sequence[str] = ALL_TABLES,
        *,
        progress: Progress | None = None,
        observer: ConnectionObserver | None = None,
        identify: bool = True,
        source: CaptureSource | None = None,
    ) -> None:
        """`captures`: the files of each sensor. The other arguments are those of `Recording`."""
        self._tables = set(tables)
        self._helpers = settings.helpers
        self._compares = "paths" in self._tables and len(captures) > 1
        needed = [*tables, *(name for name in COLUMNS if self._compares and name not in self._tables)]
        self._read: list[Recording] = []
        before = 0  # files of other sensors
        for sensor, paths in captures.items():
            self._read.append(
                Recording(
                    paths,
                    replace(settings, sensor=sensor),
                    [name for name in needed if name != "paths"],
                    progress=None if progress is None else _numbered_from(before, progress),
                    observer=observer,
                    identify=identify,
                    source=source,
                )
            )
            before += len(paths)
        self._kept: dict[str, list[pa.RecordBatch]] = {name: [] for name in COLUMNS}
        self._room = 0

    @property
    def files(self) -> list[FileFacts]:
        return [file for recording in self._read for file in recording.files]

    @property
    def connections(self) -> int:
        return sum(recording.connections for recording in self._read)

    @property
    def refusals(self) -> Counter[str]:
        """Why TCP connections gave no rows."""
        return sum((recording.refusals for recording in self._read), Counter[str]())

    @property
    def severities(self) -> Counter[str]:
        """Of all findings, shown or not."""
        return sum((recording.severities for recording in self._read), Counter[str]())

    def batches(self) -> Iterator[Batch]:
        try:
            yield from self._batches()
        finally:
            if self._helpers is not None:
                self._helpers.close()

    def _batches(self) -> Iterator[Batch]:
        for recording in self._read:
            self._room = COMPARED_MESSAGES // len(self._read)
            for table, batch in recording.batches():
                if self._compares and table in COLUMNS:
                    self._keep(table, batch)
                if table in self._tables:
                    yield table, batch
        if self._compares:
            rows = self._paths()
            if rows.num_rows:
                yield "paths", rows

    def _keep(self, table: str, batch: pa.RecordBatch) -> None:
        if table == "messages":
            batch = batch.slice(0, self._room)
            self._room -= batch.num_rows
        self._kept[table].append(batch.select(list(COLUMNS[table])))

    def _paths(self) -> pa.RecordBatch:
        kept = {name: pa.Table.from_batches(self._kept.pop(name), _selected(name)) for name in COLUMNS}
        messages = kept["messages"].sort_by("uid")
        uids = messages["uid"].to_numpy(zero_copy_only=False)

        def read(table: str, wanted: Collection[str]) -> pa.Table:
            if table != "messages":
                return kept[table]
            places = [(int(np.searchsorted(uids, uid)), int(np.searchsorted(uids, uid, "right"))) for uid in wanted]
            return pa.concat_tables([messages.slice(first, last - first) for first, last in places])

        rows = path_rows(kept["connections"], read)
        columns = list(zip(*rows)) or [()] * (len(arrow_schema("paths")) - 1)
        return arrow_batch([*columns, [None] * len(rows)], arrow_schema("paths"))


def _numbered_from(first: int, progress: Progress) -> Progress:
    return lambda done, file_no: progress(done, first + file_no)


def _selected(table: str) -> pa.Schema:
    return pa.schema([arrow_schema(table).field(name) for name in COLUMNS[table]])
