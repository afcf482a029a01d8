"""The simulation is deterministic: `tests/make_samples.py` writes the sample captures of our relay byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_samples_reproduces_the_sample_captures(tmp_path: Path, sample_pcaps: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "make_samples.py"), str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    made = sorted(tmp_path.iterdir())
    assert len(made) == 3
    for path in made:
        assert path.read_bytes() == (sample_pcaps / path.name).read_bytes()
    servers = {path.read_bytes()[24 + 16 + 14 + 16 :][:4] for path in made}  # of the first packet, Ethernet and IPv4
    assert len(servers) == 3, "one recording of all samples has every connection"
