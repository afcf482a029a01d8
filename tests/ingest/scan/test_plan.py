"""How splits are packed into tasks."""

from __future__ import annotations

import pytest

from rtmp_spark.ingest.scan.plan import TASK_FILES, pack_into_tasks
from rtmp_spark.ingest.scan.split_scan import Split

MB = 1 << 20


def sizes_of_tasks(sizes: list[int], cores: int) -> list[list[int]]:
    splits = [Split(n, f"{n}.pcap", 0, 0, size) for n, size in enumerate(sizes)]
    return [[split.size_bytes for split in task] for task in pack_into_tasks(splits, cores)]


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([64 * MB] * 24, 2, [[64 * MB] * 3] * 8),  # four tasks for each core
        ([64 * MB] * 23 + [59 * MB], 2, [[64 * MB] * 3] * 7 + [[64 * MB, 64 * MB, 59 * MB]]),
        ([64 * MB] * 8, 16, [[64 * MB]] * 8),  # at least 64 MB
        ([10 * MB] * 13, 1, [[10 * MB] * 6, [10 * MB] * 6, [10 * MB]]),
        ([MB, 500 * MB, MB], 1, [[MB], [500 * MB], [MB]]),  # a large file does not wait for small ones
        ([1] * (TASK_FILES + 1), 4, [[1] * TASK_FILES, [1]]),
    ],
)
def test_tasks_are_large_as_long_as_all_cores_have_several(
    sizes: list[int], cores: int, tasks: list[list[int]]
) -> None:
    assert sizes_of_tasks(sizes, cores) == tasks
