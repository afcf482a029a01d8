"""Runs `rtmp-spark relay` and other programs as processes, and reads FLV files without our reader."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rtmp_relay.client.rtmp_client import Progress, Tag, play


class FlvTag(NamedTuple):
    type_id: int
    timestamp: int
    body: bytes


def read_flv(path: Path) -> list[FlvTag]:
    """Return every complete tag, parsed by FLV 10.1 annex E."""
    data = path.read_bytes()
    assert data[:3] == b"FLV"
    tags, at = [], int.from_bytes(data[5:9], "big") + 4
    while at + 11 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 4], "big")
        timestamp = int.from_bytes(data[at + 4 : at + 7], "big") | data[at + 7] << 24
        if at + 11 + size > len(data):
            break
        tags.append(FlvTag(data[at] & 31, timestamp, data[at + 11 : at + 11 + size]))
        at += 11 + size + 4
    return tags


def is_configuration(tag: FlvTag) -> bool:
    first = tag.body[0]
    if tag.type_id == 8:
        return tag.body[1] == 0 if first >> 4 == 10 else first >> 4 == 9 and first & 15 == 0
    return first & 15 == 0 if first & 0x80 else first & 15 == 7 and tag.body[1] == 0


def is_end_of_sequence(tag: FlvTag) -> bool:
    return tag.type_id == 9 and tag.body[0] & 0x8F == 7 and tag.body[1] == 2


def frames(tags: list[FlvTag], type_id: int) -> list[FlvTag]:
    """Return the coded frames of one type; these must arrive once, in order and unchanged."""
    of_kind = [tag for tag in tags if tag.type_id == type_id and tag.body]
    return [tag for tag in of_kind if not is_configuration(tag) and not is_end_of_sequence(tag)]


class RelayProcess:
    """A relay in its own process, on a free port."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        self._log_file = log.open("w")
        command = [sys.executable, "-m", "rtmp_spark.cli", "relay", "--listen", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log_file, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("relay ready: "), ready + log.read_text()
        self.address = ready.split("//")[1].split("/")[0]
        self.port = int(self.address.rpartition(":")[2])

    def url(self, name: str, app: str = "live") -> str:
        return f"rtmp://{self.address}/{app}/{name}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def await_log(self, words: str, times: int = 1) -> None:
        """Wait until the log contains these words so many times; the long deadline is for slow machines."""
        deadline = time.monotonic() + 60
        while self.log.read_text().count(words) < times:
            assert self.alive and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stop(self, timeout: float = 60.0) -> float:
        """Send SIGTERM. Returns how long the relay took to end; fails if it did not exit with 0."""
        start = time.monotonic()
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(timeout) == 0, self.log.read_text()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("The relay ignored SIGTERM: " + self.log.read_text()) from None
        finally:
            assert self.process.stdout is not None
            self.output = self.process.stdout.read()
            self.process.stdout.close()
            self._log_file.close()
        return time.monotonic() - start


StartRelay = Callable[..., RelayProcess]


async def start_playing(url: str, on_tag: Callable[[Tag], None], **options: Any) -> asyncio.Task[Progress]:
    """Start a player and wait until the server accepted it, so that it receives everything published afterwards."""
    accepted = asyncio.Event()
    playing = asyncio.create_task(play(url, on_tag, on_progress=lambda _: accepted.set(), **options))
    waiting = asyncio.create_task(accepted.wait())
    await asyncio.wait({playing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return playing


class Programs:
    """Starts other programs and ends each of them by its process id."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], wait_s: float = 5.0) -> None:
        """Wait for the program to end, then send SIGINT, then SIGKILL; players often wait for more media."""
        for number in (None, signal.SIGINT, signal.SIGKILL):
            if number is not None:
                process.send_signal(number)
            try:
                process.wait(wait_s if number is None else 3)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.stderr is not None:
            process.stderr.close()

    def end_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                self.end(process, 0.1)
            elif process.stderr is not None:
                process.stderr.close()
