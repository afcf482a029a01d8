"""Sizes, counts and lengths of time on the command line; what cannot be is wrong usage, and no other number."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """64MB, 300k, 1048576: a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE | re.ASCII)
    count = int(float(found[1]) * _UNITS[found[2].upper()]) if found is not None else 0
    if not count:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 64MB")
    return count


def count(text: str) -> int:
    """None of it is fine."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of things; write 0 or more")
    return int(text)


def amount(text: str) -> float:
    """Of seconds, or of bytes a second; none of it is fine."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount; write 0 or more")
    return value
