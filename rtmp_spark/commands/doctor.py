"""`rtmp-spark doctor`: what this machine has and lacks, with the remedies."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    print("ok")
    return 0
