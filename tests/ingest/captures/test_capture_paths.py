"""Addresses of captures: each object has one address, however it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from rtmp_spark.codec.errors import UserError
from rtmp_spark.ingest.captures import capture_paths
from rtmp_spark.ingest.captures.capture_paths import list_captures, open_file

NAMES = ["day=1/a+b.pcap", "day=1/50% of it.pcap", "day=1/a[x]#?.pcap", "day=1/\u00e9\u200f'.pcap"]
QUERY = "?region=us-east-1&endpoint_override=127.0.0.1:1"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A directory in place of the bucket; pyarrow converts S3 addresses into names in it."""
    for name in NAMES:
        (tmp_path / "bucket" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bucket" / name).write_text(name)
    real = fs.FileSystem.from_uri
    here = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(capture_paths.fs, "FileSystem", type("", (), {"from_uri": lambda uri: (here, real(uri)[1])}))
    return "s3://bucket"


@pytest.mark.parametrize("inside", ["", "/", "/day=1", "/day%3D1/", "/day%3d1"])
def test_listed_files_can_be_opened(bucket: str, inside: str) -> None:
    found = list_captures([bucket + inside + QUERY])
    assert sorted(open_file(file.path).read().decode() for file in found) == sorted(NAMES)
    assert f"s3://bucket/day=1/a+b.pcap{QUERY}" in [file.path for file in found]


def test_an_object_named_in_many_ways_is_listed_once(bucket: str) -> None:
    ways = ("s3://bucket/day=1/a+b.pcap", "s3a://bucket/day%3D1/a%2Bb.pcap", "s3://bucket/day=1/a%2bb.pcap")
    assert len(list_captures([way + QUERY for way in ways])) == 1
    assert len(list_captures([*(way + QUERY for way in ways), "s3://bucket/day=1" + QUERY])) == len(NAMES)


@pytest.mark.parametrize("name", ["50% of it.pcap", "50%25%20of%20it.pcap", "a[x]%23%3F.pcap", "a%5Bx%5D#%3F.pcap"])
def test_quoted_and_plain_names(bucket: str, name: str) -> None:
    (file,) = list_captures([f"s3://bucket/day=1/{name}{QUERY}"])
    assert open_file(file.path).read().decode() in NAMES


@pytest.mark.parametrize(
    ("pattern", "count"), [("day=1/*.pcap", 4), ("*/*.pcap", 4), ("day=1/a*", 2), ("*/a[+]b.*", 1), ("day=1/[a5]*", 3)]
)
def test_patterns(bucket: str, pattern: str, count: int) -> None:
    found = list_captures([f"s3://bucket/{pattern}{QUERY}"])
    assert len({open_file(file.path).read() for file in found}) == count
    assert {file.path for file in found} <= {file.path for file in list_captures([bucket + QUERY])}


def test_missing_paths(bucket: str) -> None:
    for address in ("day=1/none.pcap", "day=1/n*.pcap", "day=2/*.pcap"):
        with pytest.raises(UserError, match="does not exist"):
            list_captures([f"s3://bucket/{address}{QUERY}"])


def test_one_path_is_not_a_list_of_characters(tmp_path: Path) -> None:
    """The first character of an absolute path would be the directory of all files."""
    file = tmp_path / "a.pcap"
    file.touch()
    for paths in (str(file), file, [file], (str(file), file)):
        assert [found.path for found in list_captures(paths)] == [str(file)]


def test_an_empty_name_is_not_the_working_directory() -> None:
    with pytest.raises(UserError, match="The name of a capture is empty"):
        list_captures([""])


def test_a_password_is_not_kept(bucket: str) -> None:
    azure = "abfs://container@account.dfs.core.windows.net/day=1"
    for address in (
        "s3://me:verysecret@bucket/day=1",
        f"{azure}?tenant_id=t&client_id=c&client_secret=verysecret",
        f"{azure}?sv=2024-11-04&sig=verysecret",
    ):
        with pytest.raises(UserError, match="contains a password") as caught:
            list_captures([address])
        assert "verysecret" not in str(caught.value)
    assert list_captures([f"s3://bucket/day=1/a+b.pcap{QUERY}"])


def test_a_file_system_keeps_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of abfs and the server of hdfs are only in the address, not in the names of files."""
    (tmp_path / "c" / "deep").mkdir(parents=True)
    (tmp_path / "c" / "deep" / "x.pcap").touch()
    here = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(capture_paths.fs, "FileSystem", type("", (), {"from_uri": lambda uri: (here, "c/deep")}))
    (file,) = list_captures(["abfs://c@account.dfs.core.windows.net/deep"])
    assert file.path == "abfs://c@account.dfs.core.windows.net/deep/x.pcap"


def test_a_file_deleted_while_its_directory_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).touch()
    local = capture_paths._local

    def late(path: Path) -> capture_paths.CaptureFile:
        (tmp_path / "b.pcap").unlink(missing_ok=True)
        return local(path)

    monkeypatch.setattr(capture_paths, "_local", late)
    assert [Path(file.path).name for file in list_captures([str(tmp_path)])] == ["a.pcap"]
