"""Fuzz one target with coverage: python tests/fuzz/run_atheris.py TARGET [SECONDS] [DIRECTORY]

DIRECTORY receives the inputs that reach new code, and those that fail (crash-*). Needs the extra `fuzz`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["rtmp_spark"]):
    from fuzz.targets import TARGETS


def main(name: str, seconds: str = "60", directory: str = "") -> None:
    found = Path(directory or tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    found.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(TARGETS[name].seeds()):
        (found / f"seed-{number}").write_bytes(data)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={found}/", "-timeout=120", "-rss_limit_mb=1000"]
    atheris.Setup([sys.argv[0], *options, "-max_len=65536", "-print_final_stats=1", str(found)], TARGETS[name].check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
