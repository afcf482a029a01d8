"""Fuzz one target with coverage: python tests/fuzz/run_atheris.py TARGET CPU_SECONDS DIRECTORY...

The inputs in the directories are the beginning; the first one receives the inputs that reach new code. Arguments that
begin with `-` are options of libFuzzer. `run_targets.py` runs this for each target.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["rtmp_spark"]):
    from fuzz.targets import TARGETS

_SLOW_S = 5.0  # for one input, with the time of the coverage
_LIMITS = ["-max_len=16384", "-rss_limit_mb=1000", "-timeout=600", "-print_final_stats=1"]


def main(name: str, seconds: str, *arguments: str) -> None:
    target, limit_s = TARGETS[name], float(seconds)

    def check(data: bytes) -> None:
        begun = time.process_time()
        target.check(data)
        ended = time.process_time()
        assert ended - begun < _SLOW_S, f"one input takes {ended - begun:.1f} s of CPU time"
        if ended > limit_s:
            os.kill(os.getpid(), signal.SIGUSR1)  # libFuzzer then prints its statistics and exits

    again = os.environ.get("FUZZ_COMMAND", sys.argv[0])  # what libFuzzer starts for the part of a merge that may crash
    atheris.Setup([again, *_LIMITS, *arguments], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
