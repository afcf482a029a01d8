"""Statistics of a Parquet file for the Delta log, from its footer.

Readers skip a file whose statistics say that no row can match, so a wrong value loses rows silently:
a maximum is never cut (neither a long string nor the microseconds of a time), doubles get none (NaN has no order),
and a column gets none if one row group lacks them (pyarrow leaves them out for very long strings).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

LONGEST_TEXT = 256  # characters; texts come from the peers, and longer ones would only swell the log


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class ColumnRange(NamedTuple):
    """What a footer says about one column; both values are None if every row is null."""

    minimum: Any
    maximum: Any
    nulls: int


def column_ranges(footer: pq.FileMetaData, columns: Iterable[str]) -> dict[str, ColumnRange]:
    """The ranges of those of the columns for which the footer is complete."""
    wanted = set(columns)
    places = {
        footer.schema.column(i).path: i for i in range(footer.num_columns) if footer.schema.column(i).path in wanted
    }
    found = {name: _range(footer, place) for name, place in places.items()}
    return {name: value for name, value in found.items() if value is not None}


def _range(footer: pq.FileMetaData, place: int) -> ColumnRange | None:
    if footer.schema.column(place).physical_type in ("DOUBLE", "FLOAT", "INT96"):
        return None
    low = high = None
    nulls = 0
    kind = footer.schema.column(place).logical_type.type
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        values = chunk.statistics
        if values is None or not values.has_null_count:
            return None
        nulls += values.null_count
        if values.null_count == chunk.num_values:
            continue
        if not values.has_min_max:
            return None
        try:
            least, most = (_value(raw, kind) for raw in (values.min_raw, values.max_raw))
        except (OverflowError, ValueError):  # a time that Python's datetime cannot hold
            return None
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
    if isinstance(high, str) and max(len(str(low)), len(high)) > LONGEST_TEXT:
        return None
    return ColumnRange(low, high, nulls)


def _value(raw: Any, kind: str) -> Any:
    """A value of a footer. pyarrow's own conversion of times loads pandas, a third of a second in every worker."""
    if kind == "TIMESTAMP":  # tables have microseconds only
        return _EPOCH + timedelta(microseconds=raw)
    return raw.decode() if isinstance(raw, bytes) and kind == "STRING" else raw


def delta_statistics(rows: int, ranges: dict[str, ColumnRange]) -> str:
    """The `stats` of an add action."""
    known = {name: r for name, r in ranges.items() if r.minimum is not None}
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: _as_json(r.minimum) for name, r in known.items()},
            "maxValues": {name: _as_json(r.maximum) for name, r in known.items()},
            "nullCount": {name: r.nulls for name, r in ranges.items()},
        },
        separators=(",", ":"),
    )


def _as_json(value: Any) -> Any:
    """Times keep their microseconds: delta-rs, Polars and DuckDB compare them exactly."""
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value


def parse_statistics(text: str, types: dict[str, pa.DataType]) -> dict[str, tuple[Any, Any, int | None]]:
    """Smallest and largest value and number of nulls by column, from the `stats` of an add action."""
    stats = json.loads(text)
    found: dict[str, tuple[Any, Any, int | None]] = {}
    for name, nulls in stats["nullCount"].items():
        low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
        if pa.types.is_timestamp(types[name]) and low is not None:
            low, high = (datetime.fromisoformat(moment.replace("Z", "+00:00")) for moment in (low, high))
        found[name] = (low, high, nulls)
    return found
