"""The pipeline in one process: known files, failed files, files that grew, late files, `--redo`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit import capture_rewriting
from kit.capture_rewriting import pcap
from kit.handmade_facts import table
from kit.in_process_ingest import InProcessStages, ingest_in_process, lake_rows
from kit.ingested_lakes import VOLATILE, Rows, captures_of_many_kinds, comparable_rows

from rtmp_spark.capture.files.pcap import write
from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.decode.decode_job import Decoded, DecodeJob
from rtmp_spark.ingest.ingest_summary import Summary
from rtmp_spark.redact import KEY_VARIABLE

SMALL = "ffmpeg_publish_g711mu_audio_only.pcap"


def same(left: Rows, right: Rows) -> list[str]:
    return [f"{name}: {len(left[name])} and {len(right[name])} rows" for name in left if left[name] != right[name]]


@pytest.fixture(scope="module")
def captures(sample_pcaps: Path) -> list[Path]:
    return captures_of_many_kinds(sample_pcaps)


def run(paths: Iterable[Path], lake: Path, **options: Any) -> Summary:
    return ingest_in_process(lake, paths, buckets=2, **options)


@pytest.fixture(scope="module")
def all_at_once(captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lakes") / "whole"
    summary = run(captures, lake)
    assert len(summary.ingested) == len(captures) and not summary.failed
    return lake


def test_one_by_one_with_others_between(captures: list[Path], all_at_once: Path, tmp_path: Path) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    others = [p for p in captures if p not in rotated]
    lake = tmp_path / "lake"
    run(rotated[:1], lake)
    run(others[:3], lake)
    resumed = sum(run([p], lake).resumed for p in rotated[1:-1])
    resumed += run([rotated[-1], *others[3:]], lake).resumed
    assert resumed == len(rotated) - 1
    assert same(comparable_rows(all_at_once), comparable_rows(lake)) == []


def test_a_second_ingest_of_the_same_files_changes_nothing(
    captures: list[Path], all_at_once: Path, tmp_path: Path
) -> None:
    before = comparable_rows(all_at_once)
    assert len(run(captures, all_at_once).known) == len(captures)
    copy = tmp_path / "'; DROP TABLE \u200f\n.pcap"
    shutil.copy(captures[0], copy)
    assert run([copy], all_at_once).duplicates == [str(copy)]
    assert same(before, comparable_rows(all_at_once)) == []


def test_bad_files_among_good_ones(sample_pcaps: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").touch()
    (tmp_path / "letter.pcap").write_text("Dear reader, this is not a capture.")
    shutil.copy(sample_pcaps / SMALL, tmp_path / "a[x].pcap")
    lake = tmp_path / "lake"
    summary = run([tmp_path], lake)
    assert len(summary.ingested) == 1 and len(summary.failed) == 2 and summary.exit_code == 4
    statuses = {Path(r["path"]).name: r["status"] for r in lake_rows(lake, "captures")}
    assert statuses == {"empty.pcap": "failed", "letter.pcap": "failed", "a[x].pcap": "ok"}
    again = run([tmp_path], lake)
    assert again.exit_code == 4 and len(lake_rows(lake, "captures")) == 3


def test_a_file_that_failed_has_one_row(sample_pcaps: Path, tmp_path: Path) -> None:
    """It has one row however often it is read, and whatever the result of the last read."""
    path, lake = tmp_path / "a.pcap", tmp_path / "lake"
    frames = [(0, bytes(60))]
    for content, status in ((b"", "failed"), (b"Dear reader", "failed"), (pcap(frames, link_type=190), "failed"),
                            ((sample_pcaps / SMALL).read_bytes(), "ok")):  # fmt: skip
        path.write_bytes(content)
        for _ in range(2):
            assert run([path], lake, verify=True).exit_code == (4 if status == "failed" else 0)
            found = comparable_rows(lake)
            assert len(found["captures"]) == 1 and f"'status': '{status}'" in found["captures"][0]
            assert len(found["findings"]) == len(set(found["findings"]))
    run([path], tmp_path / "other")
    assert same(comparable_rows(tmp_path / "other"), found) == []


def test_a_capture_that_grew_replaces_its_rows(sample_pcaps: Path, captures: list[Path], tmp_path: Path) -> None:
    """A capture tool continued to write after its file was ingested, inside a connection of the previous file."""
    first, second, third = (p.read_bytes() for p in captures if p.name.startswith("rotated"))
    paths = [tmp_path / f"{n}.pcap" for n in range(4)]
    lake = tmp_path / "lake"
    paths[0].write_bytes(first)
    paths[1].write_bytes(second[: len(second) // 2])
    paths[3].write_bytes((sample_pcaps / SMALL).read_bytes())
    assert run(paths[:2] + paths[3:], lake).grown == []
    paths[1].write_bytes(second)
    paths[2].write_bytes(third[:-1000])
    grown = run(paths[1:3], lake)
    assert grown.grown == [str(paths[1])] and not grown.late
    moved = tmp_path / "moved.pcap"  # known by what it holds, not by its name
    moved.write_bytes(third)
    assert run([moved], lake).grown == [str(moved)]
    run([*paths[:2], moved, paths[3]], tmp_path / "once")
    assert same(comparable_rows(tmp_path / "once"), comparable_rows(lake)) == []
    assert run([*paths[:2], moved, paths[3]], lake).ingest_id is None
    again = run([*paths, moved], lake)  # the shorter one is still there
    assert again.ingest_id is None and again.duplicates == [str(paths[2])]


def test_a_capture_that_grew_is_refused_if_rows_would_be_lost(sample_pcaps: Path, tmp_path: Path) -> None:
    """With options that give fewer rows than the lake has."""
    content = (sample_pcaps / SMALL).read_bytes()
    path, lake = tmp_path / "a.pcap", tmp_path / "lake"
    path.write_bytes(content[: len(content) // 2])
    run([path], lake, keep_payloads=True)
    before = comparable_rows(lake)
    path.write_bytes(content)
    for options in ({"port": 5, "keep_payloads": True}, {}):
        summary = run([path], lake, **options)
        assert summary.grown == [] and "would be lost" in summary.late[0]
        assert same(before, comparable_rows(lake)) == []
    assert run([path], lake, keep_payloads=True).grown == [str(path)]
    assert len(comparable_rows(lake)["payloads"]) > len(before["payloads"])


def test_redo_is_refused_if_rows_would_be_lost(captures: list[Path], sample_pcaps: Path, tmp_path: Path) -> None:
    """Also rows of files that are decoded again only because they share a connection with the named one."""
    rotated = [p for p in captures if p.name.startswith("rotated")]
    lake = tmp_path / "lake"
    run([*rotated, sample_pcaps / SMALL], lake, keep_payloads=True)
    before = comparable_rows(lake)
    (ports,) = {(r["orig_p"], r["resp_p"]) for r in lake_rows(lake, "connections") if len(r["capture_ids"]) == 3}
    lossy: list[dict[str, Any]] = [
        {}, {"port": 5, "keep_payloads": True}, {"host": "192.0.2.1", "keep_payloads": True},
        {"since": 1, "keep_payloads": True},
    ]  # fmt: skip
    for options in lossy:
        with pytest.raises(UserError, match="would be lost"):
            run(rotated[1:2], lake, redo=True, **options)
        assert same(before, comparable_rows(lake)) == []
    for chosen in ({}, {"port": ports[0]}):  # a filter that selects every connection of these files loses nothing
        assert run(rotated[1:2], lake, redo=True, keep_payloads=True, **chosen).joined
        assert same(before, comparable_rows(lake)) == []


def test_a_resumed_connection_has_one_hash_of_its_name(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the environment names another key than that of the lake."""
    rotated = [p for p in captures if p.name.startswith("rotated")]
    for number, path in enumerate(rotated):
        monkeypatch.setenv(KEY_VARIABLE, f"key {number}")
        run([path], tmp_path / "lake")
    assert len({name for row in lake_rows(tmp_path / "lake", "connections") for name in row["stream_names"]}) == 1
    texts = [row["args"] for row in lake_rows(tmp_path / "lake", "commands") if row["args"]]
    assert len(set(re.findall(r"key-[a-z2-7]+", "".join(texts)))) == 1


