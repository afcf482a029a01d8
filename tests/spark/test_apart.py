"""Which files are decoded apart, and that each is then read by one bucket."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rtmp_spark.spark.apart import apart, of_parts
from rtmp_spark.spark.passes import SCANNED, weights
from rtmp_spark.spark.plan import assign
from rtmp_spark.spark.scan import GROUPS, Split, scan

ALONE = ("ffmpeg_publish_h264_aac.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")


def index_of(paths: list[Path]) -> tuple[pa.Table, dict[int, int]]:
    rows = []
    for number, path in enumerate(paths):
        size = path.stat().st_size
        _, index = scan(Split(number, str(path), 0, size, size))
        rows += [{"split_id": number, "group": g, "flows": f, "packets": p} for g, f, p in index.rows()]
    return pa.Table.from_pylist(rows, SCANNED), {n: n for n in range(len(paths))}


def files_of(index: pa.Table, groups: list[int]) -> set[int]:
    return {s for s, g in zip(index["split_id"].to_pylist(), index["group"].to_pylist()) if g in groups}


def test_files_without_a_common_connection_are_apart(sample_pcaps: Path) -> None:
    index = apart(*index_of([sample_pcaps / name for name in ALONE]))
    assert [files_of(index, groups) for groups in of_parts(index)] == [{0}, {1}, {2}]


def test_a_rotated_recording_is_one_part(sample_pcaps: Path) -> None:
    rotated = sorted(sample_pcaps.glob("rotated_publish_*.pcap"))
    assert len(rotated) == 3
    before, files = index_of([sample_pcaps / ALONE[0], *rotated])
    index = apart(before, files)
    assert [files_of(index, groups) for groups in of_parts(index)] == [{0}, set(range(1, len(rotated) + 1))]
    assert [g % GROUPS for g in index["group"].to_pylist()] == before["group"].to_pylist()


@pytest.mark.parametrize("cores", [2, 5])
def test_many_files_are_read_by_one_bucket_each(sample_pcaps: Path, tmp_path: Path, cores: int) -> None:
    """Other addresses in each copy of a capture that holds several connections."""
    content = (sample_pcaps / "republish_same_name.pcap").read_bytes()
    paths = [tmp_path / f"{n}.pcap" for n in range(40)]
    for n, path in enumerate(paths):
        path.write_bytes(content.replace(bytes((127, 0, 0, 1)), bytes((127, 0, n, 1))))
    index = apart(*index_of(paths))
    assert len(of_parts(index)) == len(paths)
    assert len(index) == 2 * len(paths)
    buckets = assign(weights(index), [], [], of_parts(index), cores)
    readers = [{buckets.of_group[g] for g in groups} for groups in of_parts(index)]
    assert all(len(mine) == 1 for mine in readers)
    assert set.union(*readers) == set(range(cores))
