"""An FLV recording is readable after every tag, has a correct header and survives a full disk."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from kit.relay_process import read_flv

from rtmp_relay.flv_recorder import Recorder
from rtmp_relay.frames import Frame
from rtmp_relay.synthetic_media import Synthetic

TAGS = list(Synthetic(seconds=1.0).tags())


def test_a_recording_is_readable_after_every_tag(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.flv")
    for count, tag in enumerate(TAGS, 1):
        recorder.write(Frame(*tag))
        assert len(read_flv(recorder.path)) == count
    recorder.close()
    assert [tuple(tag) for tag in read_flv(recorder.path)] == [tuple(tag) for tag in TAGS]


@pytest.mark.parametrize(
    ("media", "flags"), [(Synthetic(audio=False), 1), (Synthetic(video=False), 4), (Synthetic(), 5)]
)
def test_the_header_flags_match_the_content(tmp_path: Path, media: Synthetic, flags: int) -> None:
    recorder = Recorder(tmp_path / "a.flv")
    for tag in media.tags():
        recorder.write(Frame(*tag))
    assert recorder.path.read_bytes()[4] == flags  # also before it is closed


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from rtmp_relay.frames import Frame
from rtmp_relay.flv_recorder import Recorder
from rtmp_relay.synthetic_media import Synthetic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
recorder = Recorder(Path(sys.argv[1]))
for tag in Synthetic(seconds=3).tags():
    recorder.write(Frame(*tag))
recorder.close()
print(recorder.failed)
"""


def test_a_full_disk_leaves_a_readable_recording(tmp_path: Path) -> None:
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
    assert back_pointer == 11 + len(last.body)  # the tag that did not fit was removed
