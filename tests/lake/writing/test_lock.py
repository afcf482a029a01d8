"""The lock of a local lake: the second writer waits and prints for which writer; a dead holder does not block."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from kit.lake_rows import ingest_capture

from rtmp_spark.codec.errors import UserError
from rtmp_spark.lake.location import Location
from rtmp_spark.lake.reader import open_lake
from rtmp_spark.lake.writer import open_writer

HOLD = """
import sys, time
from rtmp_spark.lake.location import locate
from rtmp_spark.lake.writing.lock import writer_lock
with writer_lock(locate(sys.argv[1]), 10):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_writer_prints_which_writer_it_waited_for(
    lake: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lake.uri], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        sentence = rf"\(process {holder.pid}\) is writing .* Try again"
        with pytest.raises(UserError, match=sentence), open_writer(lake, wait_seconds=0.3):
            pass
        assert f"(process {holder.pid}), which is writing" in capsys.readouterr().err
        assert open_lake(lake).published.ingest_id == 0, "readers do not wait"
    finally:
        holder.kill()
        holder.wait()
    assert ingest_capture(lake, "a"), "the lock of a dead process is free"


def test_writers_that_wait_get_their_turn(lake: Location) -> None:
    threads = [threading.Thread(target=ingest_capture, args=(lake, f"capture {n}")) for n in range(4)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 30
    assert open_lake(lake).captures.count_rows() == 4 and open_lake(lake).messages.count_rows() == 12
