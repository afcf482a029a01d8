"""Compare `inspect` with tuned tshark on the captures of make_captures.py.

    python bench/make_captures.py DIR && python bench/capture.py DIR [NAME...] [--repeat 2]

Prints CPU seconds of the whole processes, including imports, and their peak resident memory, with the number of
messages that each program found; both should find all messages of the capture. `ratio` compares the CPU seconds of one
process. `wall` compares the time that passes if `inspect` uses all cores: run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

OURS = [sys.executable, "-m", "rtmp_spark.cli", "inspect", "--jobs"]
CORES = len(os.sched_getaffinity(0))
TSHARK = [
    "tshark", "-o", "rtmpt.max_packet_size:16777215", "-o", "tcp.reassemble_out_of_order:TRUE",
    "-d", "tcp.port==1935,rtmpt", "-Y", "rtmpt", "-T", "fields", "-e", "rtmpt.header.csid",
]  # fmt: skip


class Cost(NamedTuple):
    cpu_s: float
    wall_s: float
    rss_mb: float
    messages: int


def measure(command: list[str], count: str) -> Cost:
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
        out.seek(0)
        text = out.read().decode()
    if status:
        sys.exit(f"{command[0]} failed with status {status}")
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, counted(text, count))


def counted(text: str, how: str) -> int:
    if how == "fields":
        return sum(len([word for word in line.split(",") if word]) for line in text.splitlines())
    words = text.splitlines()[-1].split()
    return int(words[words.index("messages;") - 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--repeat", type=int, default=2)
    args = parser.parse_args()
    known = json.loads((args.directory / "captures.json").read_text())
    print("capture        MB  messages    tshark   CPU s     MB     inspect   CPU s     MB  ratio  all cores    wall")
    for name in args.names or [n for n in known if n != "files10k"]:
        path = args.directory / f"{name}.pcap"
        theirs, ours, on_all_cores = [], [], []
        for _ in range(args.repeat):
            if shutil.which("tshark"):
                theirs.append(measure([*TSHARK, "-r", str(path)], "fields"))
            ours.append(measure([*OURS, "1", str(path)], "screen"))
            on_all_cores.append(measure([*OURS, str(CORES), str(path)], "screen"))
        own = min(ours)
        size = path.stat().st_size / 1e6
        cells = f"{name:<10} {size:>6.0f} {known[name].get('messages', known[name]['client_messages']):>9}"
        if theirs:
            other = min(theirs)
            cells += f" {other.messages:>9} {other.cpu_s:>7.1f} {other.rss_mb:>6.0f}  "
        cells += f" {own.messages:>9} {own.cpu_s:>7.1f} {own.rss_mb:>6.0f}"
        cells += f"  {min(theirs).cpu_s / own.cpu_s:>4.1f} x" if theirs else ""
        wall = min(cost.wall_s for cost in on_all_cores)
        cells += f"  {wall:>7.2f} s"
        print(cells + (f"  {min(cost.wall_s for cost in theirs) / wall:>4.1f} x" if theirs else ""), flush=True)


if __name__ == "__main__":
    main()