def test_captures_whose_rows_are_replaced_must_exist(captures: list[Path], tmp_path: Path) -> None:
    """A reused file name has other packets: the rows of the old ones must stay."""
    rotated = [p.read_bytes() for p in captures if p.name.startswith("rotated")]
    paths = [tmp_path / f"{n}.pcap" for n in range(3)]
    for path, content in zip(paths, rotated):
        path.write_bytes(content)
    run(paths, tmp_path / "lake")
    before = comparable_rows(tmp_path / "lake")
    for content, again in ((rotated[1], paths[2:]), (rotated[1][:-100], paths[2:]), (rotated[1][:-100], paths)):
        paths[0].write_bytes(content)
        with pytest.raises(UserError, match=r"0\.pcap is needed to decode its connections again, but it is missing"):
            run(again, tmp_path / "lake", redo=True)
    assert same(before, comparable_rows(tmp_path / "lake")) == []
    paths[0].unlink()
    with paths[2].open("ab") as file:
        file.write(rotated[2][24:])
    (said,) = run(paths[2:], tmp_path / "lake").late
    assert "2.pcap has grown" in said and "0.pcap is needed" in said
    assert same(before, comparable_rows(tmp_path / "lake")) == []


def test_rows_about_captures_in_several_ingests(sample_pcaps: Path, tmp_path: Path) -> None:
    """Only the columns that tests/expectations/relations.tsv lists depend on the division into ingests."""
    (exempt,) = [row["columns"].split() for row in table("relations.tsv") if row["relation"] == "several ingests"]
    frames = capture_rewriting.build(capture_rewriting.read(sample_pcaps / "garbage_on_1935.pcap"))
    half = len(frames) // 2
    paths = [tmp_path / f"{n}.pcap" for n in range(2)]
    for path, part in zip(paths, (frames[:half], frames[half:])):
        path.write_bytes(pcap(part))
    run(paths, tmp_path / "once")
    for path in paths:
        run([path], tmp_path / "twice")
    once, twice = (
        [{k: v for k, v in row.items() if k not in VOLATILE} for row in lake_rows(tmp_path / name, "captures")]
        for name in ("once", "twice")
    )
    for one, other in zip(*(sorted(rows, key=lambda row: row["ts_first"]) for rows in (once, twice)), strict=True):
        assert {key for key in one if one[key] != other[key]} <= set(exempt)


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        run([tmp_path / "nothing.pcap"], tmp_path / "lake")


