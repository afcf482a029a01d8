"""The captures of a directory are chosen by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtmp_spark.capture.files.capture_names import captures_below, is_capture_name


@pytest.mark.parametrize(
    "name",
    ["a.pcap", "a.PCAPNG", "a.cap", "a.pcap12", "a.pcap.1", "a.pcap-20260131", "a.pcap.gz", "a.pcapng.zst", "a.dmp"],
)
def test_names_of_captures(name: str) -> None:
    assert is_capture_name(name)


@pytest.mark.parametrize("name", ["a.txt", "pcap", "a.pcapx", ".a.pcap", "_a.pcap", "a.flv.gz"])
def test_other_names(name: str) -> None:
    assert not is_capture_name(name)


def test_captures_below_a_directory_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er.pcap").mkdir(parents=True)  # a directory is not a capture, whatever its name
    for name in ("b.pcap", "a.pcapng.gz", "deep/c.pcap", "deep/er.pcap/d.pcap", "notes.txt", "deep/.e.pcap"):
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in captures_below(tmp_path)]
    assert found == ["a.pcapng.gz", "b.pcap", "deep/c.pcap", "deep/er.pcap/d.pcap"]
