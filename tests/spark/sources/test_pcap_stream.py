"""The files of a stream of captures, batch by batch; no Spark session is needed for that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rtmp_spark.codec.errors import UserError
from rtmp_spark.spark.sources import pcap_reader, pcap_stream
from rtmp_spark.spark.sources.pcap_reader import PacketRange
from rtmp_spark.spark.sources.pcap_stream import PcapStreamReader, ReadAllAvailable, ReadMaxFiles
from rtmp_spark.spark.sources.source_options import SourceOptions


def test_an_invalid_split_size() -> None:
    """A negative size would silently give no packets."""
    for size in ("-5", "64MB", "1e6"):
        with pytest.raises(UserError, match=f"Invalid value '{size}' of the option splitSize. Give a number of bytes"):
            pcap_reader.PcapReader(SourceOptions({"path": "a.pcap", "splitSize": size}))
    assert pcap_reader.PcapReader(SourceOptions({"path": "a.pcap", "splitSize": "0"})).split_bytes == 0


def test_a_mistyped_path_or_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Invalid value 'ture' of the option payload. Use true or false."):
        PcapStreamReader(SourceOptions({"path": str(tmp_path), "payload": "ture"}))
    with pytest.raises(UserError, match="does not exist"):
        PcapStreamReader(SourceOptions({"path": str(tmp_path / "mistyped")})).initialOffset()
    for name in ("settle", "maxFilesPerTrigger"):
        with pytest.raises(UserError, match=f"Invalid value 'ten' of the option {name}."):
            PcapStreamReader(SourceOptions({"path": str(tmp_path), name: "ten"}))


class Steps:
    """Runs a stream over a directory step by step, each with a new reader, as after a restart."""

    def __init__(self, directory: Path, settle: int = 0, late: int = 3600) -> None:
        self.options = SourceOptions({"path": str(directory), "settle": str(settle), "late": str(late)})
        self.offset = PcapStreamReader(self.options).initialOffset()

    def next(self, max_files: int = 0) -> list[str]:
        limit = ReadMaxFiles(max_files) if max_files else ReadAllAvailable()
        before, self.offset = self.offset, PcapStreamReader(self.options).latestOffset(self.offset, limit)
        self.offset = json.loads(json.dumps(self.offset))
        return self.planned(before)

    def planned(self, before: dict[str, Any]) -> list[str]:
        ranges = PcapStreamReader(self.options).partitions(before, self.offset)
        return [Path(r.path).name for r in ranges if isinstance(r, PacketRange)]


def write(path: Path, modified: float, text: str = "") -> Path:
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def test_steps_of_a_stream(tmp_path: Path) -> None:
    """Oldest files come first; a repeated batch is the same; a changed file is new; a deleted one is forgotten."""
    for n in (3, 1, 2):
        write(tmp_path / f"{n}.pcap", n)
    steps = Steps(tmp_path)
    assert steps.next(2) == ["1.pcap", "2.pcap"]
    before = steps.offset
    assert steps.next() == ["3.pcap"]
    write(tmp_path / "1.pcap", 4, "changed")
    (tmp_path / "2.pcap").unlink()
    assert steps.planned(before) == ["3.pcap"]
    assert steps.next() == ["1.pcap"]
    assert len(steps.offset["seen"]) == len(before["seen"])  # 1 and 2 then, 3 and the new 1 now
    offset = steps.offset
    assert steps.next() == []
    assert steps.offset == offset


def test_an_offset_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    """Each file is still delivered once, also one with an old modification time that arrives late."""
    steps = Steps(tmp_path, late=0)
    delivered: list[str] = []
    sizes = []
    for round_no in range(4):
        for n in range(50):
            write(tmp_path / f"{round_no}-{n:02}.pcap", 1000 * round_no + n)
        delivered += steps.next()
        sizes.append(len(json.dumps({**steps.offset, "files": {}})))
    write(tmp_path / "late.pcap", 1)
    assert steps.next() == ["late.pcap"]
    assert steps.next() == []
    assert sorted(delivered) == sorted(f"{r}-{n:02}.pcap" for r in range(4) for n in range(50))
    assert max(sizes) < sizes[0] + 100, sizes


def test_a_file_that_waits_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be opened while later files are delivered."""
    write(tmp_path / "a.pcap", 1)
    opens = PcapStreamReader._opens
    steps = Steps(tmp_path, late=0)
    with monkeypatch.context() as patch:
        patch.setattr(PcapStreamReader, "_opens", lambda self, path: "a.pcap" not in path and opens(self, path))
        for n in range(3):
            write(tmp_path / f"b{n}.pcap", 2 + n)
            assert steps.next() == [f"b{n}.pcap"]
    assert steps.next() == ["a.pcap"]


def test_the_offset_of_an_older_version_is_continued(tmp_path: Path) -> None:
    """It had a digest of every file and no time."""
    write(tmp_path / "a.pcap", 1)
    steps = Steps(tmp_path)
    assert steps.next() == ["a.pcap"]
    del steps.offset["before"]
    write(tmp_path / "b.pcap", 2)
    assert steps.next() == ["b.pcap"]


def test_a_stream_leaves_open_files_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rotated.pcap", 987)
    write(tmp_path / "open.pcap", 991)
    steps = Steps(tmp_path, settle=10)
    monkeypatch.setattr(pcap_stream.time, "time", lambda: 1000.0)
    assert steps.next() == ["rotated.pcap"]
    reader = PcapStreamReader(steps.options)
    reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(pcap_stream.time, "time", lambda: 1002.0)
    assert reader.latestOffset(steps.offset, ReadAllAvailable()) == steps.offset  # as it was when the run began
    assert steps.next() == ["open.pcap"]


def test_an_unreadable_file_does_not_stop_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stream retries it until it can be opened; if it is deleted after its batch was planned, it gives no rows."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    gone = write(tmp_path / "a.pcap", 1)
    steps = Steps(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pcap_stream, "open_file", refuse)
        assert steps.next() == []
    assert "the stream waits for " in capsys.readouterr().err
    assert steps.next() == ["a.pcap"]
    gone.unlink()
    assert list(PcapStreamReader(steps.options).read(PacketRange(str(gone), 0, 0, whole=True))) == []
    assert "a.pcap has no packets for the stream: " in capsys.readouterr().err
