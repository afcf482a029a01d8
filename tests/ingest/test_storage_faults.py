"""Faults of the machine publish nothing, and the next ingest gives the tables of an undisturbed run."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from kit.in_process_ingest import ingest_in_process, lake_rows
from kit.ingested_lakes import comparable_rows

from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest import pipeline
from rtmp_spark.ingest.captures import changed_files, probed_files
from rtmp_spark.ingest.captures.capture_paths import CaptureChanged
from rtmp_spark.ingest.decode import bucket_decoder, tasks
from rtmp_spark.ingest.decode.decode_job import DecodeJob
from rtmp_spark.ingest.input_fault import InputFault, blamed_on_input
from rtmp_spark.ingest.options import IngestOptions
from rtmp_spark.ingest.scan.split_scan import SplitScanner
from rtmp_spark.lake.location import locate

FIRST, SECOND = "ffmpeg_publish_g711mu_audio_only.pcap", "ffmpeg_publish_bframes_rtmpdump_play.pcap"


@pytest.fixture(scope="module")
def begun(sample_pcaps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the first capture, to be copied."""
    lake = tmp_path_factory.mktemp("faults") / "begun"
    ingest_in_process(lake, [sample_pcaps / FIRST])
    return lake


@pytest.fixture(scope="module")
def expected(begun: Path, sample_pcaps: Path) -> dict[str, list[str]]:
    lake = shutil.copytree(begun, begun.with_name("expected"))
    ingest_in_process(lake, [sample_pcaps / SECOND])
    return comparable_rows(lake)


# -- the capture changes or cannot be read while it is decoded ------------------------------------------------------


