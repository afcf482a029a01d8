"""Types of command-line values: sizes, counts, times, addresses. An invalid value is a usage error with an example."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TypeVar

from rtmp_spark.analysis import filter_values
from rtmp_spark.codec.errors import UserError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
Value = TypeVar("Value")


def size(text: str) -> int:
    """64MB, 300k or 1048576 as a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE | re.ASCII)
    count = int(float(found[1]) * _UNITS[found[2].upper()]) if found is not None else 0
    if not count:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}; use 64MB")
    return count


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"invalid count {text!r}; use a whole number, 0 or more")
    return int(text)


def amount(text: str) -> float:
    """Seconds or bytes per second, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e15:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}; use 0 or more")
    return value


def _usage_error(parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except UserError as error:
        what, remedy = (part[0].lower() + part[1:].rstrip(".") for part in (error.text, error.remedy))
        raise argparse.ArgumentTypeError(f"{what}; {remedy}") from None


def parse_time(text: str) -> int:
    return _usage_error(filter_values.parse_time, text)


def parse_host(text: str) -> str:
    return _usage_error(filter_values.parse_host, text)


def parse_port(text: str) -> int:
    return _usage_error(filter_values.parse_port, text)


def parse_names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"invalid list {text!r}; use names separated by commas")
    return names
