"""Fuzz the targets side by side, and print a line for each: python tests/fuzz/run_targets.py [TARGET...]

    --seconds 60     CPU time of each target
    --directory DIR  receives the inputs that reach new code, those that fail (crash-*), and the logs
    --save           afterwards, minimise these inputs into the saved corpus

Needs atheris (`pip install rtmp-spark[fuzz]`); without it a sentence says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import corpus
from fuzz.targets import TARGETS

_RUN = str(Path(__file__).with_name("run_atheris.py"))
_MOST_SAVED_BYTES = 4096  # of an input: the archives are part of the repository
_RUNS = 20_000  # of one process
_WALL_SECONDS = 15  # for a second of CPU time, on a machine that does something else
_NO_ATHERIS = (
    "Fuzzing was skipped: atheris is not installed. Its wheels exist for Linux on x86-64; install it with "
    "`pip install 'rtmp-spark[fuzz]'`. The saved corpus is replayed by tests/fuzz/test_corpus.py without it."
)


class Result(NamedTuple):
    name: str
    executions: int
    edges: int
    inputs: int
    failure: str  # the end of the log; empty if no input failed


def fuzz(name: str, seconds: float, directory: Path, scratch: Path) -> Result:
    """Fuzz for this CPU time, in one process after the other: code with coverage leaks about 26 kB per execution."""
    found, begin = directory / name, scratch / name
    for path in (found, begin):
        path.mkdir(parents=True, exist_ok=True)
    write(begin, (*TARGETS[name].seeds(), *corpus.saved(name)))
    executions = edges = inputs = 0
    while seconds > 0:
        limits = [f"-artifact_prefix={found}/", f"-max_total_time={int(_WALL_SECONDS * seconds) + 1}", f"-runs={_RUNS}"]
        command = [sys.executable, _RUN, name, str(seconds), *limits, str(found), str(begin)]
        with found.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)})
            _, status, used = os.wait4(process.pid, 0)
        text = found.with_suffix(".log").read_text(errors="replace")
        executed = re.search(r"number_of_executed_units: (\d+)", text)
        covered = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)", text)
        executions += int(executed[1]) if executed else 0
        edges, inputs = map(int, covered[-1]) if covered else (edges, inputs)
        if status or not executed:
            return Result(name, executions, edges, inputs, text[-4000:])
        seconds -= used.ru_utime + used.ru_stime
    return Result(name, executions, edges, inputs, "")


def report(result: Result, directory: Path) -> bool:
    """Print the line of a target; False if an input failed."""
    print(
        f"fuzz {result.name}: {result.executions:,} executions, {result.edges:,} edges covered, {result.inputs} inputs "
        f"({len(list(corpus.saved(result.name)))} of them saved), {'FAILED' if result.failure else 'no failure'}",
        flush=True,
    )
    if result.failure:
        print(f"{result.failure}\nThe input and the log are in {directory}.", flush=True)
    return not result.failure


def save(name: str, directory: Path) -> None:
    """Minimise what was found and what was saved into the archive of a target."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        scratch = Path(temporary)
        inputs, kept = scratch / "inputs", scratch / "kept"
        inputs.mkdir()
        kept.mkdir()
        found = [path.read_bytes() for path in (directory / name).iterdir() if "-" not in path.name]
        write(inputs, (data for data in (*found, *corpus.saved(name)) if len(data) <= _MOST_SAVED_BYTES))
        again = scratch / "again"
        again.write_text(f'#!/bin/sh\nexec {sys.executable} {_RUN} {name} inf "$@"\n')
        again.chmod(0o700)
        environment = {**os.environ, "TMPDIR": temporary, "FUZZ_COMMAND": str(again)}
        subprocess.run([again, "-merge=1", kept, inputs], check=True, env=environment, capture_output=True)
        assert any(kept.iterdir()), "libFuzzer kept no input"
        archive = corpus.save(name, (path.read_bytes() for path in kept.iterdir()))
    print(f"saved {name}: {len(list(corpus.saved(name)))} inputs, {archive.stat().st_size:,} bytes")


def write(directory: Path, inputs: Iterable[bytes]) -> None:
    for number, data in enumerate(inputs):
        (directory / str(number)).write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--directory", type=Path, default=Path("artifacts/fuzz"))
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(_NO_ATHERIS)
        return 0
    names = args.targets or list(TARGETS)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch, ThreadPoolExecutor(len(names)) as threads:
        results = threads.map(lambda name: fuzz(name, args.seconds, args.directory, Path(scratch)), names)
        passed = [report(result, args.directory) for result in results]
    if args.save:
        for name in names:
            save(name, args.directory)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
