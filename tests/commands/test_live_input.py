"""Captures that are still being written: `inspect -` and `inspect --follow`."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.hostile_captures import Record, Wire, connected, pcap, publishing

from rtmp_spark.capture.files.live_input import LiveInput, open_live
from rtmp_spark.capture.files.open_capture import Capture

SECONDS = 60  # that a command may take


def two_connections() -> tuple[bytes, bytes]:
    """A capture of two connections, cut where the first of them has ended."""
    records: list[Record] = []
    publishing(connected(Wire(records))).close()
    half = len(pcap(records))
    publishing(connected(Wire(records, 1))).close()
    whole = pcap(records)
    return whole[:half], whole[half:]


@contextmanager
def inspecting(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "rtmp_spark.cli", "inspect", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def printed_until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert process.stdout is not None
    seen = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while wanted not in seen:
            assert selector.select(SECONDS), seen
            part = os.read(process.stdout.fileno(), 65_536)
            assert part, seen
            seen += part
    return seen


def test_a_connection_is_printed_when_it_ends_not_when_the_pipe_does() -> None:
    first, second = two_connections()
    with inspecting("-") as process:
        assert process.stdin is not None
        process.stdin.write(first)
        early = printed_until(process, b"SESSION_END")
        assert b"10.0.0.1:10000" in early and b"2 RTMP connections" not in early
        rest, _ = process.communicate(second, timeout=SECONDS)
    assert b"2 RTMP connections" in rest and b"10.0.0.1:10000" not in rest and process.returncode == 0


def test_a_followed_file_grows_until_ctrl_c(tmp_path: Path) -> None:
    first, second = two_connections()
    path = tmp_path / "grows.pcap"
    path.write_bytes(first)
    with inspecting("--follow", str(path)) as process:
        printed_until(process, b"10.0.0.1:10000")
        with path.open("ab") as file:
            file.write(second)
        printed_until(process, b"10.0.0.1:10001")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=SECONDS)
    assert b"2 RTMP connections" in rest and process.returncode == 0


def test_a_whole_capture_in_a_pipe_is_shown_like_a_file(tmp_path: Path) -> None:
    path = tmp_path / "two.pcap"
    path.write_bytes(b"".join(two_connections()))
    with inspecting("-") as process:
        piped, _ = process.communicate(path.read_bytes(), timeout=SECONDS)
    with inspecting(str(path)) as process:
        shown, _ = process.communicate(timeout=SECONDS)
    assert piped.replace(b"-,", str(path).encode() + b",") == shown


@pytest.mark.parametrize("step", [1, 7, 24, 1000])
def test_packets_do_not_depend_on_how_a_pipe_is_written(step: int) -> None:
    data = b"".join(two_connections())[:6000]

    class Pieces(LiveInput):
        def __init__(self) -> None:
            self.at = 0

        def read(self, size: int, /) -> bytes:
            part = data[self.at : self.at + min(size, step)]
            self.at += len(part)
            return part

    frames = [frame for block in Capture(Pieces()) for frame in block.frame.tolist()]  # type: ignore[arg-type]
    assert frames == list(range(1, len(frames) + 1)) and len(frames) > 5


def test_only_pipes_and_followed_files_are_live(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"abc")
    assert open_live(str(path)) is None
    live = open_live(str(path), follow=True)
    assert live is not None and live.read(3) == b"abc"
    live.stop()
    assert live.read(1) == b"" and live.ended
    live.close()
