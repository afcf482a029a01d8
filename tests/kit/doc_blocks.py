"""The fenced blocks of our documents, and how a test runs them in a directory of its own."""

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

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"(?:<!-- not run: ([^>]+) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORTS = re.compile(r"(127\.0\.0\.1)(?::(193[56]))?(?=[/ \n])")


@dataclass(frozen=True)
class Block:
    language: str  # sh, python, text, ...
    code: str
    line: int
    not_run: str | None  # the reason


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(found[2], found[3], text[: found.start()].count("\n") + 1, found[1])


def commands(text: str) -> Iterator[str]:
    """Every `rtmp-spark ...` command of a text, one line each."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        found = re.search(r"(?:^|[\s(])(rtmp-spark [a-z].*)", line)
        if found:
            yield re.split(r" [|>&]| #|&&|\)", found[1])[0].strip()


def prepare(directory: Path) -> None:
    """The files that documents speak of: trace.pcap, captures/, streams/, sample_pcaps/."""
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
    """Run a block as a person would paste it; AssertionError with all it said when it fails."""
    code = _PORTS.sub(lambda found: f"{found[1]}:{ports[found[2] == '1936']}", block.code)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if block.language == "python":
        command = [sys.executable, "-c", code]
    else:
        # A gate that finds something ends with 1, which is no failure of the document.
        gated = re.sub(r"^(rtmp-spark check .*)$", r"\1 || [ $? -eq 1 ]", code, flags=re.MULTILINE)
        command = ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{gated}"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"line {block.line}:\n{code}\n{done.stdout}\n{done.stderr}"