def deleted(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def rewritten(path: Path) -> None:
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize(
    ("name", "sort", "pass_"),
    [(SECOND, False, "decode"), (SECOND, True, "scan"), ("gzip_ffmpeg_publish.pcap.gz", False, "scan")],
)
@pytest.mark.parametrize("disturb", [deleted, truncated, rewritten])
def test_a_capture_that_changes_while_it_is_read(
    disturb: Callable[[Path], None],
    name: str,
    sort: bool,
    pass_: str,
    sample_pcaps: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the pass that reads its packets: the second one, unless the first one makes a sorted copy."""
    path, lake = tmp_path / name, tmp_path / "lake"
    shutil.copy(sample_pcaps / name, path)

    def disturbed(point: str, *_: Any) -> None:
        if point.startswith("decode "):
            disturb(path)

    def disturbed_in_the_end(self: SplitScanner, *arguments: Any) -> None:
        add(self, *arguments)
        disturb(path)

    add = SplitScanner._add
    with monkeypatch.context() as patch:
        if pass_ == "decode":
            patch.setattr(tasks, "failpoint", disturbed)
        else:
            patch.setattr(SplitScanner, "_add", disturbed_in_the_end)
        with pytest.raises(CaptureChanged, match=name):
            ingest_in_process(lake, [path], sorted_copy=sort)
    assert lake_rows(lake, "captures") == []
    shutil.copy(sample_pcaps / name, path)
    summary = ingest_in_process(lake, [path])
    assert summary.ingested == [str(path)]  # not "known": nothing was published
    ingest_in_process(tmp_path / "undisturbed", [path])
    assert comparable_rows(lake) == comparable_rows(tmp_path / "undisturbed")


@pytest.mark.parametrize("name", [SECOND, "gzip_ffmpeg_publish.pcap.gz"])
def test_a_capture_that_vanishes_after_it_was_copied(
    name: str, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    shutil.copy(sample_pcaps / name, path)
    ingest_in_process(tmp_path / "undisturbed", [path])
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "failpoint", lambda point, *_: path.unlink() if point.startswith("decode ") else None)
        ingest_in_process(tmp_path / "lake", [path], sorted_copy=True)
    assert not path.exists()
    assert comparable_rows(tmp_path / "lake") == comparable_rows(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("name", "sort"),
    [(SECOND, False), (SECOND, True), ("pcapng_dumpcap_ffmpeg_publish.pcapng", False)],
)
@pytest.mark.parametrize("stage", ["scan", "decode"])
def test_a_capture_that_grows_while_it_is_ingested(
    stage: str, name: str, sort: bool, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ingest publishes what the file held when it was listed, and the next one replaces that."""
    path, lake, undisturbed = tmp_path / name, tmp_path / "lake", tmp_path / "undisturbed"
    whole = (sample_pcaps / name).read_bytes()
    grown: list[str] = []

    def grow(point: str, *_: Any) -> None:
        if point == f"{stage} {name}":
            grown.append(point)
            path.write_bytes(whole)

    for disturb, place in ((False, undisturbed), (True, lake)):
        path.write_bytes(whole[: len(whole) // 2])
        with monkeypatch.context() as patch:
            if disturb:
                patch.setattr(tasks, "failpoint", grow)
            ingest_in_process(place, [path], sorted_copy=sort)
    assert grown and path.stat().st_size == len(whole)
    assert comparable_rows(lake) == comparable_rows(undisturbed)
    assert ingest_in_process(lake, [path]).grown == [str(path)]
    ingest_in_process(undisturbed, [path])
    assert comparable_rows(lake) == comparable_rows(undisturbed)
    assert len(lake_rows(lake, "captures")) == 1


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.EIO, "Input/output error"), TimeoutError("the store did not answer"), MemoryError("no memory")],
)
@pytest.mark.parametrize("stage", ["scan", "decode"])
def test_a_read_that_fails(
    stage: str, fault: BaseException, sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, path = tmp_path / "lake", sample_pcaps / SECOND

    def failing(*_: Any, **__: Any) -> Any:
        raise fault

    with monkeypatch.context() as patch:
        if stage == "scan":
            patch.setattr("rtmp_spark.ingest.scan.split_scan.PcapRange", failing)
        else:
            patch.setattr(bucket_decoder, "read_packets", failing)
        with pytest.raises(type(fault)):
            ingest_in_process(lake, [path])
    assert lake_rows(lake, "captures") == []
    assert ingest_in_process(lake, [path]).ingested == [str(path)]


# -- the disk of the lake -------------------------------------------------------------------------------------------


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.parametrize("sort", [False, True])
def test_a_full_disk(sort: bool, sample_pcaps: Path, disk: Path, begun: Path, expected: dict[str, list[str]]) -> None:
    """The disk has no space at all, or space for the first files only, or for a part of a sorted copy."""
    lake = shutil.copytree(begun, disk / "lake")
    before = comparable_rows(lake)
    filler = disk / "filler"
    for room in (0, 1 << 16):
        free = os.statvfs(disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - room))
        with pytest.raises(UserError, match="the disk is full") as caught:
            ingest_in_process(lake, [sample_pcaps / SECOND], sorted_copy=sort)
        assert caught.value.exit_code == 3
        assert ("write packets" in str(caught.value)) == (sort or not room)
        filler.unlink()
        assert comparable_rows(lake) == before
        assert not list(lake.rglob("packets-*"))  # what was staged is deleted
    ingest_in_process(lake, [sample_pcaps / SECOND], sorted_copy=sort)
    assert comparable_rows(lake) == expected


def test_a_table_becomes_read_only(
    sample_pcaps: Path, tmp_path: Path, begun: Path, expected: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tables are already written."""
    lake = shutil.copytree(begun, tmp_path / "lake")
    table, before = str(lake / "findings"), comparable_rows(lake)

    def lock(name: str) -> None:
        if name == "between tables":
            mount("--bind", table, table)
            mount("-o", "remount,bind,ro", table)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "failpoint", lock)
            with pytest.raises(UserError, match="read-only"):
                ingest_in_process(lake, [sample_pcaps / SECOND])
        assert comparable_rows(lake) == before
    finally:
        subprocess.run(["umount", "-l", table], check=False)
    ingest_in_process(lake, [sample_pcaps / SECOND])
    assert comparable_rows(lake) == expected


def test_unusual_file_names(sample_pcaps: Path, tmp_path: Path) -> None:
    names = ["a'b\".pcap", "two\nlines.pcap", "\u202egpj.pcap", "%41 `x` $(y);.pcap"]
    for number, name in enumerate(names):  # different content, else they are duplicates
        (tmp_path / name).write_bytes((sample_pcaps / FIRST).read_bytes()[: 20_000 + number])
    summary = ingest_in_process(tmp_path / "lake", [tmp_path])
    assert sorted(Path(path).name for path in summary.ingested) == sorted(names)
    found = [row["path"] for row in lake_rows(tmp_path / "lake", "captures")]
    assert sorted(Path(path).name for path in found) == sorted(names)


def unreadable(path: str) -> BinaryIO:
    raise OSError(errno.EIO, "Input/output error", path)


def test_an_unreadable_file_at_the_first_look_fails_the_ingest(
    sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place among the files depends on this look, and so does which connections continue in it."""
    monkeypatch.setattr(probed_files, "open_file", unreadable)
    with pytest.raises(OSError, match="Input/output error"):
        ingest_in_process(tmp_path / "lake", [sample_pcaps / FIRST])


def test_a_grown_capture_that_cannot_be_compared_fails_the_ingest(
    sample_pcaps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its connections would be in the lake twice."""
    path, lake = tmp_path / FIRST, tmp_path / "lake"
    whole = (sample_pcaps / FIRST).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    ingest_in_process(lake, [path])
    before = comparable_rows(lake)
    path.write_bytes(whole)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output error"):
        patched.setattr(changed_files, "open_file", unreadable)
        ingest_in_process(lake, [path])
    assert comparable_rows(lake) == before
    ingest_in_process(lake, [path])
    uids = {row["uid"] for row in lake_rows(lake, "connections")}
    assert len(lake_rows(lake, "connections")) == len(uids)


def test_a_bucket_without_the_plan_of_its_ingest_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    lake = locate(tmp_path)
    job = DecodeJob(lake, lake.inside("_staging/1"), 1, IngestOptions(), ("messages",), 0)
    with pytest.raises(FileNotFoundError, match="the plan of this ingest is missing"):
        tasks.decode_bucket(job, 0, [], 0)


def test_an_error_of_the_decoder_is_blamed_on_its_input_and_no_other_error_is() -> None:
    with pytest.raises(InputFault, match="IndexError: broken"), blamed_on_input():
        raise IndexError("broken")
    for fault in (OSError("gone"), MemoryError(), ImportError("numpy"), pa.ArrowInvalid("IOError"), DeltaError("503")):
        with pytest.raises(type(fault)), blamed_on_input():
            raise fault
