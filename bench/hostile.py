"""CPU and memory of a command on captures that try to cost more than they weigh, at sizes n and 2n.

    python bench/hostile.py [FAMILY...] [--command inspect] [--scale 1.0] [--json]

The families are in tests/kit/hostile_captures.py and hostile_kinds.py. Doubling the size must cost at most 2.3 times
the CPU time beside that of an empty capture, and a capture below 1 MB at most 5 s and 500 MB. The line of a family that
exceeds these, or on which the command fails, ends with an exclamation mark. A process is stopped after 60 s of CPU
time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kit.hostile_captures import FAMILIES as NAMED_FAMILIES
from kit.hostile_captures import Family, pcap
from kit.hostile_kinds import FURTHER_FAMILIES

from rtmp_spark.commands.exit_codes import FINDINGS, NO_RTMP

FAMILIES = NAMED_FAMILIES | FURTHER_FAMILIES
RATIO, SECONDS, MEGABYTES = 2.3, 5.0, 500.0
NOISE_S = 0.5  # below this, a ratio says nothing
STOPPED_S = 60
OUTPUTS = {  # commands, with the options that say where they write
    "inspect": (), "check": ("--junit", "findings.xml"), "report": ("-o", "report.html"), "extract": ("-o", "streams/"),
}  # fmt: skip


class Cost(NamedTuple):
    bytes: int
    cpu_s: float
    rss_mb: float
    status: int


def measure(command: str, data: bytes, options: tuple[str, ...], directory: Path) -> Cost:
    path = directory / "hostile.pcap"
    path.write_bytes(data)
    shutil.rmtree(directory / "streams", ignore_errors=True)
    own = options if command == "inspect" else OUTPUTS[command]
    process = subprocess.Popen(
        [sys.executable, "-m", "rtmp_spark.cli", command, str(path), *own],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (STOPPED_S, STOPPED_S)),
    )
    _, status, used = os.wait4(process.pid, 0)
    return Cost(len(data), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))


def compare(command: str, name: str, family: Family, scale: float, base_s: float, directory: Path) -> dict[str, object]:
    n = int(family.n * scale)
    one, two = (measure(command, family.make(size), family.options, directory) for size in (n, 2 * n))
    ratio = max(two.cpu_s - base_s, 0.0) / max(one.cpu_s - base_s, 0.001)
    within = two.cpu_s - base_s < NOISE_S or ratio <= RATIO
    if one.bytes < 1e6:
        within = within and one.cpu_s <= SECONDS and one.rss_mb <= MEGABYTES
    ended = {one.status, two.status} <= {0, FINDINGS, NO_RTMP}
    return {
        "family": name, "n": n, "mb": one.bytes / 1e6, "cpu_s": one.cpu_s, "cpu_2n_s": two.cpu_s, "ratio": ratio,
        "rss_mb": one.rss_mb, "rss_2n_mb": two.rss_mb, "ok": within and ended,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"one of {', '.join(FAMILIES)}")
    parser.add_argument("--command", choices=OUTPUTS, default="inspect")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies n (default: 1.0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per family")
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        base = measure(args.command, pcap([]), (), Path(directory))
        if not args.json:
            print(f"an empty capture: {base.cpu_s:.2f} s, {base.rss_mb:.0f} MB")
            print(f"{'family':30}{'n':>9}{'MB':>7}{'CPU s':>8}{'2n':>8}{'ratio':>7}{'RSS MB':>8}{'2n':>6}")
        for name in args.families or FAMILIES:
            row = compare(args.command, name, FAMILIES[name], args.scale, base.cpu_s, Path(directory))
            failed += not row["ok"]
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                line = "{family:30}{n:9}{mb:7.1f}{cpu_s:8.2f}{cpu_2n_s:8.2f}{ratio:7.2f}{rss_mb:8.0f}{rss_2n_mb:6.0f}"
                print(line.format(**row) + ("" if row["ok"] else "  !"), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
