"""JSON output: the rows of the tables as JSON Lines, with exactly the columns of the tables."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TextIO

import pyarrow as pa

from rtmp_spark.analysis.row_sink import Batch


def time_text(microseconds: int) -> str:
    """2026-01-31T12:00:00.000000Z"""
    seconds, rest = divmod(microseconds, 1_000_000)
    second = _second_text(seconds)
    return str(microseconds) if second is None else f"{second}.{rest:06}Z"


@lru_cache(1024)  # many rows are of the same few seconds
def _second_text(seconds: int) -> str | None:
    try:
        when = time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{when[0]:04}-{when[1]:02}-{when[2]:02}T{when[3]:02}:{when[4]:02}:{when[5]:02}"


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch as values that `json.dumps` accepts: times as text, bytes as hex, no NaN."""
    names = batch.schema.names
    columns = [_json_column(name, column) for name, column in zip(names, batch.columns)]
    for values in zip(*columns):
        yield dict(zip(names, values))


def _json_column(name: str, column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [None if v is None else time_text(v) for v in column.view(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    if name == "args":
        return [None if v is None else json.loads(v) for v in values]
    if pa.types.is_binary(kind):
        return [None if v is None else v.hex() for v in values]
    if pa.types.is_floating(kind):
        return [None if v is None or v != v or v in (float("inf"), float("-inf")) else v for v in values]
    return values


# Control characters of the terminal and marks that reorder text; JSON itself escapes those below U+0020.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_CONTROL = re.compile(_UNSAFE.pattern + "|[\x00-\x08\x0b-\x1f]")


def json_line(row: dict[str, Any]) -> str:
    """A row as one line of JSON that is safe to print: characters that could control a terminal are escaped."""
    text = json.dumps(row, ensure_ascii=False)
    return text if text.isascii() and "\x7f" not in text else _UNSAFE.sub(lambda c: f"\\u{ord(c[0]):04x}", text)


def escape_controls(text: str) -> str:
    """The text with the characters escaped that `json_line` escapes; line feeds and tabs stay."""
    return text if text.isprintable() else _CONTROL.sub(lambda c: f"\\u{ord(c[0]):04x}", text)


def print_json(batches: Iterable[Batch], out: TextIO, *, with_table: bool) -> None:
    """One JSON object per row; `with_table` adds the name of the table as its first key."""
    for table, batch in batches:
        for row in json_rows(batch):
            if with_table:
                row = {"table": table, **row}
            out.write(json_line(row) + "\n")
        out.flush()
