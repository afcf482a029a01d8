"""Files that share no connection are separate parts, and one bucket reads each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit.in_process_ingest import scanned

from rtmp_spark.analysis.arrow_columns import arrow_rows
from rtmp_spark.ingest.scan.flow_index import FLOWS, GROUPS
from rtmp_spark.ingest.scan.flow_tables import weights
from rtmp_spark.ingest.scan.partition import groups_by_part, parts_of_files, split_by_part
from rtmp_spark.ingest.scan.plan import assign_buckets
from rtmp_spark.ingest.scan.split_scan import Split

ALONE = ("ffmpeg_publish_h264_aac.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")


def flows_in(split: Split, staging: Path) -> pa.Table:
    rows = scanned(split, staging).flows.rows(split.split_id)
    return pa.Table.from_batches([arrow_rows(list(rows), FLOWS)])


def flows_of(paths: list[Path], staging: Path) -> tuple[pa.Table, dict[int, int]]:
    tables = []
    for number, path in enumerate(paths):
        size = path.stat().st_size
        tables.append(flows_in(Split(number, str(path), 0, size, size), staging))
    return pa.concat_tables(tables), {n: n for n in range(len(paths))}


def by_part(paths: list[Path], staging: Path) -> pa.Table:
    flows, files = flows_of(paths, staging)
    return split_by_part(flows, files, parts_of_files(flows, files))


def parts(flows: pa.Table) -> list[list[int]]:
    return groups_by_part(set(flows["group"].to_pylist()))


def files_of(flows: pa.Table, groups: list[int]) -> set[int]:
    return {s for s, g in zip(flows["split_id"].to_pylist(), flows["group"].to_pylist()) if g in groups}


def test_files_without_a_common_connection_are_separate_parts(sample_pcaps: Path, tmp_path: Path) -> None:
    flows = by_part([sample_pcaps / name for name in ALONE], tmp_path)
    assert [files_of(flows, groups) for groups in parts(flows)] == [{0}, {1}, {2}]


def test_a_rotated_recording_is_one_part(sample_pcaps: Path, tmp_path: Path) -> None:
    rotated = sorted(sample_pcaps.glob("rotated_publish_*.pcap"))
    assert len(rotated) == 3
    before, _ = flows_of([sample_pcaps / ALONE[0], *rotated], tmp_path)
    flows = by_part([sample_pcaps / ALONE[0], *rotated], tmp_path)
    assert [files_of(flows, groups) for groups in parts(flows)] == [{0}, set(range(1, len(rotated) + 1))]
    assert [g % GROUPS for g in flows["group"].to_pylist()] == before["group"].to_pylist()


def test_files_whose_connections_are_decoded_together_are_one_part(sample_pcaps: Path, tmp_path: Path) -> None:
    flows, files = flows_of([sample_pcaps / name for name in ALONE], tmp_path)
    keys = [flows.filter(pc.equal(flows["split_id"], n))["key"][0].as_py() for n in (0, 2)]
    found = parts_of_files(flows, files, [keys])
    assert found[0] == found[2] != found[1]


def test_a_connection_counts_once_however_many_splits_hold_it(sample_pcaps: Path, tmp_path: Path) -> None:
    path = sample_pcaps / ALONE[0]
    size = path.stat().st_size
    (whole,) = weights(flows_of([path], tmp_path)[0]).values()
    for step in (size // 2, size // 9):
        splits = [Split(n, str(path), n, min(n + step, size), size) for n in range(0, size, step)]
        tables = [flows_in(split, tmp_path) for split in splits]
        (cut,) = weights(pa.concat_tables(tables)).values()
        assert cut == whole


@pytest.mark.parametrize("cores", [2, 5])
def test_many_files_are_read_by_one_bucket_each(sample_pcaps: Path, tmp_path: Path, cores: int) -> None:
    """Copies of a capture with several connections, each with other addresses."""
    content = (sample_pcaps / "republish_same_name.pcap").read_bytes()
    paths = [tmp_path / f"{n}.pcap" for n in range(40)]
    for n, path in enumerate(paths):
        path.write_bytes(content.replace(bytes((127, 0, 0, 1)), bytes((127, 0, n, 1))))
    flows = by_part(paths, tmp_path / "staging")
    assert len(parts(flows)) == len(paths)
    assert len(flows) == 2 * len(paths)
    buckets = assign_buckets(weights(flows), [], parts(flows), cores)
    readers = [{buckets.of_group[g] for g in groups} for groups in parts(flows)]
    assert all(len(mine) == 1 for mine in readers)
    assert set.union(*readers) == set(range(cores))
