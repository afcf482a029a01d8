"""Measures how many messages the decoder finds after random gaps and mid-stream starts; prints a line per stream.

    python bench/resync.py [--trials 10000] [--seed 1] [--captures DIRECTORY] [--verbose]

Streams are the directions of every capture of the directory (sample_pcaps by default), some of them rewritten with
interleaved chunks at sizes 128, 4096 and 60000 and with extended timestamps. It prints how many of
the messages outside the loss were found, and how many reported messages were never sent. Times are CPU time.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kit.loss_trials import Outcome, decode, judge, random_loss, streams
from kit.real_streams import SAMPLES


class Row:
    """The trials of one stream, or of all."""

    def __init__(self) -> None:
        self.trials = self.untouched = self.found = self.invented = 0
        self.seconds = self.slowest = 0.0

    def add(self, outcome: Outcome, seconds: float) -> None:
        self.trials += 1
        self.untouched += outcome.untouched
        self.found += outcome.found
        self.invented += outcome.invented
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)

    def __str__(self) -> str:
        share = 100 * self.found / max(self.untouched, 1)
        missed, mean = self.untouched - self.found, 1000 * self.seconds / max(self.trials, 1)
        counts = f"{self.trials:6} {self.untouched:9} {missed:7} {share:9.3f} {self.invented:9}"
        return f"{counts} {mean:7.2f} {1000 * self.slowest:8.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how many messages the decoder finds after losses.")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--captures", type=Path, default=SAMPLES)
    parser.add_argument("--verbose", action="store_true", help="print every trial with an invented or missed message")
    args = parser.parse_args()
    chosen = streams(args.captures)
    rng = random.Random(args.seed)
    rows: dict[str, Row] = {stream.name: Row() for stream in chosen}
    kinds = {"all gaps": Row(), "all starts": Row(), "all": Row()}
    for _ in range(args.trials):
        stream = rng.choice(chosen)
        loss = random_loss(rng, stream)
        begin = time.process_time()
        events = decode(stream, loss)
        seconds = time.process_time() - begin
        outcome = judge(stream, loss, events)
        for row in (rows[stream.name], kinds["all starts" if loss.joined else "all gaps"], kinds["all"]):
            row.add(outcome, seconds)
        if args.verbose and (outcome.invented or outcome.found < outcome.untouched):
            print(stream.name, loss, outcome)
    width = max(map(len, rows))
    print(f"{'':{width}} trials untouched  missed   found % invented ms each  slowest")
    for name, row in [*rows.items(), *kinds.items()]:
        print(f"{name:{width}} {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
