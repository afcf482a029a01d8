"""`rtmp-spark check`: a gate for CI. What is checked are the golden vectors, by our codec or by another program.

Prints one line per failure and a closing count; exit 1 when something fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rtmp_spark.codec.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    vectors = parser.add_argument_group("golden vectors")
    vectors.add_argument(
        "--vectors", nargs="?", const="", metavar="DIR", help="run the vectors of DIR (default: the bundled ones)"
    )
    vectors.add_argument(
        "--decoder", metavar="CMD", help="a program that reads a vector as JSON and prints what it makes of it"
    )


def run(args: argparse.Namespace) -> int:
    if args.vectors is not None:
        return check_vectors(args.vectors, args.decoder)
    if args.decoder is not None:
        raise UserError("--decoder goes with --vectors.", "Add --vectors.")
    raise UserError("There is nothing to check.", "Add --vectors.")


def check_vectors(directory: str, decoder: str | None) -> int:
    from rtmp_spark.vectors import BUNDLED
    from rtmp_spark.vectors.run import run_directory

    passed = failed = 0
    for name, failures in run_directory(Path(directory) if directory else BUNDLED, decoder):
        if failures:
            failed += 1
            print(f"FAIL {name}: {failures[0]}")
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
