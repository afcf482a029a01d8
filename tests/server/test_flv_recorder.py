"""Records: readable at every moment, named inside their directory, ended by a full disk without a word to others."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from relaykit import read_flv

from rtmp_relay.frames import Frame
from rtmp_relay.names import BadName, checked_name, key_fits, record_path
from rtmp_relay.recorder import Recorder, recorder_factory
from rtmp_relay.synthetic import Synthetic

TAGS = list(Synthetic(seconds=1.0).tags())


def test_a_record_holds_the_tags_and_is_whole_after_each(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.flv")
    for count, tag in enumerate(TAGS, 1):
        recorder.write(Frame(*tag))
        assert len(read_flv(recorder.path)) == count
    recorder.close()
    assert [tuple(tag) for tag in read_flv(recorder.path)] == [tuple(tag) for tag in TAGS]


@pytest.mark.parametrize(
    ("media", "flags"), [(Synthetic(audio=False), 1), (Synthetic(video=False), 4), (Synthetic(), 5)]
)
def test_the_header_tells_the_truth(tmp_path: Path, media: Synthetic, flags: int) -> None:
    recorder = Recorder(tmp_path / "a.flv")
    for tag in media.tags():
        recorder.write(Frame(*tag))
    assert recorder.path.read_bytes()[4] == flags  # even before it is closed


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from rtmp_relay.frames import Frame
from rtmp_relay.recorder import Recorder
from rtmp_relay.synthetic import Synthetic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
recorder = Recorder(Path(sys.argv[1]))
for tag in Synthetic(seconds=3).tags():
    recorder.write(Frame(*tag))
recorder.close()
print(recorder.failed)
"""


def test_a_full_disk_leaves_a_readable_record(tmp_path: Path) -> None:
    assert resource.RLIMIT_FSIZE is not None
    path = tmp_path / "a.flv"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large"
    tags = read_flv(path)
    expected = [tuple(tag) for tag in Synthetic(seconds=3).tags()]
    assert 3 < len(tags) < len(expected)
    assert [tuple(tag) for tag in tags] == expected[: len(tags)]
    last = tags[-1]
    back_pointer = int.from_bytes(path.read_bytes()[-4:], "big")
    assert back_pointer == 11 + len(last.body)  # nothing of the tag that did not fit


def test_a_directory_that_cannot_be_written_costs_the_record_only(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file where the directory should be")
    assert recorder_factory(tmp_path)("live/cam") is None


def test_names_become_files_inside_the_root(tmp_path: Path) -> None:
    for key in ("live/cam", "live/a b", "live/ünï/x:y", "live/" + "x" * 250):
        path = record_path(tmp_path, key, "-1.flv")
        assert path.resolve().is_relative_to(tmp_path.resolve())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "live").symlink_to(tmp_path)
    with pytest.raises(BadName):
        record_path(root, "live/cam", ".flv")


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/../b", "/abs", "a//b", "a/", "", ".", "a\nb", "a\0", "x" * 256, None, 3]
)
def test_bad_names(name: object) -> None:
    with pytest.raises(BadName):
        checked_name(name, "name")


@pytest.mark.parametrize("name", ["cam", "a/b", "a.b", "...", "ünï", "x" * 255, "%2e%2e"])
def test_good_names(name: str) -> None:
    assert checked_name(name, "name") == name


def test_keys() -> None:
    assert key_fits((), "")
    assert key_fits(("a", "b"), "x=1&key=b")
    assert key_fits(("b", "a"), "x=1&key=b")
    assert key_fits(("a",), "", "key=a")
    assert not key_fits(("a",), "key=")
    assert not key_fits(("a",), "")
    assert not key_fits(("ä",), "key=%ff")
