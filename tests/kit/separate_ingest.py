"""Runs an ingest in its own process and compares its tables with those of another lake."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rtmp_spark.lake.reader import open_lake

NAMES = ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")
S3_CAPTURES = (f"s3://captures/50%25 of day 1/{NAMES[0]}", f"s3a://captures/{NAMES[1]}")  # the same in an object store
# The JVMs of tests are too short-lived for the optimizing compiler (as in `start_spark(small=True)`).
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
INGEST = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]))"
COMPARED = ("messages", "commands", "media_tags", "connections", "findings", "deliveries")


def python(code: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | QUICK_JAVA | environment,
        text=True,
        capture_output=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr


def assert_same(
    expected: Path | str, lake: Path | str, options: Mapping[str, str] | None = None, *, in_order: bool = True
) -> None:
    """Both lakes have the same published rows. `options` are the storage options of the second one.

    A capture that is ingested after a later one (not `in_order`) keeps the states of its last connections, because
    their continuation may still come; ingested in order they are too old.
    """
    one, other = open_lake(expected), open_lake(lake, options)
    for table in COMPARED:
        rows = [sorted(map(repr, found.read(table).drop_columns(["ingest_id"]).to_pylist())) for found in (one, other)]
        assert rows[0] == rows[1], table
        assert rows[0], table
    if in_order:
        assert sorted(one.read("open_flows")["uid"].to_pylist()) == sorted(other.read("open_flows")["uid"].to_pylist())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, server: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Until a server that was just started accepts connections."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")
