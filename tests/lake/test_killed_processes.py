"""Writers killed by SIGKILL in a process of their own: the next ingest gives the tables of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.lake_rows import contents, ingest_capture

from rtmp_spark.lake.failpoint import VARIABLE
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.reader import open_lake

TABLES = ("captures", "messages", "connections")
INGEST = """
import sys
from kit.lake_rows import ingest_capture
from rtmp_spark.lake.location import locate
ingest_capture(locate(sys.argv[1]), sys.argv[2])
"""


def run(lake: Location, capture: str, place: str) -> int:
    paths = [str(Path(__file__).parent.parent), *sys.path]
    environment = os.environ | {VARIABLE: place, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", INGEST, lake.uri, capture]
    return subprocess.run(command, env=environment, check=False, timeout=60).returncode


@pytest.mark.parametrize("place", ["files written", "after connections", "before publish", "after publish"])
def test_a_killed_writer_is_recovered(new_lake: Callable[[], Location], place: str) -> None:
    disturbed, undisturbed = new_lake(), new_lake()
    for location in (disturbed, undisturbed):
        ingest_capture(location, "a")
    assert run(disturbed, "b", place) == -signal.SIGKILL, "the place was reached"
    assert open_lake(disturbed).captures.count_rows() == (2 if place == "after publish" else 1)
    for location in (disturbed, undisturbed):
        for capture in ("b", "c"):
            ingest_capture(location, capture)
    assert contents(disturbed, TABLES) == contents(undisturbed, TABLES)
