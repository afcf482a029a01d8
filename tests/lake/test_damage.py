"""Lakes that are damaged, and disks that are full or read-only: one sentence with its remedy, and no partial result."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.lake_rows import contents, ingest_capture, made_rows, publish_rows

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.faults import LakeFault
from rtmp_spark.lake.location import Location, locate
from rtmp_spark.lake.reader import open_lake

TABLES = ("captures", "messages", "connections")


@pytest.fixture
def filled(lake: Location) -> Location:
    for path in ("a", "b"):
        ingest_capture(lake, path)
    return lake


def log(lake: Location, table: str, version: int) -> Path:
    return Path(lake.uri, table, "_delta_log", f"{version:020d}.json")


def delete_table(lake: Location) -> None:
    shutil.rmtree(Path(lake.uri, "messages"))


def delete_ledger(lake: Location) -> None:
    shutil.rmtree(Path(lake.uri, "_ingests"))


def roll_back(lake: Location) -> None:
    log(lake, "messages", 2).unlink()


def break_log(lake: Location) -> None:
    log(lake, "messages", 1).write_text('{"add": {"path": ')


def empty_log(lake: Location) -> None:
    log(lake, "messages", 2).write_text("")


def empty_older_log(lake: Location) -> None:
    log(lake, "messages", 1).write_text("")


def empty_ledger(lake: Location) -> None:
    log(lake, "_ingests", 2).write_text("")


def delete_logs(lake: Location) -> None:
    for path in Path(lake.uri).glob("*/_delta_log"):
        shutil.rmtree(path)


def break_ledger(lake: Location) -> None:
    log(lake, "_ingests", 2).write_bytes(b"\xff\xfe\x00nothing")


def delete_rows_of_ledger(lake: Location) -> None:
    for path in Path(lake.uri, "_ingests").glob("*.parquet"):
        path.unlink()


def break_rows_of_ledger(lake: Location) -> None:
    for path in Path(lake.uri, "_ingests").glob("*.parquet"):
        path.write_bytes(b"PAR1 nothing PAR1")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (delete_table, r"lost its table 'messages'\. Restore that directory from a backup"),
        (delete_ledger, r"(lost its ledger|There is no lake)"),
        (
            roll_back,
            r"'messages' .* rolled back to version 1; version 2 is published\. Restore messages/_delta_log",
        ),
        (break_log, r"Could not open the table messages .* restore it from a backup"),
        # delta-rs reads an empty entry as one without changes; the rows of the published version would be gone.
        (empty_log, r"Version 2 of the table 'messages' .* is damaged"),
        (empty_older_log, r"Version 1 of the table 'messages' .* is damaged"),
        (empty_ledger, r"Version 2 of the table '_ingests' .* is damaged"),
        (delete_logs, r"(lost its ledger|There is no lake)"),
        (break_ledger, r"Could not read the ledger .* restore it from a backup"),
        (delete_rows_of_ledger, r"Could not read the ledger .* restore it from a backup"),
        (break_rows_of_ledger, r"Could not read the ledger .* restore it from a backup"),
    ],
)
def test_a_damaged_lake_is_one_sentence_for_readers_and_writers(
    filled: Location, damage: Callable[[Location], None], sentence: str
) -> None:
    damage(filled)
    for use in (
        lambda: open_lake(filled).messages,
        lambda: publish_rows(filled, {"messages": made_rows("messages", "C2")}),
    ):
        with pytest.raises(UserError, match=sentence) as fault:
            use()
        assert "\n" not in str(fault.value) and "\x1b" not in str(fault.value)


def test_a_published_version_that_another_program_wrote_is_refused(filled: Location) -> None:
    log(filled, "messages", 2).unlink()
    DeltaTable(filled.table("messages")).delete()
    assert DeltaTable(filled.table("messages")).version() == 2
    with pytest.raises(UserError, match=r"Version 2 of the table 'messages' .* another program"):
        contents(filled, TABLES)


def test_a_missing_file_of_rows_fails_the_ingest_that_needs_it(filled: Location) -> None:
    for path in Path(filled.uri, "connections").glob("open-*.parquet"):
        path.unlink()
    with pytest.raises(LakeFault, match="Could not read the table connections"):
        ingest_capture(filled, "c")
    assert open_lake(filled).captures.count_rows() == 2


def test_published_rows_stay_readable_after_a_rollback_of_the_ledger(filled: Location) -> None:
    """The ledger decides: after the rollback, newer commits count as those of a dead ingest."""
    log(filled, "_ingests", 2).unlink()
    assert open_lake(filled).captures.count_rows() == 1
    assert ingest_capture(filled, "b")
    found = contents(filled, TABLES)
    assert len(found["messages"]) == 6 and [row["packets_c2s"] for row in found["connections"]] == [2]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "the disk is full. Free some space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failing_disk_publishes_nothing(
    filled: Location, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    before = contents(filled, TABLES)

    def fail(*args: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch, pytest.raises(LakeFault, match=sentence) as fault:
        patch.setattr(pq.ParquetWriter, "write_table", fail)
        ingest_capture(filled, "c")
    assert fault.value.exit_code == 3
    assert contents(filled, TABLES) == before
    assert ingest_capture(filled, "c")


def test_a_disk_that_fails_during_the_commits_publishes_nothing(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(filled, TABLES)
    real = DeltaTable.create_write_transaction
    commits = iter(range(100))

    def fail(self: DeltaTable, *args: Any, **options: Any) -> None:
        if next(commits) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(LakeFault, match="the disk is full"):
        patch.setattr(DeltaTable, "create_write_transaction", fail)
        ingest_capture(filled, "c")
    assert contents(filled, TABLES) == before
    assert ingest_capture(filled, "c") and len(contents(filled, TABLES)["messages"]) == 9


def test_a_note_in_the_lock_that_cannot_be_written(filled: Location) -> None:
    """/dev/full refuses every write."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    path = Path(filled.uri, "_lock")
    path.unlink()
    path.symlink_to("/dev/full")
    assert ingest_capture(filled, "c"), "the note of who holds the lock is not needed"


ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=True)