def test_an_empty_directory_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    assert run([tmp_path / "captures"], tmp_path / "lake").files == 0


def test_a_late_file_is_reported(captures: list[Path], tmp_path: Path) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    lake = tmp_path / "lake"
    run(rotated[1:], lake)
    late = run(rotated[:1], lake).late
    assert len(late) == 1 and "--redo" in late[0]


def test_many_small_files_share_tasks(tmp_path: Path) -> None:
    """Each file without TCP gives a row of `captures` and no connection."""
    for n in range(40):
        write(tmp_path / f"{n}.pcap", [(n * 10**9, bytes(60))])
    summary = run([tmp_path], tmp_path / "lake")
    assert len(summary.ingested) == 40 and summary.connections == 0
    assert len(lake_rows(tmp_path / "lake", "captures")) == 40


def test_the_summary_counts_the_published_rows(sample_pcaps: Path, tmp_path: Path) -> None:
    """Also rows about files and rows of rules across connections."""
    names = ("file_cut_mid_record.pcap", "republish_same_name.pcap", "denied_and_unknown_app.pcap")
    lake, before = tmp_path / "lake", 0
    for name in names:
        summary = run([sample_pcaps / name], lake)
        found = lake_rows(lake, "findings")
        assert summary.rows["findings"] == len(found) - before
        before += summary.rows["findings"]
    assert {"CAPTURE_TRUNCATED"} <= {row["rule_id"] for row in found}


def test_redo_joins_a_late_file(captures: list[Path], all_at_once: Path, tmp_path: Path) -> None:
    rotated = [p for p in captures if p.name.startswith("rotated")]
    lake = tmp_path / "lake"
    run([p for p in captures if p != rotated[0]], lake)
    summary = run(rotated[:1], lake, redo=True)
    assert same(comparable_rows(all_at_once), comparable_rows(lake)) == []
    assert sorted(summary.ingested) == sorted(map(str, rotated)), "what shares the connection is decoded again with it"
    assert sorted(summary.joined) == sorted(map(str, rotated[1:]))
    assert (summary.files, summary.bytes) == (len(rotated), sum(path.stat().st_size for path in rotated))


def test_redo_leaves_another_sensor_alone(sample_pcaps: Path, tmp_path: Path) -> None:
    """Even if it holds the same capture: without its row the file would be new, and its rows would come twice."""
    path, lake = sample_pcaps / "file_cut_mid_record.pcap", tmp_path / "lake"
    for sensor in ("here", "there"):
        run([path], lake, sensor=sensor)
    before = comparable_rows(lake)
    run([path], lake, sensor="here", redo=True)
    assert same(before, comparable_rows(lake)) == []
    assert run([path], lake, sensor="there").known == [str(path)]


class DyingWorkers(InProcessStages):
    """Every connection kills its worker."""

    def decode(self, job: DecodeJob, pieces: pa.Table, buckets: int) -> Decoded:
        return Decoded([], [(group, "signal 11") for group in sorted(set(pieces["group"].to_pylist()))])


def test_a_connection_that_cannot_be_decoded_again_keeps_its_rows(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the lake still knows which captures hold it."""
    rotated = [tmp_path / p.name for p in captures if p.name.startswith("rotated")]
    for path, content in zip(rotated, (p.read_bytes() for p in captures if p.name.startswith("rotated"))):
        path.write_bytes(content)
    whole = rotated[2].read_bytes()
    rotated[2].write_bytes(whole[:-1000])
    lake = tmp_path / "lake"
    run(rotated, lake)
    before = comparable_rows(lake)
    with monkeypatch.context() as patch:
        patch.setattr("kit.in_process_ingest.InProcessStages", DyingWorkers)
        assert run(rotated[:1], lake, redo=True).exit_code == 4
        rotated[2].write_bytes(whole)
        assert run(rotated[2:], lake).grown
    after = comparable_rows(lake)
    assert {line.split(":")[0] for line in same(before, after)} == {"captures", "findings"}
    assert set(before["findings"]) <= set(after["findings"])
    assert len(run(rotated[2:], lake, redo=True).joined) == 2
    run(rotated, tmp_path / "once")
    assert same(comparable_rows(tmp_path / "once"), comparable_rows(lake)) == []
