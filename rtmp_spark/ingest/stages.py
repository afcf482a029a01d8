"""What the pipeline asks of the engine that runs it: parallel stages.

`rtmp_spark.spark.stages` runs them as Spark jobs. The functions that do the work are in `tasks`; an engine only
distributes them, retries what failed for reasons of the machine, and isolates what kills a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from rtmp_spark.ingest.decode.decode_job import Decoded, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.tasks import Scans
from rtmp_spark.ingest.scan.split_scan import Split


class Stages(Protocol):
    @property
    def cores(self) -> int: ...

    def scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> Scans:
        """Scan every split, and stage its packets."""

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        """Decode `pieces` (schema BUCKET_INPUT), one task per bucket."""

    def run(
        self, task: Callable[[str], str], work: Sequence[str], seconds: float, small: bool
    ) -> tuple[list[str], list[tuple[str, str]]]:
        """The results of `task` for each piece of work, in any order, and the pieces that kill their worker, with the
        reason. `task` gets a TimeoutError after `seconds`. Work that is `small` may run in this process, unlimited."""
