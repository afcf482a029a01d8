"""Captures with many publishers and players, made by bench/make_captures.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_relayed(directory: Path, *names: str, scale: float = 0.01) -> list[Path]:
    """`players`: 1 publisher and 50 players. `names`: 60 publishers and 40 plays of 3 names. `same`: with one content.

    Larger with a larger `scale`.
    """
    make = [sys.executable, str(ROOT / "bench" / "make_captures.py"), str(directory), *names, "--scale", str(scale)]
    subprocess.run(make, check=True, capture_output=True)
    return [directory / f"{name}.pcap" for name in names]
