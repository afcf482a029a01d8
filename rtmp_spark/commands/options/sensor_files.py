"""Capture files with the sensor that recorded each: `FILE`, or `NAME=FILE` where there are several sensors."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from rtmp_spark.commands.options.capture_options import capture_files


def files_by_sensor(args: argparse.Namespace) -> dict[str, list[str]]:
    """The files of each sensor, in the order given; files without a name are of `--sensor`. Raises like
    capture_files."""
    named: dict[str, list[str]] = {}
    for argument in args.paths:
        sensor, path = _split(argument, args.sensor)
        named.setdefault(sensor, []).append(path)
    return {sensor: capture_files(paths, others=len(named) > 1) for sensor, paths in named.items()}


def all_files(captures: Mapping[str, list[str]]) -> list[str]:
    """The files of all sensors."""
    return [path for paths in captures.values() for path in paths]


def _split(argument: str, sensor: str) -> tuple[str, str]:
    name, equals, path = argument.partition("=")
    if equals and name and "/" not in name and not Path(argument).exists():  # a file may have = in its name
        return name, path
    return sensor, argument
