"""An ingest in a process of its own, and its tables beside those of the session that the tests share."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import deltalake

NAMES = ("ffmpeg_publish_bframes_rtmpdump_play.pcap", "republish_same_name.pcap")
# Drivers, servers and executors of tests live too short for Java's slow compiler (as in `start_spark(small=True)`).
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
INGEST = "import sys; from rtmp_spark.cli import main; sys.exit(main(sys.argv[1:]))"


def python(code: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | QUICK_JAVA | environment,
        text=True,
        capture_output=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr


def rows(lake: Path, table: str) -> list[str]:
    found = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table()
    return sorted(map(repr, found.drop(["ingest_id"]).to_pylist()))


def assert_same(local: Path, lake: Path) -> None:
    for table in ("messages", "commands", "media_tags", "connections", "findings", "deliveries"):
        assert rows(local, table) == rows(lake, table), table
    open_flows = [deltalake.DeltaTable(str(one / "open_flows")).to_pyarrow_table() for one in (local, lake)]
    assert len({tuple(sorted(table["uid"].to_pylist())) for table in open_flows}) == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
