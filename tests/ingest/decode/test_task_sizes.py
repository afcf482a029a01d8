"""What travels with every task is small, however many splits and saved connections a round has."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from kit import capture_rewriting
from kit.in_process_ingest import InProcessStages, ingest_in_process, lake_rows

from rtmp_spark.ingest.decode.decode_job import Decoded, DecodeJob, ScanJob
from rtmp_spark.ingest.decode.tasks import Scans
from rtmp_spark.ingest.scan.split_scan import Split

jobs: list[int] = []
inputs: list[tuple[int, int]] = []  # bytes and rows without the saved states


class MeasuredStages(InProcessStages):
    def scan(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> Scans:
        jobs.append(len(pickle.dumps(job)))
        return super().scan(job, tasks)

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        jobs.append(len(pickle.dumps(job)))
        inputs.append((pieces.drop_columns(["state"]).nbytes, pieces.num_rows))
        return super().decode(job, pieces, buckets)


def test_a_task_is_small(sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = capture_rewriting.read(sample_pcaps / "ffmpeg_publish_h264_aac.pcap")
    for half, part in enumerate((packets[:200], packets[200:])):
        content = capture_rewriting.pcap(capture_rewriting.build(part))
        for n in range(30):
            (tmp_path / f"{half}-{n:02}.pcap").write_bytes(
                content.replace(bytes((127, 0, 0, 1)), bytes((127, 0, n, 1)))
            )
    monkeypatch.setattr("kit.in_process_ingest.InProcessStages", MeasuredStages)
    for half in range(2):
        ingest_in_process(tmp_path / "lake", tmp_path.glob(f"{half}-*.pcap"), buckets=4, split_bytes=20_000)
    assert len({row["uid"] for row in lake_rows(tmp_path / "lake", "connections")}) == 30
    assert len(jobs) == 4 and max(jobs) < 4_000
    assert all(rows >= 30 and size / rows < 64 for size, rows in inputs)
