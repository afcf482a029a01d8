"""Finds the fenced code blocks of the documents and runs them in a temporary directory."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"(?:<!-- not run: ([^>]+) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORTS = re.compile(r"(127\.0\.0\.1)(?::(193[56]))?(?=[/ \n])")


@dataclass(frozen=True)
class Block:
    language: str  # sh, python, text, ...
    code: str
    line: int
    not_run: str | None  # why the block is not run


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(found[2], found[3], text[: found.start()].count("\n") + 1, found[1])


_END = re.compile(r" [|>&]| #|&&|\)")  # of a command
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def commands(text: str) -> Iterator[str]:
    """The `rtmp-spark ...` commands in a text, one line each."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        found = re.search(r"(?:^|[\s(])(rtmp-spark [a-z].*)", line)
        if found:
            quoted = {match.start(): match.end() for match in _QUOTED.finditer(found[1])}
            ends = (match.start() for match in _END.finditer(found[1]))
            end = next((e for e in ends if not any(a <= e < b for a, b in quoted.items())), len(found[1]))
            yield found[1][:end].strip()


def prepare(directory: Path) -> None:
    """Create the files that the documents use: trace.pcap, captures/, streams/, sample_pcaps/."""
    samples = ROOT / "sample_pcaps"
    (directory / "sample_pcaps").symlink_to(samples)
    shutil.copy(samples / "ffmpeg_publish_h264_aac.pcap", directory / "trace.pcap")
    (directory / "captures").mkdir()
    for name in ("ffmpeg_publish_g711mu_audio_only.pcap", "capture_gap_lost_packets.pcap"):
        shutil.copy(samples / name, directory / "captures")
    (directory / "streams").mkdir()


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def run(block: Block, directory: Path, ports: list[int]) -> None:
    """Run a block as if pasted into a shell. Raises AssertionError with its output if it fails."""
    code = _PORTS.sub(lambda found: f"{found[1]}:{ports[found[2] == '1936']}", block.code)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if block.language == "python":
        command = [sys.executable, "-c", code]
    else:
        # `check` exits with 1 if it has findings; that is not an error of the document.
        gated = re.sub(r"^(rtmp-spark check .*)$", r"\1 || [ $? -eq 1 ]", code, flags=re.MULTILINE)
        command = ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{gated}"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"line {block.line}:\n{code}\n{done.stdout}\n{done.stderr}"