from kit.lake_rows import contents, ingest_capture
from rtmp_spark.lake.faults import LakeFault
from rtmp_spark.lake.location import locate

TABLES = ("captures", "messages", "connections")
lake = locate(disk / "lake")
ingest_capture(lake, "a")
before = contents(lake, TABLES)


def fails():
    try:
        ingest_capture(lake, "b")
    except LakeFault as fault:
        print(fault)
        assert contents(lake, TABLES) == before
        return True
    return False


rest = disk / "rest"
room = 0
while True:  # with more and more room, the disk is full at a later step
    with rest.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() // 4096 * 4096 - room)
    if not fails():
        break
    room += 4096
assert room
rest.unlink()
before = contents(lake, TABLES)
assert len(before["captures"]) == 2
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
lake = locate(disk / "lake")
print("read-only")
try:
    ingest_capture(lake, "c")
except LakeFault as fault:
    print(fault)
else:
    raise AssertionError("it was ingested")
assert contents(lake, TABLES) == before
subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
assert ingest_capture(lake, "c")
"""


def test_disks_that_are_really_full_or_read_only(tmp_path: Path) -> None:
    """On a file system of its own, in a mount namespace."""
    inside = ["unshare", "-rm"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [*inside, sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    full, _, read_only = done.stdout.partition("read-only\n")
    sentences = full.splitlines()
    assert len(sentences) > 1 and all("Free some space" in sentence for sentence in sentences), sentences
    assert read_only.count("\n") == 1 and "Read-only file system" in read_only


def test_a_file_in_place_of_a_lake(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(UserError, match="is a file"):
        ingest_capture(locate(path), "a")
    with pytest.raises(UserError, match=r"(no lake|Could not)"):
        open_lake(path)
    assert path.read_text() == "x"
