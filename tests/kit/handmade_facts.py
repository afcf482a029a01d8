"""Builds media rows, commands and control facts for tests of rules; decodes captures as the command line does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtmp_spark.analysis.recording import Recording
from rtmp_spark.commands.options.capture_options import add_filter_arguments, make_settings
from rtmp_spark.conversation.facts import CommandFact, ControlFact, Place, Row

SAMPLES = Path(__file__).parents[2] / "sample_pcaps"
EXPECTATIONS = Path(__file__).parents[1] / "expectations"
MS = 1000  # microseconds


def recorded(
    path: Path | Sequence[Path], *tables: str, arguments: Sequence[str] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of these tables, decoded with the options of `rtmp-spark inspect --keep-secrets`."""
    parser = argparse.ArgumentParser()
    add_filter_arguments(parser)
    settings = make_settings(parser.parse_args(["--keep-secrets", *arguments]))
    paths = [path] if isinstance(path, Path) else path
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in tables}
    for table, batch in Recording(paths, settings, tables).batches():
        rows[table] += batch.to_pylist()
    return rows


def table(name: str) -> list[dict[str, str]]:
    """Return the lines of a file of tests/expectations."""
    lines = (EXPECTATIONS / name).read_text().splitlines()
    names = lines[0].split("\t")
    return [dict(zip(names, line.split("\t"))) for line in lines[1:]]


def frame(
    kind: str, arrival_ms: float, dts: int, *, key: bool = False, cts: int | None = None, size: int = 100, **other: Any
) -> Row:
    """Return a media_tags row of a coded frame, without uid and direction."""
    video = kind == "video"
    known: dict[str, Any] = {
        "msg_no": dts, "part_no": 0, "ts": round(arrival_ms * MS), "frame": 1 + round(arrival_ms), "stream_id": 1,
        "kind": kind, "codec": "avc" if video else "aac", "enhanced": False, "track_id": 0, "packet_type": "frame",
        "frame_type": ("key" if key else "inter") if video else None, "is_key": key, "is_config": False, "dts": dts,
        "cts": (cts or 0) if video else None, "pts": dts + (cts or 0), "ts_ns_offset": None, "size": size,
        "nal_types": None, "width": 320 if video else None, "height": 240 if video else None, "profile": None,
        "level": None, "sample_rate": None if video else 44100, "channels": None if video else 2, "gop_no": None,
    }  # fmt: skip
    return tuple((known | other).values())


def config(kind: str, arrival_ms: float) -> Row:
    return frame(kind, arrival_ms, 0, packet_type="config", is_config=True)


def command(
    name: str, transaction_id: float | None, *args: Any, ts: int = 0, at: int = 0, msg_no: int = 0
) -> CommandFact:
    return CommandFact(
        at, msg_no, ts, at, 1 if name in ("publish", "play") else 0, 20, name, transaction_id, 0, list(args)
    )


def control(
    kind: str, value: int | None = None, *, ts: int = 0, at: int = 0, event_value: int | None = None
) -> ControlFact:
    return ControlFact(at, 0, ts, at, 0, kind, value, None, None, None, event_value)


def passed(at: int, ts: int, start: int, end: int) -> Place:
    return Place(at, ts, start, end, at, at, 4, 9, 1)
